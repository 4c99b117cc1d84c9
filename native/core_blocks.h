// What the core of Tucker does at the nodes. H, which has Q R columns, exists for a block of nodes at a time, in the
// cache, and so does its gradient. In a block the lanes are nodes: every product then has whole vectors, whatever P, Q,
// R and K are, and one hash gives the masks of the elements (n, q, r) and (n, q, r + 1) for a vector of nodes.
#pragma once
#include "panels.h"
#include "sweep.h"

namespace codesgc::CODESGC_ISA {

constexpr int WIDTH = 4;                                 // vectors of nodes in a block
constexpr int64_t GROUP = 64;                            // about so many columns (q, r) of H are worked on together
constexpr int TALL = REGISTERS == 32 ? 6 : 2, BROAD = 4; // terms and columns r whose products are summed in registers

// Of one replicate, each null if it is not asked for; da (K+1, R) of one piece. `add`: to dt, where others have been.
template <typename T> struct Gradients {
    T *dt, *dG, *dbias;
    double *da;
    bool add;
};

// Goes through the nodes in blocks, for one piece of a replicate's columns q after another. Arrays of a block have the
// nodes last: H (q, r, n), V and U (q, k, n).
template <typename T> class Blocks {
    static constexpr int64_t L = LANES<T>, NODES = WIDTH * L;
    const Csr<T> &S;
    const Core<T> &of;
    const int64_t N = S.rows, P = of.P, Q = of.Q, R = of.R, terms = of.K + 1;
    const int64_t group = std::max<int64_t>(1, GROUP / R), widest = std::min(L, Q); // columns q of a group, of a piece
    const int64_t tall = (terms + TALL - 1) / TALL * TALL, broad = (R + BROAD - 1) / BROAD * BROAD;

    T *t_lanes, *t_rows;       // of the block: (1 + P, n) with ones in front, and panels of (n, P)
    T *H, *dH, *V, *dt;        // V is U, going forward
    T *G_lanes, *G_rows;       // of the piece: by groups (1 + P, q r) with the bias in front, and (q r, P)
    T *a_rows, *dG, *dbias, *da; // a (R, K+1); dG (q r, P); lanes of dbias (q r, L), of da (k, r, L) in the block,
    double *da_sum;              // and in all
    uint32_t *elements;        // where the rows of H begin

    void arrays(auto &&f) {
        f(t_lanes, (1 + P) * NODES), f(t_rows, (P + L - 1) / L * L * NODES), f(dt, P * NODES), f(elements, NODES);
        f(H, (group * R + BROAD) * NODES), f(dH, group * R * NODES), f(V, (widest * terms + TALL) * NODES);
        f(G_lanes, (1 + P) * widest * R), f(G_rows, P * widest * R), f(a_rows, R * terms);
        f(dG, widest * R * P), f(dbias, widest * R * L), f(da, tall * broad * L), f(da_sum, tall * broad * L);
    }

  public:
    Blocks(const Csr<T> &S, const Core<T> &of) : S(S), of(of) {}

    size_t bytes() {
        size_t sum = 0;
        arrays([&](auto *&array, int64_t size) { sum += Scratch::rounded(size * sizeof *array); });
        return sum;
    }
    void take(Scratch &scratch) {
        arrays([&]<typename A>(A *&array, int64_t size) { array = scratch.take<A>(size); });
    }

    // U_k of a piece, for all k, into its lanes of terms[k] (N, W).
    void form(const Piece &p, int64_t W, T *to) {
        take_factors(p);
        for (int64_t first = 0; first < N; first += NODES) {
            take_nodes(p, first, false);
            for_groups(p, [&](int64_t q, int64_t count) {
                form_H(q, count);
                drop<true, false>(p, q, count, H, H, nullptr);
                for (int64_t j = 0; j < count; ++j)
                    rows(terms, {a_rows, 1, terms}, H + j * R * NODES, R, V + (q + j) * terms * NODES);
            });
            for_corners(first, [&](int64_t k, int64_t at, int64_t count) {
                Vector<T> r[L];
#pragma GCC unroll 16
                for (int64_t q = 0; q < L; ++q)
                    r[q] = load(V + (std::min(q, p.count - 1) * terms + k) * NODES + at);
                transpose<T>(r);
                T *row = to + k * N * W + (first + at) * W;
#pragma GCC unroll 16
                for (int64_t n = 0; n < L; ++n)
                    if (n < count)
                        store_part(row + n * W, r[n], p.count);
            });
        }
    }

    // What a piece has to say in the gradients, from the terms V_k = T_k(S) dZ.
    void gather(const Piece &p, int64_t W, const T *from, const Gradients<T> &to) {
        take_factors(p);
        std::fill(dG, dG + p.count * R * P, T(0));
        std::fill(dbias, dbias + p.count * R * L, T(0));
        std::fill(da_sum, da_sum + tall * broad * L, 0.0);
        std::fill(V + p.count * terms * NODES, V + (p.count * terms + TALL) * NODES, T(0));
        for (int64_t first = 0; first < N; first += NODES) {
            take_nodes(p, first, to.dG);
            for_corners(first, [&](int64_t k, int64_t at, int64_t count) {
                const T *row = from + k * N * W + (first + at) * W;
                Vector<T> r[L];
#pragma GCC unroll 16
                for (int64_t n = 0; n < L; ++n)
                    r[n] = n < count ? load_part(row + n * W, p.count) : Vector<T>{};
                transpose<T>(r);
#pragma GCC unroll 16
                for (int64_t q = 0; q < L; ++q)
                    if (q < p.count)
                        store(V + (q * terms + k) * NODES + at, r[q]);
            });
            for_groups(p, [&](int64_t q, int64_t count) {
                prefetch(p, q, count, from + (first + NODES) * W, W, first + NODES);
                gather_group(p, q, count, to);
            });
            if (to.da)
                for (int64_t at = 0; at < tall * broad * L; at += L)
                    add_to(da_sum + at, load(da + at));
            if (to.dt)
                put_dt(first, to);
        }
        put(p, to);
    }

  private:
    // to <- left panel (+ to), where both are (rows, n).
    static void rows(int64_t count, Left<T> left, const T *panel, int64_t depth, T *to, bool add = false) {
        multiply_panel<WIDTH, T>(count, left, panel, depth, {to, NODES, add ? to : nullptr, NODES}, NODES);
    }

    void for_groups(const Piece &p, auto &&f) const {
        for (int64_t q = 0; q < p.count; q += group)
            f(q, std::min(group, p.count - q));
    }

    // For each term and vector of the block's nodes, of which `count` are there.
    void for_corners(int64_t first, auto &&f) const {
        for (int64_t k = 0; k < terms; ++k)
            for (int64_t at = 0; at < NODES; at += L)
                f(k, at, std::clamp<int64_t>(N - first - at, 0, L));
    }

    // The next block's rows of the terms, some with each group: all at once, they would be waited for.
    void prefetch(const Piece &p, int64_t q, int64_t count, const T *row, int64_t W, int64_t first) const {
        const int64_t next = std::min(NODES, N - first);
        for (int64_t k = q * terms / p.count; k < (q + count) * terms / p.count; ++k)
            for (int64_t n = 0; n < next; ++n)
                __builtin_prefetch(row + (k * N + n) * W, 0, 2);
    }

    void take_factors(const Piece &p) {
        const T *G = of.G + p.b * P * Q * R + p.first * R;
        const T *bias = of.bias ? of.bias + (p.b * Q + p.first) * R : nullptr;
        T *to = G_lanes;
        for_groups(p, [&](int64_t q, int64_t count) {
            for (int64_t i = 0; i <= P; ++i)
                for (int64_t c = q * R; c < (q + count) * R; ++c)
                    *to++ = i ? G[(i - 1) * Q * R + c] : bias ? bias[c] : T(0);
        });
        for (int64_t i = 0; i < P; ++i)
            for (int64_t c = 0; c < p.count * R; ++c)
                G_rows[c * P + i] = G[i * Q * R + c];
        for (int64_t k = 0; k < terms; ++k)
            for (int64_t r = 0; r < R; ++r)
                a_rows[r * terms + k] = of.a[(p.b * terms + k) * R + r];
    }

    // t of the block's nodes; those behind the last one have zeros there and in V, and so say nothing in any sum.
    void take_nodes(const Piece &p, int64_t first, bool as_rows) {
        const T *t = of.t + p.b * of.t_step;
        const int64_t count = std::min(NODES, N - first);
        for (int64_t n = first + NODES; n < std::min(N, first + 2 * NODES); ++n)
            for (int64_t i = 0; i < P; i += 64 / int64_t(sizeof(T)))
                __builtin_prefetch(t + S.order[n] * P + i, 0, 2);
        std::fill(t_lanes, t_lanes + NODES, T(1));
        for (int64_t n = 0; n < NODES; ++n)
            elements[n] = n < count ? uint32_t(S.order[first + n] * Q * R) : 0;
        for (int64_t at = 0; at < NODES; at += L)
            for (int64_t i = 0; i < P; i += L) {
                const int64_t part = std::min(L, P - i);
                Vector<T> r[L];
#pragma GCC unroll 16
                for (int64_t n = 0; n < L; ++n)
                    r[n] = at + n < count ? load_part(t + S.order[first + at + n] * P + i, part) : Vector<T>{};
                transpose<T>(r);
#pragma GCC unroll 16
                for (int64_t c = 0; c < L; ++c)
                    if (c < part)
                        store(t_lanes + (1 + i + c) * NODES + at, r[c]);
            }
        if (as_rows)
            copy_panels(Right<T>{t_lanes + NODES, NODES, P, 1, NODES}, t_rows);
    }

    void form_H(int64_t q, int64_t count) {
        rows(count * R, {G_lanes + (1 + P) * q * R, 1, count * R}, t_lanes, 1 + P, H);
    }

    // Drops what is given of x and y, the columns of a group, and adds y up.
    template <bool X, bool Y> void drop(const Piece &p, int64_t q, int64_t count, T *x, T *y, T *sums) const {
        const int64_t begin = (p.first + q) * R, size = count * R;
        if (!of.H_drop || of.H_drop.thresholds[p.b] == 0) {
            for (int64_t i = 0; i < size && Y; ++i)
                drop_row<false, Y, false>(i, nullptr, x, y, sums);
            return;
        }
        const int32_t threshold = of.H_drop.thresholds[p.b];
        const Mask mask(of.H_drop.keys[p.b], threshold);
        const T scale = of.H_drop.template scale<T>(p.b);
        for (int64_t i = 0; i < size; ++i) {
            const uint32_t e = uint32_t(begin + i);
            const bool pair = e % 2 == 0 && i + 1 < size && Q * R % 2 == 0;
            Vector<T> factor[2][WIDTH];
#pragma GCC unroll 4
            for (int v = 0; v < WIDTH; v += WORDS / L) {
                Words word;
                std::memcpy(&word, elements + v * L, sizeof word);
                word = pair ? mask.hash((word + e) >> 1) : mask.halves(word + e);
                factors_of<T>(word & 0xFFFF, threshold, scale, factor[0] + v);
                factors_of<T>(word >> 16, threshold, scale, factor[1] + v);
            }
            drop_row<X, Y, true>(i, factor[0], x, y, sums);
            if (pair)
                drop_row<X, Y, true>(++i, factor[1], x, y, sums);
        }
    }

    template <bool X, bool Y, bool DROPS> void drop_row(int64_t i, const Vector<T> *factor, T *x, T *y, T *sums) const {
        Vector<T> sum = Y ? load(sums + i * L) : Vector<T>{};
        x += i * NODES, y += i * NODES;
#pragma GCC unroll 4
        for (int v = 0; v < WIDTH; ++v) {
            if (X)
                store(x + v * L, load(x + v * L) * factor[v]);
            if (Y && DROPS)
                store(y + v * L, load(y + v * L) * factor[v]);
            if (Y)
                sum += load(y + v * L);
        }
        if (Y)
            store(sums + i * L, sum);
    }

    void gather_group(const Piece &p, int64_t q, int64_t count, const Gradients<T> &to) {
        const int64_t size = count * R;
        const T *v = V + q * terms * NODES;
        const bool back = to.dt || to.dG || to.dbias;
        if (to.da)
            form_H(q, count);
        if (back)
            for (int64_t j = 0; j < count; ++j) // a (K+1, R) as its transpose
                rows(R, {of.a + p.b * terms * R, 1, R}, v + j * terms * NODES, terms, dH + j * R * NODES);
        T *sums = dbias + q * R * L;
        if (to.da)
            back ? drop<true, true>(p, q, count, H, dH, sums) : drop<true, false>(p, q, count, H, dH, sums);
        else
            drop<false, true>(p, q, count, H, dH, sums);
        if (to.da) {
            std::fill(H + size * NODES, H + (size + BROAD) * NODES, T(0));
            for (int64_t k = 0; k < terms; k += TALL)
                for (int64_t r = 0; r < R; r += BROAD)
                    dot(count, v + k * NODES, H + r * NODES, da + (k * broad + r) * L, q == 0);
        }
        if (to.dG) {
            T *own = dG + q * R * P;
            multiply<T>(size, {dH, NODES, 1}, t_rows, NODES, P, {own, P, own, P});
        }
        if (to.dt)
            rows(P, {G_rows + q * R * P, 1, P}, dH, size, dt, q > 0);
    }

    // da_kr for some terms k and columns r, in lanes: sum_{q, n} V[q, k, n] H[q, r, n] (+ what is there, if not fresh).
    void dot(int64_t count, const T *v, const T *h, T *to, bool fresh) const {
        Vector<T> sum[TALL][BROAD];
#pragma GCC unroll 8
        for (int k = 0; k < TALL; ++k)
#pragma GCC unroll 4
            for (int r = 0; r < BROAD; ++r)
                sum[k][r] = fresh ? Vector<T>{} : load(to + (k * broad + r) * L);
        for (int64_t j = 0; j < count; ++j, v += terms * NODES, h += R * NODES)
            for (int64_t n = 0; n < NODES; n += L) {
                Vector<T> right[BROAD];
#pragma GCC unroll 4
                for (int r = 0; r < BROAD; ++r)
                    right[r] = load(h + r * NODES + n);
#pragma GCC unroll 8
                for (int k = 0; k < TALL; ++k) {
                    const Vector<T> left = load(v + k * NODES + n);
#pragma GCC unroll 4
                    for (int r = 0; r < BROAD; ++r)
                        sum[k][r] += left * right[r];
                }
            }
#pragma GCC unroll 8
        for (int k = 0; k < TALL; ++k)
#pragma GCC unroll 4
            for (int r = 0; r < BROAD; ++r)
                store(to + (k * broad + r) * L, sum[k][r]);
    }

    void put_dt(int64_t first, const Gradients<T> &to) const {
        for (int64_t at = 0; at < NODES; at += L)
            for (int64_t i = 0; i < P; i += L) {
                const int64_t part = std::min(L, P - i);
                Vector<T> r[L];
#pragma GCC unroll 16
                for (int64_t c = 0; c < L; ++c)
                    r[c] = load(dt + (i + std::min(c, part - 1)) * NODES + at);
                transpose<T>(r);
#pragma GCC unroll 16
                for (int64_t n = 0; n < L; ++n)
                    if (first + at + n < N) {
                        T *row = to.dt + S.order[first + at + n] * P + i;
                        store_part(row, to.add ? load_part(row, part) + r[n] : r[n], part);
                    }
            }
    }

    void put(const Piece &p, const Gradients<T> &to) const {
        for (int64_t c = 0; c < p.count * R; ++c) {
            for (int64_t i = 0; i < P && to.dG; ++i)
                to.dG[i * Q * R + p.first * R + c] = dG[c * P + i];
            if (to.dbias) {
                T sum = 0;
                for (int64_t lane = 0; lane < L; ++lane)
                    sum += dbias[c * L + lane];
                to.dbias[p.first * R + c] = sum;
            }
        }
        for (int64_t k = 0; k < terms && to.da; ++k)
            for (int64_t r = 0; r < R; ++r) {
                double sum = 0;
                for (int64_t lane = 0; lane < L; ++lane)
                    sum += da_sum[(k * broad + r) * L + lane];
                to.da[k * R + r] = sum;
            }
    }
};

} // namespace codesgc::CODESGC_ISA
