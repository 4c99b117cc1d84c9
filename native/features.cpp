// Products with sparse features X (N, I), some of whose entries are dropped: a mask keeps about half of them or fewer, so
// the kept ones are first gathered, 32 at a time, and the products run over nothing else. All columns of the result are
// worked on in panels of two vectors.
#include "isa.h"
#include "mask.h"

namespace codesgc::CODESGC_ISA {

constexpr int64_t GATHER = 4096;     // entries gathered before they are used: they stay in L1
constexpr int64_t GATHER_ROWS = 512; // of that many rows at most
constexpr int64_t OPERAND = 1 << 19; // bytes of w in use at a time: half an L2

// The longest row of a matrix in compressed rows.
static int64_t longest(const std::vector<int32_t> &indptr) {
    int32_t most = 0;
    for (size_t r = 1; r < indptr.size(); ++r)
        most = std::max(most, indptr[r] - indptr[r - 1]);
    return most;
}

// The rows of part p, such that all parts hold about as many entries.
static int64_t first_row(const std::vector<int32_t> &indptr, int64_t p, int64_t parts) {
    if (p == parts)
        return int64_t(indptr.size()) - 1;
    return std::lower_bound(indptr.begin(), indptr.end() - 1, indptr.back() * p / parts) - indptr.begin();
}

// Writes the elements whose bit is set next to each other; may write, behind them, as many as there are bits.
static inline void compress(uint32_t bits, const int32_t *from, int32_t *to) {
#ifdef __AVX512F__
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(__mmask16(bits), _mm512_loadu_si512(from)));
#else
    for (int i = 0, n = 0; i < 16; n += bits >> i++ & 1)
        to[n] = from[i];
#endif
}
static inline void compress(uint32_t bits, const uint16_t *from, int32_t *to) {
#ifdef __AVX512F__
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(
        0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from))); // GCC warns of the form without a mask
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(__mmask16(bits), wide));
#else
    for (int i = 0, n = 0; i < 16; n += bits >> i++ & 1)
        to[n] = from[i];
#endif
}
static inline void compress(uint32_t bits, const float *from, float *to) {
#ifdef __AVX512F__
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(__mmask16(bits), _mm512_loadu_ps(from)));
#else
    for (int i = 0, n = 0; i < 16; n += bits >> i++ & 1)
        to[n] = from[i];
#endif
}
static inline void compress(uint32_t bits, const double *from, double *to) {
#ifdef __AVX512F__
    const __mmask8 low = __mmask8(bits), high = __mmask8(bits >> 8);
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(low, _mm512_loadu_pd(from)));
    _mm512_storeu_pd(to + __builtin_popcount(low), _mm512_maskz_compress_pd(high, _mm512_loadu_pd(from + 8)));
#else
    for (int i = 0, n = 0; i < 16; n += bits >> i++ & 1)
        to[n] = from[i];
#endif
}

// sum_e value[e] x[index[e], :], or without values sum_e x[index[e], :], for V vectors of columns. Even and odd entries
// are added up apart: one sum alone would wait for its own additions.
template <int V, bool VALUES, typename T>
static inline void gather_sum(const int32_t *index, const T *value, int64_t count, const T *x, int64_t stride,
                              Vector<T> (&sum)[2]) {
    Vector<T> even[2] = {}, odd[2] = {};
    auto add = [&](int64_t e, Vector<T> (&to)[2]) {
        const T *from = x + index[e] * stride;
        for (int v = 0; v < V; ++v) {
            const Vector<T> row = load(from + v * LANES<T>);
            to[v] += VALUES ? value[e] * row : row;
        }
    };
    int64_t e = 0;
    for (; e + 2 <= count; e += 2) {
        add(e, even);
        add(e + 1, odd);
    }
    if (e < count)
        add(e, even);
    for (int v = 0; v < 2; ++v)
        sum[v] = even[v] + odd[v];
}

// A matrix (rows, J) whose columns are cut into panels of two vectors, the last of one or two, zeros behind the last column.
template <typename T> struct Panels {
    const T *data;
    int64_t rows, J, row_stride; // row_stride: of the original, or 0 of a copy, panel by panel

    int64_t size() const { return rows * ((J + LANES<T> - 1) / LANES<T> * LANES<T>); } // of a copy
    int64_t width(int64_t c) const { return J - c > LANES<T> ? 2 * LANES<T> : LANES<T>; }
    const T *panel(int64_t c) const { return data + (row_stride ? c : c * rows); }
    int64_t stride(int64_t c) const { return row_stride ? row_stride : width(c); }
};

// The kept entries of a row or column of X; values are null where X is compact.
template <typename T> struct Kept {
    const int32_t *index;
    const T *value;
    int64_t count;

    // Their sum with the columns c and following of x.
    void sum(const Panels<T> &x, int64_t c, Vector<T> (&sum)[2]) const {
        const T *panel = x.panel(c);
        const int64_t stride = x.stride(c);
        if (x.J - c > LANES<T>)
            value ? gather_sum<2, true>(index, value, count, panel, stride, sum)
                  : gather_sum<2, false>(index, value, count, panel, stride, sum);
        else
            value ? gather_sum<1, true>(index, value, count, panel, stride, sum)
                  : gather_sum<1, false>(index, value, count, panel, stride, sum);
    }
};

// A copy in panels of `drop(x)`, rows multiplied by factor and, if there are any, factors[n]. The sums over the rows,
// before they are multiplied, go to `sums` if that is not null: in blocks of rows, in order.
template <typename T>
static Panels<T> copy_panels(const T *x, int64_t rows, int64_t J, T factor, const T *factors, Dropping<T> drop, T *sums,
                             T *to) {
    constexpr int64_t L = LANES<T>, BLOCK = 96;
    const Panels<T> panels{to, rows, J, 0};
    for (int64_t c = 0; c < J; c += 2 * L) {
        const int64_t width = panels.width(c);
        Vector<T> total[2] = {};
        for (int64_t first = 0; first < rows; first += BLOCK) {
            Vector<T> sum[2] = {};
            for (int64_t n = first; n < std::min(rows, first + BLOCK); ++n)
                for (int64_t v = 0; v < width; v += L) {
                    const int64_t count = std::min(L, J - c - v);
                    const Vector<T> y = drop.apply(load_part(x + n * J + c + v, count), n * J + c + v, count);
                    sum[v / L] += y;
                    store(to + c * rows + n * width + v, (factors ? factor * factors[n] : factor) * y);
                }
            for (int v = 0; v < 2; ++v)
                total[v] += sum[v];
        }
        if (sums)
            for (int64_t v = 0; v < width; v += L)
                store_part(sums + c + v, total[v / L], std::min(L, J - c - v));
    }
    return panels;
}

// W elements from `from` on of which only the first `left` may be there: zeros stand in for the rest.
template <typename T, int W> struct Whole {
    const T *data;
    T copy[W];

    Whole(const T *from, int64_t left) : data(from) {
        if (left < W && from) {
            std::fill(std::copy(from, from + left, copy), copy + W, T(0));
            data = copy;
        }
    }
    Whole(const Whole &) = delete;
};

// Gathers the entries that are kept of some rows of a matrix in compressed rows.
template <typename T> struct KeptRows {
    const int32_t *indptr;
    int64_t nnz;
    const T *own; // the matrix's values, null where X is compact
    int32_t *index;
    T *value;
    int64_t *start; // where the entries of each row start
    const T *values = nullptr;

    KeptRows(const std::vector<int32_t> &indptr, const T *own, Scratch &scratch)
        : indptr(indptr.data()), nnz(indptr.back()), own(own) {
        const int64_t room = capacity(indptr);
        index = scratch.take<int32_t>(room);
        value = own ? scratch.take<T>(room) : nullptr;
        start = scratch.take<int64_t>(GATHER_ROWS + 1);
    }
    static int64_t capacity(const std::vector<int32_t> &indptr) { return std::max(GATHER, longest(indptr)) + 64; }
    static size_t bytes(const std::vector<int32_t> &indptr) {
        return capacity(indptr) * (4 + sizeof(T)) + GATHER_ROWS * 8 + 256;
    }

    // The first row after `first` that does not fit any more.
    int64_t end(int64_t first, int64_t end) const {
        int64_t last = first + 1;
        while (last < end && last - first < GATHER_ROWS && indptr[last + 1] - indptr[first] <= GATHER)
            ++last;
        return last;
    }

    Kept<T> row(int64_t n) const { // counted from the first
        return {index + start[n], values ? values + start[n] : nullptr, start[n + 1] - start[n]};
    }

    template <typename Index> void gather_all(const Index *indices, int64_t first, int64_t last) {
        const int64_t begin = indptr[first], end = indptr[last];
        for (int64_t n = first; n <= last; ++n)
            start[n - first] = indptr[n] - begin;
        for (int64_t e = begin; e < end; ++e)
            index[e - begin] = indices[e];
        values = own ? own + begin : nullptr;
    }

    // Bit i of bits(e): whether entry e + i stays, for 32 of them.
    template <typename Index, typename Bits>
    void gather(const Index *indices, int64_t first, int64_t last, Bits &&bits_of) {
        const int64_t begin = indptr[first], end = indptr[last];
        int64_t kept = 0, n = first;
        for (int64_t e = begin / 32 * 32; e < end; e += 32) {
            uint32_t bits = bits_of(e);
            if (e < begin)
                bits &= ~uint32_t(0) << (begin - e);
            if (end - e < 32)
                bits &= (uint32_t(1) << (end - e)) - 1;
            for (; n <= last && indptr[n] < e + 32; ++n)
                start[n - first] = kept + __builtin_popcount(bits & ((uint32_t(1) << (indptr[n] - e)) - 1));
            const Whole<Index, 32> i(indices + e, nnz - e);
            const Whole<T, 32> v(value ? own + e : nullptr, nnz - e);
            for (int half = 0; half < 32; half += 16) {
                compress(bits >> half, i.data + half, index + kept);
                if (value)
                    compress(bits >> half, v.data + half, value + kept);
                kept += __builtin_popcount(bits >> half & 0xFFFF);
            }
        }
        for (; n <= last; ++n)
            start[n - first] = kept;
        values = value;
    }
};

// Writes two vectors of a row of J numbers from column c on, as far as they go.
template <typename T> static inline void store_columns(T *row, int64_t c, int64_t J, const Vector<T> (&sum)[2]) {
    constexpr int64_t L = LANES<T>;
    store_part(row + c, sum[0], std::min(L, J - c));
    if (J - c > L)
        store_part(row + c + L, sum[1], std::min(L, J - c - L));
}
template <typename T> static inline void load_columns(const T *row, int64_t c, int64_t J, Vector<T> (&x)[2]) {
    constexpr int64_t L = LANES<T>;
    x[0] = load_part(row + c, std::min(L, J - c));
    if (J - c > L)
        x[1] = load_part(row + c + L, std::min(L, J - c - L));
}

// Rows that will be gathered in an order that the processor cannot foresee.
template <typename T> static inline void fetch(const Panels<T> &x, int64_t c) {
    for (int64_t r = 0; r < x.rows; ++r)
        for (int64_t v = 0; v < x.width(c); v += 64 / sizeof(T))
            __builtin_prefetch(x.panel(c) + r * x.stride(c) + v, 0, 2);
}

// out[b] = dropped(dropped(X) w[b] + 1 bias[b]^T)
template <typename T>
static void sparse_matmul(const Csr<T> &X, const T *w, const T *bias, Drop x_drop, Drop drop, T *out, int64_t B,
                          int64_t J, int threads) {
    constexpr int64_t L = LANES<T>;
    const int64_t cuts = parts(B, threads);
    const int64_t group = std::max<int64_t>(1, OPERAND / int64_t((X.cols + 1) * 2 * L * sizeof(T))) * 2 * L;
    parallel_for(B * cuts, threads, [&](int64_t task) {
        const int64_t b = task / cuts, begin = first_row(X.indptr, task % cuts, cuts);
        const int64_t end = first_row(X.indptr, task % cuts + 1, cuts), entries = X.indptr[end] - X.indptr[begin];
        const Mask mask(x_drop ? x_drop.keys[b] : 0, x_drop ? x_drop.thresholds[b] : 0);
        const auto bits = [&](int64_t e) { return mask.block(e / 32); };
        const T scale = x_drop.scale<T>(b);
        Dropping<T> dropping(drop, b);
        Scratch scratch(KeptRows<T>::bytes(X.indptr) + (X.cols * (J + L) + L) * sizeof(T));
        KeptRows<T> kept(X.indptr, X.compact ? nullptr : X.values.data(), scratch);
        // panels are read faster than long rows, but have to be made
        Panels<T> panels{w + b * X.cols * J, X.cols, J, J};
        if (J % L || (J > 2 * L && entries > 64 * X.cols))
            panels = copy_panels<T>(panels.data, X.cols, J, 1, nullptr, {{}, 0}, nullptr, scratch.take<T>(panels.size()));
        for (int64_t columns = 0; columns < J; columns += group) {
            if (panels.row_stride && entries > X.cols)
                for (int64_t c = columns; c < std::min(J, columns + group); c += 2 * L)
                    fetch(panels, c);
            for (int64_t first = begin, last; first < end; first = last) {
                last = kept.end(first, end);
                if (X.compact)
                    x_drop ? kept.gather(X.narrow.data(), first, last, bits)
                           : kept.gather_all(X.narrow.data(), first, last);
                else
                    x_drop ? kept.gather(X.indices.data(), first, last, bits)
                           : kept.gather_all(X.indices.data(), first, last);
                for (int64_t c = columns; c < std::min(J, columns + group); c += 2 * L) {
                    Vector<T> sum[2], add[2] = {};
                    if (bias)
                        load_columns(bias + b * J, c, J, add);
                    for (int64_t n = first; n < last; ++n) {
                        kept.row(n - first).sum(panels, c, sum);
                        const T factor = X.compact ? scale * X.row_values[n] : scale;
                        for (int v = 0; v < 2; ++v)
                            if (const int64_t at = c + v * L; at < J)
                                sum[v] = dropping.apply(factor * sum[v] + add[v], n * J + at, std::min(L, J - at));
                        store_columns(out + (b * X.rows + n) * J, c, J, sum);
                    }
                }
            }
        }
    });
}

// out[b] = dropped(X)^T y[b] and sums[b] = 1^T y[b] for y = dropped(dy). A column of X finds its mask again from the
// counter: the transpose knows at which entry of X each of its own stands. A band of rows of y at a time stays in the
// cache.
template <typename T>
static void sparse_matmul_t(const Csr<T> &X, const T *dy, Drop x_drop, Drop drop, T *out, T *sums, int64_t B, int64_t J,
                            int threads) {
    constexpr int64_t L = LANES<T>;
    const int64_t cuts = parts(B, threads), nnz = X.indptr[X.rows];
    parallel_for(B * cuts, threads, [&](int64_t task) {
        const int64_t b = task / cuts, cut = task % cuts;
        const Mask mask(x_drop ? x_drop.keys[b] : 0, x_drop ? x_drop.thresholds[b] : 0);
        const auto bits = [&](int64_t e) {
            const Whole<int32_t, 32> entries(X.t_entry.data() + e, nnz - e);
            return mask.sixteen(entries.data) | mask.sixteen(entries.data + 16) << 16;
        };
        Panels<T> panels{dy + b * X.rows * J, X.rows, J, J};
        Scratch scratch(KeptRows<T>::bytes(X.t_indptr) + (panels.size() + L) * sizeof(T));
        KeptRows<T> kept(X.t_indptr, X.compact ? nullptr : X.t_values.data(), scratch);
        panels = copy_panels<T>(panels.data, X.rows, J, x_drop.scale<T>(b), X.compact ? X.row_values.data() : nullptr,
                                {drop, b}, sums && cut == 0 ? sums + b * J : nullptr, scratch.take<T>(panels.size()));
        for (int64_t band = 0; band < X.bands(); ++band)
            for (int64_t c = 0; c < J; c += 2 * L) {
                const int64_t at = band * X.cols, end = at + X.cols * (cut + 1) / cuts;
                for (int64_t first = at + X.cols * cut / cuts, last; first < end; first = last) {
                    last = kept.end(first, end);
                    x_drop ? kept.gather(X.t_indices.data(), first, last, bits)
                           : kept.gather_all(X.t_indices.data(), first, last);
                    for (int64_t i = first; i < last; ++i) {
                        Vector<T> sum[2], before[2] = {};
                        T *result = out + (b * X.cols + i - at) * J;
                        kept.row(i - first).sum(panels, c, sum);
                        if (band > 0)
                            load_columns(result, c, J, before);
                        for (int v = 0; v < 2; ++v)
                            sum[v] += before[v];
                        store_columns(result, c, J, sum);
                    }
                }
            }
    });
}

void register_features(Kernels<float> &f, Kernels<double> &d) {
    f.sparse_matmul = sparse_matmul<float>;
    d.sparse_matmul = sparse_matmul<double>;
    f.sparse_matmul_t = sparse_matmul_t<float>;
    d.sparse_matmul_t = sparse_matmul_t<double>;
}

} // namespace codesgc::CODESGC_ISA
