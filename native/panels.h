// The microkernel of the dense products: a tile of the result, some rows by V vectors, stays in registers while the sum
// runs; the right operand lies in panels of V vectors, so that it is read in order, padded with zeros.
#pragma once
#include "isa.h"
#include "mask.h"

#include <array>
#include <utility>

namespace codesgc::CODESGC_ISA {

// Rows of a tile of V vectors, as many as the registers hold.
template <int V> constexpr int ROWS = REGISTERS == 32 ? (V == 4 ? 6 : V == 2 ? 8 : 12) : 12 / V;

// The left operand of a product: element (row, k) is data[row * row_step + k * k_step].
template <typename T> struct Left {
    const T *data;
    int64_t row_step, k_step;
};

// The result: row r starts at data + r * step; `add` likewise, with steps of its own, or null. `drop`, if it is not
// null, drops what is written, where data is the element `element`.
template <typename T> struct Result {
    T *data;
    int64_t step;
    const T *add;
    int64_t add_step;
    Dropping<T> *drop = nullptr;
    int64_t element = 0;

    Result at(int64_t row, int64_t column) const {
        return {data + row * step + column, step, add ? add + row * add_step + column : nullptr, add_step, drop,
                element + row * step + column};
    }
};

// c[r, :] = sum_k left[r, k] panel[k, :] (+ add[r, :]), the first `width` columns.
template <int R, int V, typename T>
inline void tile(Left<T> left, const T *panel, int64_t depth, Result<T> c, int64_t width) {
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
                if (c.drop)
                    sum[r][v] = c.drop->apply(sum[r][v], c.element + r * c.step + v * L, count);
                store_part(c.data + r * c.step + v * L, sum[r][v], count);
            }
}

// All rows of a panel's columns, tile by tile.
template <int V, typename T>
inline void multiply_panel(int64_t rows, Left<T> left, const T *panel, int64_t depth, Result<T> c, int64_t width) {
    constexpr auto tiles = []<size_t... i>(std::index_sequence<i...>) {
        return std::array{tile<int(i) + 1, V, T>...};
    }(std::make_index_sequence<ROWS<V>>());
    for (int64_t r = 0; r < rows; r += ROWS<V>) {
        const int64_t count = std::min<int64_t>(ROWS<V>, rows - r);
        tiles[count - 1]({left.data + r * left.row_step, left.row_step, left.k_step}, panel, depth,
                         c.at(r, 0), width);
    }
}

// Vectors of the panel that starts where `columns` are left: 4, 2 or 1.
template <typename T> inline int64_t panel_vectors(int64_t columns) {
    const int64_t vectors = (columns + LANES<T> - 1) / LANES<T>;
    return vectors >= 4 ? 4 : vectors >= 2 ? 2 : 1;
}

// The right operand: element (k, column) is data[k * k_step + column * column_step].
template <typename T> struct Right {
    const T *data;
    int64_t depth, columns, k_step, column_step;
};

// Panels one behind the other, `size` numbers in all; each starts at its first column times the depth.
template <typename T> inline int64_t panels_size(const Right<T> &right) {
    return right.depth * ((right.columns + LANES<T> - 1) / LANES<T> * LANES<T>);
}
template <typename T> inline void copy_panels(const Right<T> &right, T *to) {
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
inline void multiply(int64_t rows, Left<T> left, const T *panels, int64_t depth, int64_t columns, Result<T> c) {
    for (int64_t column = 0; column < columns;) {
        const int64_t vectors = panel_vectors<T>(columns - column), width = std::min(vectors * LANES<T>, columns - column);
        const auto f = vectors == 4 ? multiply_panel<4, T> : vectors == 2 ? multiply_panel<2, T> : multiply_panel<1, T>;
        f(rows, left, panels + column * depth, depth, c.at(0, column), width);
        column += vectors * LANES<T>;
    }
}

} // namespace codesgc::CODESGC_ISA
