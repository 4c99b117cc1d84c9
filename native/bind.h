// What the bindings share: array types and checks of what Python passes.
#pragma once
#include "kernels.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>

namespace codesgc {

namespace nb = nanobind;
using namespace nb::literals;

template <typename T, int N> using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Keys = Array<const int64_t, 1>;
template <int N> using Ints = nb::ndarray<const int32_t, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

[[noreturn]] inline void refuse(const std::string &message) { throw std::invalid_argument(message); }

// Every dimension of an array as expected, named in the message otherwise.
template <typename A> void expect_shape(const A &array, const char *name, std::initializer_list<int64_t> shape) {
    int64_t axis = 0;
    for (int64_t size : shape) {
        if (int64_t(array.shape(axis)) != size)
            refuse(std::string(name) + " has " + std::to_string(array.shape(axis)) + " entries on axis " +
                   std::to_string(axis) + ": expected " + std::to_string(size));
        ++axis;
    }
}

inline int checked_threads(int threads) {
    if (threads < 1)
        refuse("threads " + std::to_string(threads) + ": expected a whole number >= 1");
    return threads;
}

template <typename A> using Maybe = std::optional<A>;
template <typename A> auto pointer(const Maybe<A> &array) { return array ? array->data() : nullptr; }

constexpr int64_t MOST_ELEMENTS = int64_t(1) << 32;

// The checked dropout of a tensor (B, count).
inline Drop checked_drop(const Maybe<Keys> &keys, const Maybe<Ints<1>> &thresholds, int64_t B, int64_t count) {
    if (keys.has_value() != thresholds.has_value())
        refuse("only one of keys and thresholds is None: expected both of them, or neither");
    if (!keys)
        return {};
    expect_shape(*keys, "keys", {B});
    expect_shape(*thresholds, "thresholds", {B});
    for (int64_t b = 0; b < B; ++b)
        if (thresholds->data()[b] < 0 || thresholds->data()[b] > 65536)
            refuse("threshold " + std::to_string(thresholds->data()[b]) + " of replicate " + std::to_string(b) +
                   ": expected 0 to 65536, the rate in units of 2^-16");
    if (count < 0 || count > MOST_ELEMENTS)
        refuse("dropout on " + std::to_string(count) + " elements: expected 0 to 2^32 a replicate");
    return {keys->data(), thresholds->data()};
}

template <typename T> void expect_square(const Csr<T> &S) {
    if (S.rows != S.cols)
        refuse("S has " + std::to_string(S.rows) + " rows and " + std::to_string(S.cols) +
               " columns: expected a square matrix");
}

// Each adds its functions to the module, for float and for double.
void bind_propagation(nb::module_ &m);
void bind_dense(nb::module_ &m);

} // namespace codesgc
