#include "sweep.h"

namespace codesgc::CODESGC_ISA {
namespace {

constexpr int WIDEST = REGISTERS / 5; // vectors of a product's row that are kept in registers, for several rows at once

// to[r] <- rows[r] a for P vectors of columns: rows of length I, a (I, stride), to (count, stride). M rows share the
// loads of a; rows[] is readable, and `to` writable, up to a multiple of M.
template <typename T, int P, int M>
void multiply(const T *const *rows, int64_t count, int64_t I, const T *a, int64_t stride, T *to) {
    for (int64_t r = 0; r < count; r += M) {
        Row<T, P> sum[M]{};
        for (int64_t i = 0; i < I; ++i) {
            const Row<T, P> from = Row<T, P>::load(a + i * stride);
#pragma GCC unroll 8
            for (int m = 0; m < M; ++m)
                sum[m] += rows[r + m][i] * from;
        }
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m)
            sum[m].store(to + (r + m) * stride);
    }
}

template <typename T, int P = WIDEST>
void multiply_all(const T *const *rows, int64_t count, int64_t I, const T *a, int64_t vectors, int64_t stride, T *to) {
    constexpr int64_t L = LANES<T>;
    for (; vectors >= P; vectors -= P, a += P * L, to += P * L)
        multiply<T, P, (16 * P > REGISTERS ? 4 : 8)>(rows, count, I, a, stride, to);
    if constexpr (P > 1)
        multiply_all<T, P - 1>(rows, count, I, a, vectors, stride, to);
}

template <typename T> struct Synthesis {
    const Csr<T> &S;
    const T *x, *a;
    T *out;
    int64_t Q, I, J, K;
    int64_t si, sj; // strides of a along I and J

    static constexpr int64_t L = LANES<T>, ROWS = 32;

    // U_k = x A_k for the columns of a piece and all k, in one pass over x, into terms[k] (N, W). The rows (n, q) of x
    // times the matrix whose columns are the pairs (k, j), in blocks of rows.
    void form(const Piece &p, int64_t W, T *terms, Scratch &scratch) const {
        const int64_t N = S.rows, nj = std::min(p.count, J), nq = p.count / nj, q0 = p.first / J, j0 = p.first % J;
        const int64_t vectors = ((K + 1) * nj + L - 1) / L, stride = vectors * L;
        T *matrix = scratch.take<T>(I * stride), *product = scratch.take<T>((ROWS + 8) * stride + L);
        std::fill(matrix, matrix + I * stride, T(0));
        for (int64_t k = 0; k <= K; ++k)
            for (int64_t i = 0; i < I; ++i)
                for (int64_t j = 0; j < nj; ++j)
                    matrix[i * stride + k * nj + j] = a[(p.b * (K + 1) + k) * I * J + i * si + (j0 + j) * sj];

        const int64_t nodes = std::max<int64_t>(1, ROWS / nq);
        for (int64_t first = 0; first < N; first += nodes) {
            const int64_t last = std::min(N, first + nodes), count = (last - first) * nq;
            const T *rows[ROWS + 8];
            for (int64_t n = first, r = 0; n < last; ++n)
                for (int64_t q = 0; q < nq; ++q, ++r)
                    rows[r] = x + ((p.b * N + S.order[n]) * Q + q0 + q) * I;
            for (int64_t r = count; r < count + 8; ++r)
                rows[r] = rows[count - 1];
            for (int64_t n = last; n < std::min(N, last + nodes); ++n) // of the next block
                for (int64_t c = 0; c < nq * I; c += L)
                    __builtin_prefetch(x + ((p.b * N + S.order[n]) * Q + q0) * I + c);
            multiply_all<T>(rows, count, I, matrix, vectors, stride, product);
            for (int64_t n = first; n < last; ++n) {
                const T *from = product + (n - first) * nq * stride;
                T *to = terms + n * W + p.at;
                nj == 1 ? turn(from, stride, nq, to, N * W) : deal(from, stride, nq, nj, to, N * W);
            }
        }
    }

    // from[q][k j] to to[k][q j], J = 1 by transposing
    void turn(const T *from, int64_t stride, int64_t nq, T *to, int64_t size) const {
        for (int64_t k0 = 0; k0 <= K; k0 += L) {
            Vector<T> r[L];
#pragma GCC unroll 16
            for (int64_t q = 0; q < L; ++q)
                r[q] = load(from + std::min(q, nq - 1) * stride + k0);
            transpose<T>(r);
#pragma GCC unroll 16
            for (int64_t k = 0; k < L; ++k)
                if (k0 + k <= K)
                    store_part(to + (k0 + k) * size, r[k], nq);
        }
    }

    void deal(const T *from, int64_t stride, int64_t nq, int64_t nj, T *to, int64_t size) const {
        for (int64_t q = 0; q < nq; ++q)
            for (int64_t k = 0; k <= K; ++k)
                store_part(to + k * size + q * nj, load(from + q * stride + k * nj), nj);
    }

    template <int V> void run(const Piece *begin, const Piece *end) const {
        constexpr int64_t W = V * L;
        const int64_t size = S.rows * W, widest = ((K + 1) * std::min(J, L) + L - 1) / L * L;
        const size_t own = Scratch::rounded(I * widest * sizeof(T)) +
                           Scratch::rounded(((ROWS + 8) * widest + L) * sizeof(T));
        Scratch scratch(Scratch::rounded((K + 1) * size * sizeof(T)) + (end - begin) * own);
        T *terms = scratch.take<T>((K + 1) * size);
        if (end[-1].at + end[-1].count < W)
            std::fill(terms, terms + (K + 1) * size, T(0));
        for (const Piece *p = begin; p < end; ++p)
            form(*p, W, terms, scratch);
        sum_terms<V>(S, terms, K);
        unpack(S, begin, end, V * LANES<T>, terms, out, Q * J);
    }
};

template <typename T>
void synthesise(const Csr<T> &S, const T *x, const T *a, T *out, int64_t B, int64_t Q, int64_t I, int64_t J, int64_t K,
                bool transposed, int threads) {
    const Synthesis<T> synthesis{S, x, a, out, Q, I, J, K, transposed ? 1 : J, transposed ? I : 1};
    threads = useful_threads(S, B * Q * std::max(I, J), K, threads);
    const Plan plan = plan_tiles_for<T>(threads, S.rows, K + 1, B, Q, J);
    parallel_for(int64_t(plan.tiles.size()), threads, [&](int64_t t) {
        const Tile &tile = plan.tiles[t];
        const Piece *p = plan.pieces.data();
        tile.lines == 2 ? synthesis.template run<2 * LINE_VECTORS>(p + tile.begin, p + tile.end)
                          : synthesis.template run<LINE_VECTORS>(p + tile.begin, p + tile.end);
    });
}

} // namespace

void register_synthesise(Kernels<float> &f, Kernels<double> &d) {
    f.synthesise = synthesise<float>;
    d.synthesise = synthesise<double>;
}

} // namespace codesgc::CODESGC_ISA
