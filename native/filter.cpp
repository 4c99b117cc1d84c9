#include "sweep.h"

namespace codesgc::CODESGC_ISA {
namespace {

// Terms are added to the sum in pairs, at every second step: T_0 and T_1 with the first, T_2 and T_3 with the third,
// ..., which halves the traffic; where K is even, T_K is added alone in the last.
enum Kind { FIRST, EVEN, ODD, LAST };

// One step T_{k+1} = 2 S T_k - T_{k-1} on a tile, written over `older` (in the FIRST, T_1 = S T_0, it is not read), with
//     sum += m_k T_k + m_{k+1} T_{k+1},   dot_k = <h, T_k>,   dot_{k+1} = <h, T_{k+1}>      for each column.
// Scalar products are summed in T over blocks of nodes, and over the blocks in double.
template <typename T, int V, Kind KIND, bool SUM, bool DOT>
void step(const Csr<T> &S, T *older, const T *newer, const T *m, T *sum, const T *h, double *dot) {
    constexpr int64_t W = V * LANES<T>, BLOCK = 64;
    constexpr bool PAIR = KIND == FIRST || KIND == ODD, ADDS = KIND != EVEN;
    using R = Row<T, V>;
    R m0{}, m1{};
    if constexpr (SUM && PAIR)
        m0 = R::load(m);
    if constexpr (SUM && ADDS)
        m1 = R::load(m + W);
    for (int64_t first = 0; first < S.rows; first += BLOCK) {
        R d0{}, d1{};
        for_rows<V>(S, newer, first, std::min(S.rows, first + BLOCK), [&](int64_t n, const R &s) {
            R t = s;
            if constexpr (KIND != FIRST)
                t = s + s - R::load(older + n * W);
            t.store(older + n * W);
            if constexpr (ADDS) {
                R u{}, total{};
                if constexpr (PAIR)
                    u = R::load(newer + n * W);
                if constexpr (SUM) {
                    if constexpr (KIND != FIRST)
                        total = R::load(sum + n * W);
                    if constexpr (PAIR)
                        total += m0 * u;
                    (total + m1 * t).store(sum + n * W);
                }
                if constexpr (DOT) {
                    const R g = R::load(h + n * W);
                    if constexpr (PAIR)
                        d0 += g * u;
                    d1 += g * t;
                }
            }
        });
        if constexpr (DOT && ADDS)
            for (int v = 0; v < V; ++v) {
                if constexpr (PAIR)
                    add_to(dot + v * LANES<T>, d0.v[v]);
                add_to(dot + W + v * LANES<T>, d1.v[v]);
            }
    }
}

template <typename T> struct Filter {
    const Csr<T> &S;
    const T *x, *h, *m;
    T *sum, *dm;
    int64_t C, K;
    Drop x_drop, sum_drop;

    template <int V> void run(const Piece *begin, const Piece *end) const {
        sum ? dm ? sweep<V, true, true>(begin, end) : sweep<V, true, false>(begin, end)
            : sweep<V, false, true>(begin, end);
    }

    template <int V, bool SUM, bool DOT> void sweep(const Piece *begin, const Piece *end) const {
        constexpr int64_t W = V * LANES<T>;
        const int64_t N = S.rows, size = N * W;
        Scratch scratch(4 * Scratch::rounded(size * sizeof(T)) + 2 * (K + 1) * W * sizeof(double));
        T *newer = scratch.take<T>(size), *older = scratch.take<T>(size), *total = scratch.take<T>(size),
          *g = scratch.take<T>(size), *mt = scratch.take<T>((K + 1) * W);
        double *dot = scratch.take<double>((K + 1) * W);
        pack(S, begin, end, V * LANES<T>, x, C, newer, x_drop);
        if (DOT)
            pack(S, begin, end, V * LANES<T>, h, C, g);
        std::fill(mt, mt + (K + 1) * W, T(0));
        std::fill(dot, dot + (K + 1) * W, 0.0);
        if (SUM)
            for (int64_t k = 0; k <= K; ++k)
                for (const Piece *p = begin; p < end; ++p)
                    for (int64_t c = 0; c < p->count; ++c)
                        mt[k * W + p->at + c] = m[(p->b * (K + 1) + k) * C + p->first + c];

        if (K == 0)
            order_zero<V, SUM, DOT>(newer, mt, total, g, dot);
        for (int64_t k = 0; k < K; ++k) {
            const int64_t at = k * W;
            (k == 0       ? step<T, V, FIRST, SUM, DOT>
             : k % 2 == 0 ? step<T, V, ODD, SUM, DOT>
             : k + 1 == K ? step<T, V, LAST, SUM, DOT>
                          : step<T, V, EVEN, SUM, DOT>)(S, older, newer, mt + at, total, g, dot + at);
            std::swap(older, newer);
        }

        if (SUM)
            unpack(S, begin, end, V * LANES<T>, total, sum, C, sum_drop);
        if (DOT)
            for (int64_t k = 0; k <= K; ++k)
                for (const Piece *p = begin; p < end; ++p)
                    for (int64_t c = 0; c < p->count; ++c)
                        dm[(p->b * (K + 1) + k) * C + p->first + c] = T(dot[k * W + p->at + c]);
    }

    template <int V, bool SUM, bool DOT>
    void order_zero(const T *t, const T *mt, T *total, const T *g, double *dot) const {
        constexpr int64_t W = V * LANES<T>;
        for (int64_t n = 0; n < S.rows; ++n)
            for (int64_t c = 0; c < W; ++c) {
                if (SUM)
                    total[n * W + c] = mt[c] * t[n * W + c];
                if (DOT)
                    dot[c] += double(g[n * W + c]) * double(t[n * W + c]);
            }
    }
};

template <typename T>
void filter(const Csr<T> &S, const T *x, const T *h, const T *m, T *sum, T *dm, int64_t B, int64_t C, int64_t K,
            Drop x_drop, Drop sum_drop, int threads) {
    if (!sum && !dm)
        return;
    const Filter<T> f{S, x, h, m, sum, dm, C, K, x_drop, sum_drop};
    threads = useful_threads(S, B * C, K, threads);
    const Plan plan = plan_tiles_for<T>(threads, S.rows, 3, B, 1, C);
    parallel_for(int64_t(plan.tiles.size()), threads, [&](int64_t i) {
        const Tile &tile = plan.tiles[i];
        const Piece *p = plan.pieces.data();
        tile.lines == 2 ? f.template run<2 * LINE_VECTORS>(p + tile.begin, p + tile.end)
                          : f.template run<LINE_VECTORS>(p + tile.begin, p + tile.end);
    });
}

} // namespace

void register_filter(Kernels<float> &f, Kernels<double> &d) {
    f.filter = filter<float>;
    d.filter = filter<double>;
}

} // namespace codesgc::CODESGC_ISA
