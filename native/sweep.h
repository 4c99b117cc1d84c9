// What the sweeps of the recurrence T_{k+1} = 2 S T_k - T_{k-1} share.
//
// A tile is one or two cache lines of columns, of all nodes, for one term: small enough to stay in the cache, complete
// in itself, since columns do not meet in S. Its nodes stand in S.order, where neighbours are near each other. Columns
// are dealt to tiles in pieces; how the columns of a replicate are cut depends on nothing but its own shape, and the
// operations on a column not at all on those beside it.
#pragma once
#include "isa.h"
#include "mask.h"

#include <vector>

namespace codesgc::CODESGC_ISA {

// Columns of a cache line, and vectors.
template <typename T> constexpr int64_t LINE = 64 / sizeof(T);
constexpr int LINE_VECTORS = 64 / REGISTER;

// Columns first, ..., first + count - 1 of replicate b, at lane `at` of their tile.
struct Piece {
    int64_t b, first, count, at;
};

struct Tile {
    int64_t begin, end; // its pieces
    int lines;
};

struct Plan {
    std::vector<Piece> pieces;
    std::vector<Tile> tiles;
};

constexpr int64_t CACHE = int64_t(8) << 20; // of one thread, roughly

// Cuts the Q J columns of each replicate into pieces of at most one vector, which hold several whole groups of J
// columns or a part of one group, and fills tiles with pieces; `apart`: only pieces of one replicate share a tile.
template <typename T> inline Plan plan_tiles(int64_t B, int64_t Q, int64_t J, int lines, bool apart) {
    constexpr int64_t L = LANES<T>;
    Plan plan;
    int64_t used = 0; // lanes of the last tile
    for (int64_t b = 0; b < B; ++b)
        for (int64_t c = 0; c < Q * J;) {
            const int64_t count = J <= L ? std::min(L / J * J, Q * J - c) : std::min(L, J - c % J);
            const bool fits = used + count <= lines * LINE<T> && !(apart && c == 0);
            if (plan.tiles.empty() || !fits) {
                const int64_t at = int64_t(plan.pieces.size());
                plan.tiles.push_back({at, at, 1});
                used = 0;
            }
            plan.pieces.push_back({b, c, count, used});
            used += count;
            plan.tiles.back().end += 1;
            plan.tiles.back().lines = used > LINE<T> ? 2 : 1;
            c += count;
        }
    return plan;
}

// Wide tiles are cheaper by the column, unless a thread would stay without one, or the `kept` terms of N nodes would
// leave the cache.
template <typename T>
inline Plan plan_tiles_for(int threads, int64_t N, int64_t kept, int64_t B, int64_t Q, int64_t J, bool apart = false) {
    if (N * kept * 128 <= CACHE) {
        Plan plan = plan_tiles<T>(B, Q, J, 2, apart);
        if (apart || int64_t(plan.tiles.size()) >= threads)
            return plan;
    }
    return plan_tiles<T>(B, Q, J, 1, apart);
}

// Waking a thread costs more than a small graph.
template <typename T> inline int useful_threads(const Csr<T> &S, int64_t columns, int64_t K, int threads) {
    return double(columns) * double(K + 1) * double(S.indices.size() + 4 * S.rows) < 2e6 ? 1 : threads;
}

constexpr int64_t AHEAD = 16; // nodes: rows of x stand in another order, which the processor cannot foresee

// turn(n, p, element) for each node n and piece p; `element` is where the piece begins in x[p->b], x (B, N, C), which
// is read, or WRITTEN.
template <bool WRITTEN, typename T, typename F>
inline void for_pieces(const Csr<T> &S, const Piece *begin, const Piece *end, int64_t C, const T *x, F &&turn) {
    for (int64_t n = 0; n < S.rows; ++n)
        for (const Piece *p = begin; p < end; ++p) {
            if (n + AHEAD < S.rows)
                __builtin_prefetch(x + (p->b * S.rows + S.order[n + AHEAD]) * C + p->first, WRITTEN);
            turn(n, p, S.order[n] * C + p->first);
        }
}

// The dropout of each piece of x; neighbouring pieces of one replicate share their state, since their elements lie in
// the same words.
template <typename T> struct PieceDrops {
    std::vector<Dropping<T>> states;
    std::vector<int> state; // of each piece

    PieceDrops(const Drop &drop, const Piece *begin, const Piece *end) {
        for (const Piece *p = begin; p < end; ++p) {
            if (p == begin || p->b != p[-1].b)
                states.emplace_back(drop, p->b);
            state.push_back(int(states.size()) - 1);
        }
    }
    Dropping<T> &operator[](int64_t piece) { return states[state[piece]]; }
};

// tile <- columns of the pieces of dropped(x), x (B, N, C), zeros between and behind them; and back, with dropout there.
template <typename T>
inline void pack(const Csr<T> &S, const Piece *begin, const Piece *end, int64_t W, const T *x, int64_t C, T *tile,
                 const Drop &drop = {}) {
    const int64_t size = S.rows * C;
    int64_t used = 0;
    for (const Piece *p = begin; p < end; ++p)
        used += p->count;
    if (used < W)
        std::fill(tile, tile + S.rows * W, T(0));
    if (drop) {
        PieceDrops<T> drops(drop, begin, end);
        for_pieces<false>(S, begin, end, C, x, [&](int64_t n, const Piece *p, int64_t element) {
            const Vector<T> v = load_part(x + p->b * size + element, p->count);
            store_part(tile + n * W + p->at, drops[p - begin].apply(v, element, p->count), p->count);
        });
        return;
    }
    for_pieces<false>(S, begin, end, C, x, [&](int64_t n, const Piece *p, int64_t element) {
        const T *from = x + p->b * size + element;
        T *to = tile + n * W + p->at;
        p->count == LANES<T> ? store(to, load(from)) : store_part(to, load_part(from, p->count), p->count);
    });
}

template <typename T>
inline void unpack(const Csr<T> &S, const Piece *begin, const Piece *end, int64_t W, const T *tile, T *x, int64_t C,
                   const Drop &drop = {}) {
    const int64_t size = S.rows * C;
    if (drop) {
        PieceDrops<T> drops(drop, begin, end);
        for_pieces<true>(S, begin, end, C, x, [&](int64_t n, const Piece *p, int64_t element) {
            const Vector<T> v = drops[p - begin].apply(load_part(tile + n * W + p->at, p->count), element, p->count);
            store_part(x + p->b * size + element, v, p->count);
        });
        return;
    }
    for_pieces<true>(S, begin, end, C, x, [&](int64_t n, const Piece *p, int64_t element) {
        const T *from = tile + n * W + p->at;
        T *to = x + p->b * size + element;
        p->count == LANES<T> ? store(to, load(from)) : store_part(to, load_part(from, p->count), p->count);
    });
}

// row(n, s) for n = first, ..., last - 1, where s = sum_j S[n, j] t[j]: two sums side by side hide the latency.
template <int V, typename T, typename F>
inline void for_rows(const Csr<T> &S, const T *t, int64_t first, int64_t last, F &&row) {
    constexpr int64_t W = V * LANES<T>;
    const int32_t *index = S.o_indices.data();
    const T *value = S.o_values.data();
    int32_t e = S.o_indptr[first];
    for (int64_t n = first; n < last; ++n) {
        const int32_t end = S.o_indptr[n + 1];
        Row<T, V> even{}, odd{};
        for (; e + 1 < end; e += 2) {
            even += value[e] * Row<T, V>::load(t + int64_t(index[e]) * W);
            odd += value[e + 1] * Row<T, V>::load(t + int64_t(index[e + 1]) * W);
        }
        if (e < end) {
            even += value[e] * Row<T, V>::load(t + int64_t(index[e]) * W);
            ++e;
        }
        row(n, even + odd);
    }
}

// to <- (to, if ADD) + scale S from (- older, if OLDER) on tiles
template <int V, bool ADD, bool OLDER, typename T>
inline void propagate(const Csr<T> &S, T scale, const T *from, const T *older, T *to) {
    constexpr int64_t W = V * LANES<T>;
    using R = Row<T, V>;
    for_rows<V>(S, from, 0, S.rows, [&](int64_t n, R s) {
        s = scale * s;
        if constexpr (OLDER)
            s = s - R::load(older + n * W);
        if constexpr (ADD)
            s += R::load(to + n * W);
        s.store(to + n * W);
    });
}

// Clenshaw: b_k = U_k + 2 S b_{k+1} - b_{k+2} in the place of U_k, k = K, ..., 0;  U_0 <- Y = U_0 + S b_1 - b_2.
template <int V, typename T> inline void sum_terms(const Csr<T> &S, T *terms, int64_t K) {
    const int64_t size = S.rows * V * LANES<T>;
    for (int64_t k = K - 1; k >= 0; --k) {
        T *to = terms + k * size;
        k + 1 == K ? propagate<V, true, false, T>(S, k ? 2 : 1, to + size, nullptr, to)
                   : propagate<V, true, true, T>(S, k ? 2 : 1, to + size, to + 2 * size, to);
    }
}

// V_0 is there; V_k <- T_k(S) V_0, k = 1, ..., K.
template <int V, typename T> inline void fill_terms(const Csr<T> &S, T *terms, int64_t K) {
    const int64_t size = S.rows * V * LANES<T>;
    for (int64_t k = 1; k <= K; ++k) {
        T *to = terms + k * size;
        k == 1 ? propagate<V, false, false, T>(S, 1, to - size, nullptr, to)
               : propagate<V, false, true, T>(S, 2, to - size, to - 2 * size, to);
    }
}

} // namespace codesgc::CODESGC_ISA
