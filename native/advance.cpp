#include "isa.h"

namespace codesgc::CODESGC_ISA {

// One step of the recurrence. Rows are independent; a task is a block of rows of one replicate.
template <typename T>
static void advance(const Csr<T> &S, T *previous, const T *current, const T *add, int64_t B, int64_t C, int threads) {
    constexpr int64_t L = LANES<T>, ROWS = 256;
    const int64_t blocks = (S.rows + ROWS - 1) / ROWS;
    parallel_for(B * blocks, threads, [&](int64_t task) {
        const int64_t b = task / blocks, first = task % blocks * ROWS, last = std::min(S.rows, first + ROWS);
        const T *x = current + b * S.rows * C;
        for (int64_t n = first; n < last; ++n) {
            const int64_t row = (b * S.rows + n) * C;
            for (int64_t c = 0; c < C; c += L) {
                const int64_t width = std::min(L, C - c);
                Vector<T> sum{};
                for (int32_t e = S.indptr[n]; e < S.indptr[n + 1]; ++e) {
                    const T *from = x + int64_t(S.indices[e]) * C + c;
                    sum += S.values[e] * (width == L ? load(from) : load_part(from, width));
                }
                Vector<T> out = sum + sum - load_part(previous + row + c, width);
                if (add)
                    out += load_part(add + row + c, width);
                store_part(previous + row + c, out, width);
            }
        }
    });
}

void register_advance(Kernels<float> &f, Kernels<double> &d) {
    f.advance = advance<float>;
    d.advance = advance<double>;
}

} // namespace codesgc::CODESGC_ISA
