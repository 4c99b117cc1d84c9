// Products with sparse features X (N, I), some of whose entries are dropped: a mask keeps about half of them or fewer, so
// the kept ones are first gathered, 32 at a time, and the products run over nothing else. All columns of the result are
// worked on in panels of two vectors.
#include "isa.h"
#include "mask.h"

namespace codesgc::CODESGC_ISA {

constexpr int64_t GATHER = 4096;     // entries gathered before they are used: they stay in L1
constexpr int64_t GATHER_ROWS = 512; // of that many rows at most
constexpr int64_t OPERAND = 1 << 19; // bytes of y in use at a time: half an L2

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

// Gathers the entries that are kept of some rows; without a mask, all.
template <typename T> struct KeptRows {
    int32_t *index;
    T *value;       // null where X is compact
    int64_t *start; // where the entries of each row start
    const T *values;

    KeptRows(const Csr<T> &X, Scratch &scratch) {
        const int64_t room = capacity(X);
        index = scratch.take<int32_t>(room);
        value = X.compact ? nullptr : scratch.take<T>(room);
        start = scratch.take<int64_t>(GATHER_ROWS + 1);
    }
    static int64_t capacity(const Csr<T> &X) { return std::max(GATHER, longest(X.indptr)) + 64; }
    static size_t bytes(const Csr<T> &X) { return capacity(X) * (4 + sizeof(T)) + GATHER_ROWS * 8 + 256; }

    // The first row after `first` that does not fit any more.
    static int64_t end(const Csr<T> &X, int64_t first, int64_t end) {
        int64_t last = first + 1;
        while (last < end && last - first < GATHER_ROWS && X.indptr[last + 1] - X.indptr[first] <= GATHER)
            ++last;
        return last;
    }

    Kept<T> row(int64_t n) const { // counted from the first
        return {index + start[n], values ? values + start[n] : nullptr, start[n + 1] - start[n]};
    }

    template <typename Index>
    void gather(const Csr<T> &X, const Index *indices, int64_t first, int64_t last, const Mask *mask) {
        const int64_t begin = X.indptr[first], end = X.indptr[last], nnz = X.indptr[X.rows];
        values = value;
        if (!mask) {
            for (int64_t n = first; n <= last; ++n)
                start[n - first] = X.indptr[n] - begin;
            for (int64_t e = begin; e < end; ++e)
                index[e - begin] = indices[e];
            if (value)
                values = X.values.data() + begin;
            return;
        }
        int64_t kept = 0, n = first;
        for (int64_t e = begin / 32 * 32; e < end; e += 32) {
            uint32_t bits = mask->block(e / 32);
            if (e < begin)
                bits &= ~uint32_t(0) << (begin - e);
            if (end - e < 32)
                bits &= (uint32_t(1) << (end - e)) - 1;
            for (; n <= last && X.indptr[n] < e + 32; ++n)
                start[n - first] = kept + __builtin_popcount(bits & ((uint32_t(1) << (X.indptr[n] - e)) - 1));
            const Whole<Index, 32> i(indices + e, nnz - e);
            const Whole<T, 32> v(value ? X.values.data() + e : nullptr, nnz - e);
            for (int half = 0; half < 32; half += 16) {
                compress(bits >> half, i.data + half, index + kept);
                if (value)
                    compress(bits >> half, v.data + half, value + kept);
                kept += __builtin_popcount(bits >> half & 0xFFFF);
            }
        }
        for (; n <= last; ++n)
            start[n - first] = kept;
    }
};

// Gathers the entries that are kept of a column, among those from `from` to to - 1 of the transpose; without a mask, all.
template <typename T> struct KeptColumn {
    int32_t *index;
    T *value; // null where X is compact

    KeptColumn(const Csr<T> &X, Scratch &scratch) {
        const int64_t room = longest(X.t_indptr) + 32;
        index = scratch.take<int32_t>(room);
        value = X.compact ? nullptr : scratch.take<T>(room);
    }
    static size_t bytes(const Csr<T> &X) { return (longest(X.t_indptr) + 32) * (4 + sizeof(T)) + 128; }

    Kept<T> gather(const Csr<T> &X, int64_t from, int64_t to, const Mask *mask) const {
        const int32_t *indices = X.t_indices.data();
        const T *values = X.compact ? nullptr : X.t_values.data();
        if (!mask)
            return {indices + from, values ? values + from : nullptr, to - from};
        int64_t kept = 0;
        for (int64_t e = from; e < to; e += 16) {
            const int64_t left = X.indptr[X.rows] - e;
            uint32_t bits = mask->sixteen(Whole<int32_t, 16>(X.t_entry.data() + e, left).data);
            if (to - e < 16)
                bits &= (uint32_t(1) << (to - e)) - 1;
            compress(bits, Whole<int32_t, 16>(indices + e, left).data, index + kept);
            if (value)
                compress(bits, Whole<T, 16>(values + e, left).data, value + kept);
            kept += __builtin_popcount(bits);
        }
        return {index, value, kept};
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

// out[b] = dropped(dropped(X) w[b] + 1 bias[b]^T)
template <typename T>
static void sparse_matmul(const Csr<T> &X, const T *w, const T *bias, Drop x_drop, Drop drop, T *out, int64_t B,
                          int64_t J, int threads) {
    constexpr int64_t L = LANES<T>;
    const int64_t cuts = parts(B, threads);
    parallel_for(B * cuts, threads, [&](int64_t task) {
        const int64_t b = task / cuts, begin = first_row(X.indptr, task % cuts, cuts);
        const int64_t end = first_row(X.indptr, task % cuts + 1, cuts), entries = X.indptr[end] - X.indptr[begin];
        const Mask stream(x_drop ? x_drop.keys[b] : 0, x_drop ? x_drop.thresholds[b] : 0);
        const Mask *mask = x_drop ? &stream : nullptr;
        const T scale = x_drop.scale<T>(b);
        Dropping<T> dropping(drop, b);
        Scratch scratch(KeptRows<T>::bytes(X) + (X.cols * (J + L) + L) * sizeof(T));
        KeptRows<T> kept(X, scratch);
        // panels are read faster than long rows, but have to be made
        Panels<T> panels{w + b * X.cols * J, X.cols, J, J};
        if (J % L || (J > 2 * L && entries > 64 * X.cols))
            panels = copy_panels<T>(panels.data, X.cols, J, 1, nullptr, {{}, 0}, nullptr, scratch.take<T>(panels.size()));
        for (int64_t first = begin, last; first < end; first = last) {
            last = KeptRows<T>::end(X, first, end);
            if (X.compact)
                kept.gather(X, X.narrow.data(), first, last, mask);
            else
                kept.gather(X, X.indices.data(), first, last, mask);
            for (int64_t c = 0; c < J; c += 2 * L) {
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
    });
}

// out[b] = dropped(X)^T y[b] and sums[b] = 1^T y[b] for y = dropped(dy). A column of X finds its mask again from the counter: the transpose knows at which entry of
// X each of its own stands.
template <typename T>
static void sparse_matmul_t(const Csr<T> &X, const T *dy, Drop x_drop, Drop drop, T *out, T *sums, int64_t B, int64_t J,
                            int threads) {
    constexpr int64_t L = LANES<T>;
    const int64_t cuts = parts(B, threads), row_bytes = Panels<T>{nullptr, sizeof(T), J, 0}.size();
    const int64_t height = std::max<int64_t>(256, OPERAND / row_bytes); // of a block of rows of y
    parallel_for(B * cuts, threads, [&](int64_t task) {
        const int64_t b = task / cuts, begin = first_row(X.t_indptr, task % cuts, cuts);
        const int64_t end = first_row(X.t_indptr, task % cuts + 1, cuts);
        const Mask stream(x_drop ? x_drop.keys[b] : 0, x_drop ? x_drop.thresholds[b] : 0);
        const Mask *mask = x_drop ? &stream : nullptr;
        Panels<T> panels{dy + b * X.rows * J, X.rows, J, J};
        Scratch scratch(KeptColumn<T>::bytes(X) + (panels.size() + L) * sizeof(T));
        const KeptColumn<T> kept(X, scratch);
        panels = copy_panels<T>(panels.data, X.rows, J, x_drop.scale<T>(b), X.compact ? X.row_values.data() : nullptr,
                                {drop, b}, sums && task % cuts == 0 ? sums + b * J : nullptr,
                                scratch.take<T>(panels.size()));
        const int32_t *rows = X.t_indices.data();
        for (int64_t first = 0; first == 0 || first < X.rows; first += height)
            for (int64_t i = begin; i < end; ++i) {
                int64_t from = X.t_indptr[i], to = X.t_indptr[i + 1];
                if (first > 0)
                    from = std::lower_bound(rows + from, rows + to, int32_t(first)) - rows;
                if (first + height < X.rows)
                    to = std::lower_bound(rows + from, rows + to, int32_t(first + height)) - rows;
                const Kept<T> column = kept.gather(X, from, to, mask);
                T *result = out + (b * X.cols + i) * J;
                for (int64_t c = 0; c < J; c += 2 * L) {
                    Vector<T> sum[2], before[2] = {};
                    column.sum(panels, c, sum);
                    if (first > 0)
                        load_columns(result, c, J, before);
                    for (int v = 0; v < 2; ++v)
                        sum[v] += before[v];
                    store_columns(result, c, J, sum);
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
