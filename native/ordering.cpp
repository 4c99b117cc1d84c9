#include "ordering.h"

#include <algorithm>

namespace codesgc {

std::vector<int32_t> reverse_cuthill_mckee(const std::vector<int32_t> &indptr, const std::vector<int32_t> &indices) {
    const int32_t N = int32_t(indptr.size()) - 1;
    const auto by_degree = [&](int32_t a, int32_t b) {
        const int32_t da = indptr[a + 1] - indptr[a], db = indptr[b + 1] - indptr[b];
        return da != db ? da < db : a < b;
    };
    std::vector<int32_t> starts(N), order;
    std::vector<char> seen(N, 0);
    order.reserve(N);
    for (int32_t n = 0; n < N; ++n)
        starts[n] = n;
    std::sort(starts.begin(), starts.end(), by_degree);
    for (int32_t start : starts) {
        if (seen[start])
            continue;
        seen[start] = 1;
        order.push_back(start);
        for (size_t at = order.size() - 1; at < order.size(); ++at) { // breadth first, small degrees first
            const size_t level = order.size();
            const int32_t n = order[at];
            for (int32_t e = indptr[n]; e < indptr[n + 1]; ++e)
                if (!seen[indices[e]]) {
                    seen[indices[e]] = 1;
                    order.push_back(indices[e]);
                }
            std::sort(order.begin() + level, order.end(), by_degree);
        }
    }
    std::reverse(order.begin(), order.end());
    return order;
}

} // namespace codesgc
