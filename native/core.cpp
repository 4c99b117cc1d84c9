// The core of Tucker in one piece. H, which has Q R columns, exists for a block of nodes at a time, in the cache, and so
// does its gradient. In a block the lanes are nodes: every product then has whole vectors, whatever P, Q, R and K are,
// and one hash gives the masks of the elements (n, q, r) and (n, q, r + 1) for a vector of nodes.
#include "panels.h"
#include "sweep.h"

#include <memory>

namespace codesgc::CODESGC_ISA {
namespace {

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
        arrays([&](auto *&array, int64_t size) { array = scratch.take<std::remove_reference_t<decltype(*array)>>(size); });
    }

    // U_k of a piece, for all k, into its lanes of terms[k] (N, W).
    void form(const Piece &p, int64_t W, T *to) {
        take_factors(p);
        for (int64_t first = 0; first < N; first += NODES) {
            take_nodes(p, first, false);
            for_groups(p, [&](int64_t q, int64_t count) {
                form_H(p, q, count);
                drop(p, q, count, H, nullptr, nullptr);
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
            for_groups(p, [&](int64_t q, int64_t count) { gather_group(p, q, count, to); });
            if (to.da)
                for (int64_t at = 0; at < tall * broad * L; at += L)
                    add_to(da_sum + at, load(da + at));
            if (to.dt)
                put_dt(first, to);
        }
        put(p, to);
    }

  private:
    // The nodes of a block as lanes: those behind the last one have zeros, so that they say nothing in any sum.
    static void rows(int64_t count, Left<T> left, const T *panel, int64_t depth, T *to, bool add = false) {
        multiply_panel<WIDTH, T>(count, left, panel, depth, {to, NODES, add ? to : nullptr, NODES}, NODES);
    }

    void for_groups(const Piece &p, auto &&f) const {
        for (int64_t q = 0; q < p.count; q += group)
            f(q, std::min(group, p.count - q));
    }

    // For each term and vector of the block's nodes, of which `count` are there.
    void for_corners(int64_t first, auto &&f) const {
        for (int64_t at = 0; at < NODES; at += L)
            for (int64_t k = 0; k < terms; ++k)
                f(k, at, std::clamp<int64_t>(N - first - at, 0, L));
    }

    void take_factors(const Piece &p) {
        const T *G = of.G + p.b * P * Q * R + p.first * R, *bias = of.bias ? of.bias + (p.b * Q + p.first) * R : nullptr;
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

    void take_nodes(const Piece &p, int64_t first, bool as_rows) {
        const T *t = of.t + p.b * of.t_step;
        const int64_t count = std::min(NODES, N - first);
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

    void form_H(const Piece &, int64_t q, int64_t count) {
        rows(count * R, {G_lanes + (1 + P) * q * R, 1, count * R}, t_lanes, 1 + P, H);
    }

    // Drops what there is of x and y, columns (q, r) of a group, and adds up y.
    void drop(const Piece &p, int64_t q, int64_t count, T *x, T *y, T *sums) const {
        const int64_t begin = (p.first + q) * R, size = count * R;
        const bool drops = of.H_drop && of.H_drop.thresholds[p.b] > 0, paired = Q * R % 2 == 0;
        if (!drops && !(y && sums))
            return;
        const int32_t threshold = drops ? of.H_drop.thresholds[p.b] : 0;
        const Mask mask(drops ? of.H_drop.keys[p.b] : 0, threshold);
        const T scale = of.H_drop.template scale<T>(p.b);
        for (int64_t i = 0; i < size;) {
            const int64_t e = begin + i, step = drops && paired && e % 2 == 0 && i + 1 < size ? 2 : 1;
            Vector<T> sum[2]{};
            for (int64_t at = 0; at < NODES; at += WORDS) {
                Words starts, word;
                std::memcpy(&starts, elements + at, sizeof starts);
                if (drops && paired)
                    word = mask.hash((starts + uint32_t(e)) >> 1);
                for (int64_t s = 0; s < step; ++s) {
                    Vector<T> factor[WORDS / L];
                    if (drops)
                        factors_of<T>(!paired ? mask.halves(starts + uint32_t(e)) : (e + s) % 2 ? word >> 16 : word & 0xFFFF,
                                      threshold, scale, factor);
                    for (int64_t v = 0; v < WORDS / L; ++v) {
                        const int64_t element = (i + s) * NODES + at + v * L;
                        if (x && drops)
                            store(x + element, load(x + element) * factor[v]);
                        if (y) {
                            const Vector<T> value = drops ? load(y + element) * factor[v] : load(y + element);
                            store(y + element, value);
                            sum[s] += value;
                        }
                    }
                }
            }
            for (int64_t s = 0; s < step && sums; ++s)
                store(sums + (i + s) * L, load(sums + (i + s) * L) + sum[s]);
            i += step;
        }
    }

    void gather_group(const Piece &p, int64_t q, int64_t count, const Gradients<T> &to) {
        const int64_t size = count * R;
        const T *v = V + q * terms * NODES;
        const bool back = to.dt || to.dG || to.dbias;
        if (to.da)
            form_H(p, q, count);
        if (back)
            for (int64_t j = 0; j < count; ++j) // a (K+1, R) as its transpose
                rows(R, {of.a + p.b * terms * R, 1, R}, v + j * terms * NODES, terms, dH + j * R * NODES);
        drop(p, q, count, to.da ? H : nullptr, back ? dH : nullptr, dbias + q * R * L);
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

template <int V, typename T>
void run(const Csr<T> &S, const Core<T> &of, const Piece *begin, const Piece *end, T *z) {
    constexpr int64_t W = V * LANES<T>;
    const int64_t size = (of.K + 1) * S.rows * W;
    Blocks<T> blocks(S, of);
    Scratch scratch(Scratch::rounded(size * sizeof(T)) + blocks.bytes());
    T *terms = scratch.take<T>(size);
    blocks.take(scratch);
    if (end[-1].at + end[-1].count < W)
        std::fill(terms, terms + size, T(0));
    for (const Piece *p = begin; p < end; ++p)
        blocks.form(*p, W, terms + p->at);
    sum_terms<V>(S, terms, of.K);
    unpack(S, begin, end, W, terms, z, of.Q, of.Z_drop);
}

template <int V, typename T>
void run_backward(const Csr<T> &S, const Core<T> &of, const T *dz, const Piece *begin, const Piece *end,
                  auto &&gradients) {
    constexpr int64_t W = V * LANES<T>;
    const int64_t size = (of.K + 1) * S.rows * W;
    Blocks<T> blocks(S, of);
    Scratch scratch(Scratch::rounded(size * sizeof(T)) + blocks.bytes());
    T *terms = scratch.take<T>(size);
    blocks.take(scratch);
    pack(S, begin, end, W, dz, of.Q, terms, of.Z_drop);
    fill_terms<V>(S, terms, of.K);
    for (const Piece *p = begin; p < end; ++p)
        blocks.gather(*p, W, terms + p->at, gradients(p));
}

template <typename T> void core(const Csr<T> &S, const Core<T> &of, T *z, int threads) {
    threads = useful_threads(S, of.B * of.Q * of.R, of.K, threads);
    const Plan plan = plan_tiles_for<T>(threads, S.rows, of.K + 1, of.B, of.Q, 1);
    const Piece *p = plan.pieces.data();
    parallel_for(int64_t(plan.tiles.size()), threads, [&](int64_t t) {
        const auto [begin, end, lines] = plan.tiles[t];
        lines == 2 ? run<2 * LINE_VECTORS>(S, of, p + begin, p + end, z) : run<LINE_VECTORS>(S, of, p + begin, p + end, z);
    });
}

template <typename T>
void core_backward(const Csr<T> &S, const Core<T> &of, const T *dz, T *dt, T *dG, T *dbias, T *da, int threads) {
    const int64_t N = S.rows, rows = N * of.P, columns = of.Q * of.R, sums = (of.K + 1) * of.R;
    threads = useful_threads(S, of.B * columns, of.K, threads);
    // The pieces of a replicate add up to dt: in their order, each on the heels of the other where one thread has them
    // all, and otherwise at the end.
    const bool whole = of.B % threads == 0 && of.Q > LANES<T>;
    const Plan plan = plan_tiles_for<T>(threads, N, of.K + 1, of.B, of.Q, 1, whole);
    const int64_t units = whole ? of.B : int64_t(plan.tiles.size()), tiles = units ? int64_t(plan.tiles.size()) / units : 0;
    const int64_t pieces = of.B ? int64_t(plan.pieces.size()) / of.B : 0;
    std::unique_ptr<double[]> da_parts(da ? new double[plan.pieces.size() * sums] : nullptr);
    std::unique_ptr<T[]> dt_parts(dt && !whole ? new T[of.B * (pieces - 1) * rows] : nullptr);
    const auto dt_part = [&](int64_t b, int64_t piece) { return dt_parts.get() + (b * (pieces - 1) + piece - 1) * rows; };
    const Piece *all = plan.pieces.data();
    const auto gradients = [&](const Piece *p) -> Gradients<T> {
        const int64_t b = p->b, piece = (p - all) % pieces;
        return {!dt ? nullptr : whole || piece == 0 ? dt + b * rows : dt_part(b, piece),
                dG ? dG + b * of.P * columns : nullptr, dbias ? dbias + b * columns : nullptr,
                da ? da_parts.get() + (p - all) * sums : nullptr, whole && piece > 0};
    };
    parallel_for(units, threads, [&](int64_t unit) {
        for (int64_t t = unit * tiles; t < (unit + 1) * tiles; ++t) {
            const auto [begin, end, lines] = plan.tiles[t];
            lines == 2 ? run_backward<2 * LINE_VECTORS>(S, of, dz, all + begin, all + end, gradients)
                       : run_backward<LINE_VECTORS>(S, of, dz, all + begin, all + end, gradients);
        }
    });
    for (int64_t b = 0; b < of.B; ++b) {
        for (int64_t piece = 1; piece < pieces && dt_parts; ++piece)
            for (int64_t e = 0; e < rows; ++e)
                dt[b * rows + e] += dt_part(b, piece)[e];
        for (int64_t e = 0; e < sums && da; ++e) {
            double sum = 0;
            for (int64_t piece = 0; piece < pieces; ++piece)
                sum += da_parts[(b * pieces + piece) * sums + e];
            da[b * sums + e] = T(sum);
        }
    }
}

} // namespace

void register_core(Kernels<float> &f, Kernels<double> &d) {
    f.core = core<float>;
    d.core = core<double>;
    f.core_backward = core_backward<float>;
    d.core_backward = core_backward<double>;
}

} // namespace codesgc::CODESGC_ISA
