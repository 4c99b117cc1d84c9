// The Python module codesgc._native: arrays in, arrays out. Every shape, type and index is checked in the bindings, and
// nowhere further in; the kernels run without the interpreter's lock.
#include "bind.h"
#include "ordering.h"

#include <algorithm>
#include <climits>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace codesgc {
namespace {

// The form in which the products with features read the matrix.
template <typename T> void add_compact(Csr<T> &m) {
    m.compact = m.cols <= 65536;
    m.row_values.assign(m.rows, T(0));
    for (int64_t r = 0; r < m.rows && m.compact; ++r)
        for (int32_t e = m.indptr[r]; e < m.indptr[r + 1]; ++e) {
            m.row_values[r] = m.values[m.indptr[r]];
            m.compact &= m.values[e] == m.row_values[r];
        }
    if (m.compact) {
        m.narrow.assign(m.indices.begin(), m.indices.end());
        return;
    }
    m.row_values.clear();
    for (int32_t e : m.t_entry)
        m.t_values.push_back(m.values[e]);
}

// The matrix once more with its rows and columns in the order in which the sweeps go through them.
template <typename T> void add_ordered(Csr<T> &m) {
    m.order = reverse_cuthill_mckee(m.indptr, m.indices);
    std::vector<int32_t> place(m.rows);
    for (int64_t at = 0; at < m.rows; ++at)
        place[m.order[at]] = int32_t(at);
    std::vector<std::pair<int32_t, T>> entries;
    m.o_indptr.push_back(0);
    for (int32_t row : m.order) {
        entries.clear();
        for (int32_t e = m.indptr[row]; e < m.indptr[row + 1]; ++e)
            entries.emplace_back(place[m.indices[e]], m.values[e]);
        std::stable_sort(entries.begin(), entries.end(), [](auto &a, auto &b) { return a.first < b.first; });
        for (auto [column, value] : entries) {
            m.o_indices.push_back(column);
            m.o_values.push_back(value);
        }
        m.o_indptr.push_back(int32_t(m.o_indices.size()));
    }
}

template <typename T> Csr<T> make_csr(Ints<1> indptr, Ints<1> indices, Array<const T, 1> values, int64_t cols) {
    Csr<T> m;
    m.rows = int64_t(indptr.shape(0)) - 1;
    m.cols = cols;
    const int64_t nnz = indices.shape(0);
    if (m.rows < 0 || cols < 0 || cols > INT32_MAX)
        refuse("a sparse matrix needs an index pointer with rows + 1 entries and 0 to 2^31 - 1 columns");
    expect_shape(values, "values", {nnz});
    const int32_t *p = indptr.data(), *i = indices.data();
    if (p[0] != 0 || p[m.rows] != nnz)
        refuse("indptr must start at 0 and end at the number of entries");
    for (int64_t r = 0; r < m.rows; ++r)
        if (p[r] > p[r + 1])
            refuse("indptr decreases at row " + std::to_string(r));
    for (int64_t e = 0; e < nnz; ++e)
        if (i[e] < 0 || i[e] >= cols)
            refuse("index " + std::to_string(i[e]) + " of entry " + std::to_string(e) + ": expected 0 to " +
                   std::to_string(cols - 1));
    m.indptr.assign(p, p + m.rows + 1);
    m.indices.assign(i, i + nnz);
    m.values.assign(values.data(), values.data() + nnz);
    m.t_indptr.assign(m.bands() * cols + 1, 0);
    m.t_indices.resize(nnz);
    m.t_entry.resize(nnz);
    for (int64_t r = 0; r < m.rows; ++r)
        for (int32_t e = p[r]; e < p[r + 1]; ++e)
            ++m.t_indptr[r / BAND * cols + i[e] + 1];
    for (size_t c = 1; c < m.t_indptr.size(); ++c)
        m.t_indptr[c] += m.t_indptr[c - 1];
    std::vector<int32_t> at(m.t_indptr.begin(), m.t_indptr.end() - 1);
    for (int64_t r = 0; r < m.rows; ++r)
        for (int32_t e = p[r]; e < p[r + 1]; ++e) {
            const int32_t to = at[r / BAND * cols + i[e]]++;
            m.t_indices[to] = int32_t(r);
            m.t_entry[to] = e;
        }
    add_compact(m);
    if (m.rows == m.cols)
        add_ordered(m);
    return m;
}

template <typename T> void bind_csr(nb::module_ &m, const char *name) {
    nb::class_<Csr<T>>(m, name)
        .def("__init__",
             [](Csr<T> *self, Ints<1> indptr, Ints<1> indices, Array<const T, 1> values, int64_t cols) {
                 new (self) Csr<T>(make_csr<T>(indptr, indices, values, cols));
             },
             "indptr"_a, "indices"_a, "values"_a, "cols"_a)
        .def_prop_ro("shape", [](const Csr<T> &s) { return nb::make_tuple(s.rows, s.cols); })
        .def_prop_ro("nnz", [](const Csr<T> &s) { return s.values.size(); });
}

} // namespace
} // namespace codesgc

// Of a C library that can be told: without this, each large tensor comes from the system as pages of zeros, and goes
// back when it is freed. Undone, what is free goes back at once.
static void keep_freed_memory([[maybe_unused]] bool keep) {
#ifdef __GLIBC__
    mallopt(M_MMAP_MAX, keep ? 0 : 65536);
    mallopt(M_TRIM_THRESHOLD, keep ? INT_MAX : 64 << 20);
    if (!keep)
        malloc_trim(0);
#endif
}

NB_MODULE(_native, m) {
    codesgc::nb::set_leak_warnings(false); // at exit, matrices may still be held by what Python has not taken down
    m.doc() = "Native kernels of codesgc: arrays in, arrays out.";
    m.def("instruction_set", &codesgc::instruction_set, "The instruction set that the kernels use here.");
    m.def("keep_freed_memory", &keep_freed_memory, codesgc::nb::arg("keep"), "Whether freed memory is kept for later allocations.");
    codesgc::bind_csr<float>(m, "CsrFloat");
    codesgc::bind_csr<double>(m, "CsrDouble");
    codesgc::bind_propagation(m);
    codesgc::bind_dense(m);
}
