#include "sweep.h"

#include <memory>

namespace codesgc::CODESGC_ISA {
namespace {

constexpr int TERMS = REGISTERS * 3 / 8; // rows of A_k and of its gradient that are kept in registers

// For TERMS of the pairs p = (k, i) and one vector of the J columns, over a block of rows (n, q):
//     sum[r] += sum_p t[r, p] a[p],   da[p] += sum_r t[r, p] y[r]       summed in T over the block, in double beyond
template <typename T, bool SUM, bool DOT>
void multiply_add(int64_t count, const T *t, int64_t stride, const T *const *y, T *const *sum, int64_t column,
                  int64_t width, bool fresh, const T *a, double *da, int64_t J) {
    Vector<T> factor[TERMS], dot[TERMS];
#pragma GCC unroll 12
    for (int p = 0; p < TERMS; ++p) {
        factor[p] = SUM ? load(a + p * J) : Vector<T>{};
        dot[p] = Vector<T>{};
    }
    for (int64_t r = 0; r < count; ++r, t += stride) {
        Vector<T> row{}, even{}, odd{};
        if (DOT)
            row = load_part(y[r] + column, width);
        if (SUM && !fresh)
            even = load_part(sum[r] + column, width);
#pragma GCC unroll 12
        for (int p = 0; p < TERMS; ++p) {
            if (SUM)
                (p % 2 ? odd : even) += t[p] * factor[p];
            if (DOT)
                dot[p] += t[p] * row;
        }
        if (SUM)
            store_part(sum[r] + column, even + odd, width);
    }
    if (DOT)
#pragma GCC unroll 12
        for (int p = 0; p < TERMS; ++p)
            add_to(da + p * J, dot[p]);
}

template <typename T> struct Analysis {
    const Csr<T> &S;
    const T *v, *y, *a;
    T *sum;
    int64_t Q, I, J, K;
    int64_t si, sj; // strides of a and da along I and J

    static constexpr int64_t L = LANES<T>, ROWS = 64;

    // Sizes of a piece's arrays: pairs (k, i) and columns J, in whole steps of multiply_add.
    int64_t pairs() const { return ((K + 1) * std::min(I, L) + TERMS - 1) / TERMS * TERMS; }
    int64_t columns() const { return (J + L - 1) / L * L; }
    int64_t stride() const { return (pairs() + L - 1) / L * L + L; }

    // What a piece adds to sum and to da, in one pass over both, once its terms T_k(S) v are there.
    template <bool SUM, bool DOT>
    void gather(const Piece &p, int64_t W, const T *terms, T *matrix, T *block, double *da) const {
        const int64_t N = S.rows, ni = std::min(p.count, I), nq = p.count / ni, q0 = p.first / I, i0 = p.first % I;
        const int64_t P = (K + 1) * ni, width = columns(), step = stride();
        std::fill(matrix, matrix + pairs() * width, T(0));
        std::fill(block, block + ROWS * step, T(0));
        if (SUM)
            for (int64_t k = 0; k <= K; ++k)
                for (int64_t i = 0; i < ni; ++i)
                    for (int64_t j = 0; j < J; ++j)
                        matrix[(k * ni + i) * width + j] = a[(p.b * (K + 1) + k) * I * J + (i0 + i) * si + j * sj];

        const int64_t nodes = std::max<int64_t>(1, ROWS / nq);
        for (int64_t first = 0; first < N; first += nodes) {
            const int64_t last = std::min(N, first + nodes), count = (last - first) * nq;
            const T *from[ROWS];
            T *to[ROWS];
            for (int64_t n = first, r = 0; n < last; ++n)
                for (int64_t q = 0; q < nq; ++q, ++r) {
                    const int64_t at = ((p.b * N + S.order[n]) * Q + q0 + q) * J;
                    from[r] = DOT ? y + at : nullptr;
                    to[r] = SUM ? sum + at : nullptr;
                }
            for (int64_t n = last; n < std::min(N, last + nodes); ++n) { // of the next block
                const int64_t at = ((p.b * N + S.order[n]) * Q + q0) * J;
                for (int64_t c = 0; c < nq * J; c += L) {
                    if (DOT)
                        __builtin_prefetch(y + at + c);
                    if (SUM)
                        __builtin_prefetch(sum + at + c, 1);
                }
            }
            for (int64_t n = first; n < last; ++n) {
                T *rows = block + (n - first) * nq * step;
                const T *term = terms + n * W + p.at;
                ni == 1 ? turn(term, N * W, nq, rows, step) : deal(term, N * W, nq, ni, rows, step);
            }
            for (int64_t c = 0; c < J; c += L)
                for (int64_t at = 0; at < P; at += TERMS)
                    multiply_add<T, SUM, DOT>(count, block + at, step, from, to, c, std::min(L, J - c),
                                              at == 0 && i0 == 0, matrix + at * width + c, da + at * width + c, width);
        }
    }

    // from[k][q i] to to[q][k i], I = 1 by transposing
    void turn(const T *from, int64_t size, int64_t nq, T *to, int64_t step) const {
        for (int64_t k0 = 0; k0 <= K; k0 += L) {
            Vector<T> r[L];
#pragma GCC unroll 16
            for (int64_t k = 0; k < L; ++k)
                r[k] = k0 + k <= K ? load_part(from + (k0 + k) * size, nq) : Vector<T>{};
            transpose<T>(r);
#pragma GCC unroll 16
            for (int64_t q = 0; q < L; ++q)
                if (q < nq)
                    store(to + q * step + k0, r[q]);
        }
    }

    void deal(const T *from, int64_t size, int64_t nq, int64_t ni, T *to, int64_t step) const {
        for (int64_t q = 0; q < nq; ++q)
            for (int64_t k = 0; k <= K; ++k)
                store_part(to + q * step + k * ni, load_part(from + k * size + q * ni, ni), ni);
    }

    template <int V> void run(const Piece *begin, const Piece *end, double *da) const {
        const int64_t size = S.rows * V * L, matrix_size = pairs() * columns(), block_size = ROWS * stride();
        Scratch scratch(Scratch::rounded((K + 1) * size * sizeof(T)) + Scratch::rounded(matrix_size * sizeof(T)) +
                        Scratch::rounded(block_size * sizeof(T)));
        T *terms = scratch.take<T>((K + 1) * size), *matrix = scratch.take<T>(matrix_size),
          *block = scratch.take<T>(block_size);
        pack(S, begin, end, V * LANES<T>, v, Q * I, terms);
        fill_terms<V>(S, terms, K);
        for (const Piece *p = begin; p < end; ++p) {
            if (sum && da)
                gather<true, true>(*p, V * L, terms, matrix, block, da);
            else if (sum)
                gather<true, false>(*p, V * L, terms, matrix, block, da);
            else
                gather<false, true>(*p, V * L, terms, matrix, block, da);
            da += da ? matrix_size : 0;
        }
    }

    // da of a replicate from its pieces' parts, in their order.
    void add_parts(const Piece *begin, const Piece *end, const double *parts, T *da) const {
        const int64_t width = columns(), size = (K + 1) * I * J;
        Scratch scratch(Scratch::rounded(size * sizeof(double)));
        double *total = scratch.take<double>(size);
        std::fill(total, total + size, 0.0);
        for (const Piece *p = begin; p < end; ++p, parts += pairs() * width) {
            const int64_t ni = std::min(p->count, I), i0 = p->first % I;
            for (int64_t k = 0; k <= K; ++k)
                for (int64_t i = 0; i < ni; ++i)
                    for (int64_t j = 0; j < J; ++j)
                        total[k * I * J + (i0 + i) * si + j * sj] += parts[(k * ni + i) * width + j];
        }
        for (int64_t at = 0; at < size; ++at)
            da[at] = T(total[at]);
    }
};

template <typename T>
void analyse(const Csr<T> &S, const T *v, const T *y, const T *a, T *sum, T *da, int64_t B, int64_t Q, int64_t I,
             int64_t J, int64_t K, bool transposed, int threads) {
    if ((!sum && !da) || B * Q * I * J == 0)
        return;
    const Analysis<T> analysis{S, v, y, a, sum, Q, I, J, K, transposed ? 1 : J, transposed ? I : 1};
    threads = useful_threads(S, B * Q * std::max(I, J), K, threads);
    // Pieces of one group of I columns add to the same rows of sum: then one thread works on a replicate, in order.
    const bool apart = sum && I > LANES<T>;
    const Plan plan = plan_tiles_for<T>(threads, S.rows, K + 1, B, Q, I, apart);
    const int64_t units = apart ? B : int64_t(plan.tiles.size()), tiles = int64_t(plan.tiles.size()) / units;
    const int64_t part = analysis.pairs() * analysis.columns(), pieces = int64_t(plan.pieces.size()) / B;
    std::unique_ptr<double[]> parts(da ? new double[B * pieces * part]() : nullptr);
    const Piece *p = plan.pieces.data();
    parallel_for(units, threads, [&](int64_t unit) {
        for (int64_t t = unit * tiles; t < (unit + 1) * tiles; ++t) {
            const Tile &tile = plan.tiles[t];
            double *own = da ? parts.get() + tile.begin * part : nullptr;
            tile.lines == 2 ? analysis.template run<2 * LINE_VECTORS>(p + tile.begin, p + tile.end, own)
                              : analysis.template run<LINE_VECTORS>(p + tile.begin, p + tile.end, own);
        }
    });
    if (da)
        for (int64_t b = 0; b < B; ++b)
            analysis.add_parts(p + b * pieces, p + (b + 1) * pieces, parts.get() + b * pieces * part,
                               da + b * (K + 1) * I * J);
}

} // namespace

void register_analyse(Kernels<float> &f, Kernels<double> &d) {
    f.analyse = analyse<float>;
    d.analyse = analyse<double>;
}

} // namespace codesgc::CODESGC_ISA
