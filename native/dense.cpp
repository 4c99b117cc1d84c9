// Small dense products. One microkernel: a tile of the result, some rows by V vectors, stays in registers while the sum
// runs; the right operand is copied into panels of V vectors, so that it is read in order, padded with zeros.
#include "isa.h"

#include <array>
#include <utility>

namespace codesgc::CODESGC_ISA {

// Rows of a tile of V vectors, as many as the registers hold.
template <int V> constexpr int ROWS = REGISTERS == 32 ? (V == 4 ? 6 : V == 2 ? 8 : 12) : 12 / V;
constexpr int64_t CHUNK = 96; // rows (of a tall operand) that are worked on together: they stay in L1

// The left operand of a product: element (row, k) is data[row * row_step + k * k_step].
template <typename T> struct Left {
    const T *data;
    int64_t row_step, k_step;
};

// The result: row r starts at data + r * step; `add` likewise, with steps of its own, or null.
template <typename T> struct Result {
    T *data;
    int64_t step;
    const T *add;
    int64_t add_step;
};

// c[r, :] = sum_k left[r, k] panel[k, :] (+ add[r, :]), the first `width` columns.
template <int R, int V, typename T>
static void tile(Left<T> left, const T *panel, int64_t depth, Result<T> c, int64_t width) {
    constexpr int64_t L = LANES<T>;
    Vector<T> sum[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
            sum[r][v] = Vector<T>{};
    for (int64_t k = 0; k < depth; ++k, panel += V * L, left.data += left.k_step)
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const T x = left.data[r * left.row_step];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v)
                sum[r][v] += x * load(panel + v * L);
        }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
            if (const int64_t count = std::min(L, width - v * L); count > 0) {
                if (c.add)
                    sum[r][v] += load_part(c.add + r * c.add_step + v * L, count);
                store_part(c.data + r * c.step + v * L, sum[r][v], count);
            }
}

// All rows of a panel's columns, tile by tile.
template <int V, typename T>
static void multiply_panel(int64_t rows, Left<T> left, const T *panel, int64_t depth, Result<T> c, int64_t width) {
    constexpr auto tiles = []<size_t... i>(std::index_sequence<i...>) {
        return std::array{tile<int(i) + 1, V, T>...};
    }(std::make_index_sequence<ROWS<V>>());
    for (int64_t r = 0; r < rows; r += ROWS<V>) {
        const int64_t count = std::min<int64_t>(ROWS<V>, rows - r);
        tiles[count - 1]({left.data + r * left.row_step, left.row_step, left.k_step}, panel, depth,
                         {c.data + r * c.step, c.step, c.add ? c.add + r * c.add_step : nullptr, c.add_step}, width);
    }
}

// Vectors of the panel that starts where `columns` are left: 4, 2 or 1.
template <typename T> static int64_t panel_vectors(int64_t columns) {
    const int64_t vectors = (columns + LANES<T> - 1) / LANES<T>;
    return vectors >= 4 ? 4 : vectors >= 2 ? 2 : 1;
}

// The right operand: element (k, column) is data[k * k_step + column * column_step].
template <typename T> struct Right {
    const T *data;
    int64_t depth, columns, k_step, column_step;
};

// Panels one behind the other, `size` numbers in all; each starts at its first column times the depth.
template <typename T> static int64_t panels_size(const Right<T> &right) {
    return right.depth * ((right.columns + LANES<T> - 1) / LANES<T> * LANES<T>);
}
template <typename T> static void copy_panels(const Right<T> &right, T *to) {
    constexpr int64_t L = LANES<T>;
    for (int64_t c = 0; c < right.columns;) {
        const int64_t width = L * panel_vectors<T>(right.columns - c), filled = std::min(width, right.columns - c);
        for (int64_t k = 0; k < right.depth; ++k, to += width) {
            const T *from = right.data + k * right.k_step + c * right.column_step;
            if (right.column_step == 1)
                for (int64_t v = 0; v < width; v += L)
                    store(to + v, load_part(from + v, std::clamp<int64_t>(filled - v, 0, L)));
            else
                for (int64_t j = 0; j < width; ++j)
                    to[j] = j < filled ? from[j * right.column_step] : T(0);
        }
        c += width;
    }
}

// c = left * panels (+ add) with panels as copied.
template <typename T>
static void multiply(int64_t rows, Left<T> left, const T *panels, int64_t depth, int64_t columns, Result<T> c) {
    for (int64_t column = 0; column < columns;) {
        const int64_t vectors = panel_vectors<T>(columns - column), width = std::min(vectors * LANES<T>, columns - column);
        const auto f = vectors == 4 ? multiply_panel<4, T> : vectors == 2 ? multiply_panel<2, T> : multiply_panel<1, T>;
        f(rows, left, panels + column * depth, depth, {c.data + column, c.step, c.add ? c.add + column : nullptr, c.add_step},
          width);
        column += vectors * LANES<T>;
    }
}

// out[b] = x[b] right[b] + 1 bias[b]^T: rows are independent, so threads take what they like of them.
template <typename T>
static void tall_times_small(const T *x, int64_t x_step, const T *w, const T *bias, T *out, int64_t B, int64_t N,
                             Right<T> right, int threads) {
    const int64_t cuts = parts(B, threads), depth = right.depth, columns = right.columns;
    parallel_for(B * cuts, threads, [&](int64_t task) {
        Scratch scratch(Scratch::rounded(panels_size(right) * sizeof(T)));
        T *panels = scratch.take<T>(panels_size(right));
        const int64_t b = task / cuts, cut = task % cuts, end = N * (cut + 1) / cuts;
        Right<T> mine = right;
        mine.data = w + b * depth * columns;
        copy_panels(mine, panels);
        for (int64_t n = N * cut / cuts; n < end; n += CHUNK)
            multiply<T>(std::min(CHUNK, end - n), {x + b * x_step + n * depth, depth, 1}, panels, depth, columns,
                        {out + (b * N + n) * columns, columns, bias ? bias + b * columns : nullptr, 0});
    });
}

// out[b] = x[b] w[b] + 1 bias[b]^T: (N, I) (I, J)
template <typename T>
static void matmul(const T *x, int64_t x_step, const T *w, const T *bias, T *out, int64_t B, int64_t N, int64_t I,
                   int64_t J, int threads) {
    tall_times_small<T>(x, x_step, w, bias, out, B, N, {nullptr, I, J, J, 1}, threads);
}

// out[b] = dy[b] w[b]^T: (N, J) (J, I)
template <typename T>
static void matmul_nt(const T *dy, const T *w, T *out, int64_t B, int64_t N, int64_t I, int64_t J, int threads) {
    tall_times_small<T>(dy, N * J, w, nullptr, out, B, N, {nullptr, J, I, 1, J}, threads);
}

// out[b] = x[b]^T dy[b]: (I, N) (N, J). The sum over nodes runs in chunks, in order; threads take columns of x.
template <typename T>
static void matmul_tn(const T *x, int64_t x_step, const T *dy, T *out, int64_t B, int64_t N, int64_t I, int64_t J,
                      int threads) {
    const auto vectors = [](int64_t columns) { return (columns + LANES<T> - 1) / LANES<T>; };
    // the operand in whose columns the vectors lie: with few columns they would be mostly padding
    const bool flipped = vectors(I) * J < vectors(J) * I;
    const T *left = flipped ? dy : x, *right = flipped ? x : dy;
    const int64_t rows = flipped ? J : I, columns = flipped ? I : J;
    const int64_t left_step = flipped ? N * J : x_step, right_step = flipped ? x_step : N * J;
    const int64_t cuts = std::min(parts(B, threads), rows);
    parallel_for(B * cuts, threads, [&](int64_t task) {
        const int64_t b = task / cuts, first = rows * (task % cuts) / cuts, last = rows * (task % cuts + 1) / cuts;
        const int64_t size = panels_size(Right<T>{nullptr, CHUNK, columns, 0, 0});
        Scratch scratch(Scratch::rounded(size * sizeof(T)) + Scratch::rounded((last - first) * columns * sizeof(T)));
        T *panels = scratch.take<T>(size);
        T *result = flipped ? scratch.take<T>((last - first) * columns) : out + (b * I + first) * J;
        std::fill(result, result + (last - first) * columns, T(0));
        for (int64_t n = 0; n < N; n += CHUNK) {
            const Right<T> chunk{right + b * right_step + n * columns, std::min(CHUNK, N - n), columns, columns, 1};
            copy_panels(chunk, panels);
            multiply<T>(last - first, {left + b * left_step + n * rows + first, 1, rows}, panels, chunk.depth, columns,
                        {result, columns, result, columns});
        }
        if (flipped)
            for (int64_t j = first; j < last; ++j)
                for (int64_t i = 0; i < I; ++i)
                    out[(b * I + i) * J + j] = result[(j - first) * I + i];
    });
}

// out[b, j] = sum_n dy[b, n, j], in chunks, in order.
template <typename T> static void sum_rows(const T *dy, T *out, int64_t B, int64_t N, int64_t J, int threads) {
    parallel_for(B, threads, [&](int64_t b) {
        Scratch scratch(Scratch::rounded(J * sizeof(T)));
        T *__restrict__ sum = scratch.take<T>(J), *total = out + b * J;
        std::fill(total, total + J, T(0));
        for (int64_t first = 0; first < N; first += CHUNK) {
            const int64_t last = std::min(first + CHUNK, N);
            std::fill(sum, sum + J, T(0));
            int64_t n = first;
            for (; n + 4 <= last; n += 4) {
                const T *x = dy + (b * N + n) * J;
                for (int64_t j = 0; j < J; ++j)
                    sum[j] += (x[j] + x[J + j]) + (x[2 * J + j] + x[3 * J + j]);
            }
            for (; n < last; ++n)
                for (int64_t j = 0; j < J; ++j)
                    sum[j] += dy[(b * N + n) * J + j];
            for (int64_t j = 0; j < J; ++j)
                total[j] += sum[j];
        }
    });
}

void register_dense(Kernels<float> &f, Kernels<double> &d) {
    f.matmul = matmul<float>;
    d.matmul = matmul<double>;
    f.matmul_nt = matmul_nt<float>;
    d.matmul_nt = matmul_nt<double>;
    f.matmul_tn = matmul_tn<float>;
    d.matmul_tn = matmul_tn<double>;
    f.sum_rows = sum_rows<float>;
    d.sum_rows = sum_rows<double>;
}

} // namespace codesgc::CODESGC_ISA
