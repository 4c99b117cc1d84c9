// Small dense products, in tiles of panels.h.
#include "panels.h"

namespace codesgc::CODESGC_ISA {

constexpr int64_t CHUNK = 96; // rows (of a tall operand) that are worked on together: they stay in L1

// out[b] = dropped(x[b] w[b] + 1 bias[b]^T): rows are independent, so threads take what they like of them.
template <typename T>
static void matmul(const T *x, int64_t x_step, const T *w, const T *bias, Drop drop, T *out, int64_t B, int64_t N,
                   int64_t I, int64_t J, int threads) {
    const int64_t cuts = parts(B, threads);
    parallel_for(B * cuts, threads, [&](int64_t task) {
        const int64_t b = task / cuts, cut = task % cuts, end = N * (cut + 1) / cuts;
        const Right<T> right{w + b * I * J, I, J, J, 1};
        Scratch scratch(Scratch::rounded(panels_size(right) * sizeof(T)));
        T *panels = scratch.take<T>(panels_size(right));
        copy_panels(right, panels);
        Dropping<T> dropping(drop, b);
        for (int64_t n = N * cut / cuts; n < end; n += CHUNK)
            multiply<T>(std::min(CHUNK, end - n), {x + b * x_step + n * I, I, 1}, panels, I, J,
                        {out + (b * N + n) * J, J, bias ? bias + b * J : nullptr, 0, drop ? &dropping : nullptr, n * J});
    });
}

// dx = y w^T, dw = x^T y, sums = 1^T y for y = dropped(dy), some rows at a time while they are in the cache. Where a
// replicate has several threads, each takes some rows of dx and some columns of y for dw and the sums.
template <typename T> struct Backward {
    const T *x, *w, *dy; // of this replicate, like the results
    T *dx, *dw, *sums;
    int64_t N, I, J;
    int64_t height = std::clamp<int64_t>((1 << 16) / std::max<int64_t>(J, 1), 16, CHUNK); // rows at a time
    // the operand in whose columns the vectors of dw lie: with few columns they would be mostly padding
    bool flipped = vectors(I) * J < vectors(J) * I;

    static int64_t vectors(int64_t columns) { return (columns + LANES<T> - 1) / LANES<T>; }

    // Rows first, ..., last - 1 of dx; columns begin, ..., end - 1 of dw and the sums.
    void run(int64_t first, int64_t last, int64_t begin, int64_t end, Dropping<T> drop) const {
        constexpr int64_t L = LANES<T>;
        const Right<T> transposed{w, J, I, 1, J};
        const int64_t operand = height * L * vectors(flipped ? I : J), result = flipped ? (end - begin) * I : 0;
        Scratch scratch(Scratch::rounded(panels_size(transposed) * sizeof(T)) + Scratch::rounded(operand * sizeof(T)) +
                        Scratch::rounded(height * J * sizeof(T)) + Scratch::rounded(J * sizeof(T)) +
                        Scratch::rounded(result * sizeof(T)));
        T *w_panels = scratch.take<T>(panels_size(transposed)), *panels = scratch.take<T>(operand);
        T *block = scratch.take<T>(height * J), *partial = scratch.take<T>(J);
        T *turned = scratch.take<T>(result);
        if (dx)
            copy_panels(transposed, w_panels);
        std::fill(turned, turned + result, T(0));
        for (int64_t i = 0; i < I && dw && !flipped; ++i)
            std::fill(dw + i * J + begin, dw + i * J + end, T(0));
        if (sums)
            std::fill(sums + begin, sums + end, T(0));
        for (int64_t n = 0; n < N; n += height) {
            const int64_t count = std::min(height, N - n);
            const bool mine = dx && n >= first && n < last;
            const T *y = dy + n * J;
            if (drop) {
                dropped(y, n, count, mine ? 0 : begin, mine ? J : end, drop, block);
                y = block;
            }
            if (mine)
                multiply<T>(count, {y, J, 1}, w_panels, J, I, {dx + n * I, I, nullptr, 0});
            if (sums)
                add_rows(y, count, begin, end, partial);
            if (dw && flipped) {
                copy_panels(Right<T>{x + n * I, count, I, I, 1}, panels);
                multiply<T>(end - begin, {y + begin, 1, J}, panels, count, I, {turned, I, turned, I});
            } else if (dw) {
                copy_panels(Right<T>{y + begin, count, end - begin, J, 1}, panels);
                multiply<T>(I, {x + n * I, 1, I}, panels, count, end - begin, {dw + begin, J, dw + begin, J});
            }
        }
        for (int64_t j = begin; j < end && dw && flipped; ++j)
            for (int64_t i = 0; i < I; ++i)
                dw[i * J + j] = turned[(j - begin) * I + i];
    }

  private:
    void dropped(const T *from, int64_t n, int64_t count, int64_t begin, int64_t end, Dropping<T> &drop, T *to) const {
        for (int64_t r = 0; r < count; ++r)
            for (int64_t j = begin; j < end; j += LANES<T>) {
                const int64_t part = std::min(LANES<T>, end - j), e = r * J + j;
                store_part(to + e, drop.apply(load_part(from + e, part), n * J + e, part), part);
            }
    }

    void add_rows(const T *y, int64_t count, int64_t begin, int64_t end, T *partial) const {
        std::fill(partial, partial + J, T(0));
        for (int64_t n = 0; n < count; ++n)
            for (int64_t j = begin; j < end; ++j)
                partial[j] += y[n * J + j];
        for (int64_t j = begin; j < end; ++j)
            sums[j] += partial[j];
    }
};

template <typename T>
static void matmul_backward(const T *x, int64_t x_step, const T *w, const T *dy, Drop drop, T *dx, T *dw, T *sums,
                            int64_t B, int64_t N, int64_t I, int64_t J, int threads) {
    const int64_t cuts = parts(B, threads);
    parallel_for(B * cuts, threads, [&](int64_t task) {
        const int64_t b = task / cuts, cut = task % cuts;
        const Backward<T> of{x + b * x_step, w + b * I * J, dy + b * N * J, dx ? dx + b * N * I : nullptr,
                             dw ? dw + b * I * J : nullptr, sums ? sums + b * J : nullptr, N, I, J};
        const int64_t steps = (N + of.height - 1) / of.height;
        of.run(steps * cut / cuts * of.height, steps * (cut + 1) / cuts * of.height, J * cut / cuts,
               J * (cut + 1) / cuts, {drop, b});
    });
}

void register_dense(Kernels<float> &f, Kernels<double> &d) {
    f.matmul = matmul<float>;
    d.matmul = matmul<double>;
    f.matmul_backward = matmul_backward<float>;
    d.matmul_backward = matmul_backward<double>;
}

} // namespace codesgc::CODESGC_ISA
