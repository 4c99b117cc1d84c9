// The core of Tucker in one piece: a dense product and a synthesis, whose tensor in between is never whole.
#include "core_blocks.h"

#include <memory>

namespace codesgc::CODESGC_ISA {
namespace {

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
        lines == 2 ? run<2 * LINE_VECTORS>(S, of, p + begin, p + end, z)
                   : run<LINE_VECTORS>(S, of, p + begin, p + end, z);
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
    const int64_t count = int64_t(plan.tiles.size()), units = whole ? of.B : count, tiles = units ? count / units : 0;
    const int64_t pieces = of.B ? int64_t(plan.pieces.size()) / of.B : 0;
    std::unique_ptr<double[]> da_parts(da ? new double[plan.pieces.size() * sums] : nullptr);
    std::unique_ptr<T[]> dt_parts(dt && !whole ? new T[of.B * (pieces - 1) * rows] : nullptr);
    const auto dt_part = [&](int64_t b, int64_t piece) {
        return dt_parts.get() + (b * (pieces - 1) + piece - 1) * rows;
    };
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
