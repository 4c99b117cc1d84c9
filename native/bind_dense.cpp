// Bindings of what happens at each node: features, dense products, dropout, the optimiser and the loss.
#include "bind.h"

namespace codesgc {
namespace {

using Keys = Array<const int64_t, 1>;
using Thresholds = Ints<1>;
template <typename T> using Scales = Array<const T, 1>;
template <typename A> using Maybe = std::optional<A>;

template <typename A> auto pointer(const Maybe<A> &array) { return array ? array->data() : nullptr; }

// An array is taken as it is or refused: what is written to a converted copy would be lost.
auto array(const char *name) { return nb::arg(name).noconvert(); }

constexpr int64_t MOST_ELEMENTS = int64_t(1) << 32;

void check_masks(const Keys &keys, const Thresholds &thresholds, int64_t B, int64_t count) {
    expect_shape(keys, "keys", {B});
    expect_shape(thresholds, "thresholds", {B});
    for (int64_t b = 0; b < B; ++b)
        if (thresholds.data()[b] < 0 || thresholds.data()[b] > 65536)
            refuse("threshold " + std::to_string(thresholds.data()[b]) + " of replicate " + std::to_string(b) +
                   ": expected 0 to 65536, the rate in units of 2^-16");
    if (count < 0 || count > MOST_ELEMENTS)
        refuse("dropout on " + std::to_string(count) + " elements: expected 0 to 2^32 a replicate");
}

template <typename T>
void check_optional_masks(const Maybe<Keys> &keys, const Maybe<Thresholds> &thresholds, const Maybe<Scales<T>> &scales,
                          int64_t B, int64_t count) {
    if (keys.has_value() != thresholds.has_value() || keys.has_value() != scales.has_value())
        refuse("some of keys, thresholds and scales are None: expected all of them, or none");
    if (!keys)
        return;
    check_masks(*keys, *thresholds, B, count);
    expect_shape(*scales, "scales", {B});
}

// Signals of each replicate, or one for all: the numbers from one replicate's to the next one's.
template <typename A> int64_t shared_step(const A &x, const char *name, int64_t B, int64_t size) {
    if (int64_t(x.shape(0)) != B && x.shape(0) != 1)
        refuse(std::string(name) + " has " + std::to_string(x.shape(0)) + " entries on axis 0: expected " +
               std::to_string(B) + ", or 1 that all replicates share");
    return int64_t(x.shape(0)) == B ? size : 0;
}

void check_range(const Array<const int64_t, 1> &x, const char *name, int64_t end, const char *what) {
    for (size_t i = 0; i < x.shape(0); ++i)
        if (x.data()[i] < 0 || x.data()[i] >= end)
            refuse(std::string(name) + " holds " + std::to_string(x.data()[i]) + ": expected 0 to " +
                   std::to_string(end - 1) + ", " + what);
}

void check_nodes(const Array<const int64_t, 1> &labels, const Array<const int64_t, 2> &nodes, int64_t B, int64_t N,
                 int64_t J) {
    expect_shape(labels, "labels", {N});
    expect_shape(nodes, "nodes", {B, int64_t(nodes.shape(1))});
    check_range(labels, "labels", J, "one of the scores");
    for (size_t i = 0; i < nodes.size(); ++i)
        if (nodes.data()[i] < 0 || nodes.data()[i] >= N)
            refuse("nodes holds " + std::to_string(nodes.data()[i]) + ": expected 0 to " + std::to_string(N - 1));
}

template <typename T> void bind(nb::module_ &m) {
    m.def(
        "dropout",
        [](Array<const T, 2> x, Keys keys, Thresholds thresholds, Scales<T> scales, Array<T, 2> out, int threads) {
            const int64_t B = out.shape(0), n = out.shape(1), step = shared_step(x, "x", B, n);
            expect_shape(x, "x", {int64_t(x.shape(0)), n});
            check_masks(keys, thresholds, B, n);
            expect_shape(scales, "scales", {B});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().dropout(x.data(), step, keys.data(), thresholds.data(), scales.data(), out.data(), B, n,
                                 threads);
        },
        array("x"), array("keys"), array("thresholds"), array("scales"), array("out"), "threads"_a = 1,
        "out[b] <- x[b] * kept * scales[b]: x (B, n), or (1, n) for all; out (B, n), which may be x.");
    m.def(
        "sparse_matmul",
        [](const Csr<T> &X, Array<const T, 3> w, Maybe<Array<const T, 2>> bias, Maybe<Keys> keys,
           Maybe<Thresholds> thresholds, Maybe<Scales<T>> scales, Array<T, 3> out, int threads) {
            const int64_t B = w.shape(0), J = w.shape(2);
            expect_shape(w, "w", {B, X.cols, J});
            if (bias)
                expect_shape(*bias, "bias", {B, J});
            check_optional_masks<T>(keys, thresholds, scales, B, X.values.size());
            expect_shape(out, "out", {B, X.rows, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().sparse_matmul(X, w.data(), pointer(bias), pointer(keys), pointer(thresholds), pointer(scales),
                                       out.data(), B, J, threads);
        },
        "X"_a, array("w"), array("bias").none(), array("keys").none(), array("thresholds").none(), array("scales").none(), array("out"),
        "threads"_a = 1,
        "out[b] <- dropped(X) w[b] + 1 bias[b]^T: w (B, I, J), bias (B, J), out (B, N, J); without keys nothing drops.");
    m.def(
        "sparse_matmul_t",
        [](const Csr<T> &X, Array<const T, 3> y, Maybe<Keys> keys, Maybe<Thresholds> thresholds, Maybe<Scales<T>> scales,
           Array<T, 3> out, int threads) {
            const int64_t B = y.shape(0), J = y.shape(2);
            expect_shape(y, "y", {B, X.rows, J});
            check_optional_masks<T>(keys, thresholds, scales, B, X.values.size());
            expect_shape(out, "out", {B, X.cols, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().sparse_matmul_t(X, y.data(), pointer(keys), pointer(thresholds), pointer(scales), out.data(), B,
                                         J, threads);
        },
        "X"_a, array("y"), array("keys").none(), array("thresholds").none(), array("scales").none(), array("out"), "threads"_a = 1,
        "out[b] <- dropped(X)^T y[b]: y (B, N, J), out (B, I, J); without keys nothing drops.");
    m.def(
        "matmul",
        [](Array<const T, 3> x, Array<const T, 3> w, Maybe<Array<const T, 2>> bias, Array<T, 3> out, int threads) {
            const int64_t B = w.shape(0), I = w.shape(1), J = w.shape(2), N = x.shape(1);
            const int64_t step = shared_step(x, "x", B, N * I);
            expect_shape(x, "x", {int64_t(x.shape(0)), N, I});
            if (bias)
                expect_shape(*bias, "bias", {B, J});
            expect_shape(out, "out", {B, N, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().matmul(x.data(), step, w.data(), pointer(bias), out.data(), B, N, I, J, threads);
        },
        array("x"), array("w"), array("bias").none(), array("out"), "threads"_a = 1,
        "out[b] <- x[b] w[b] + 1 bias[b]^T: x (B, N, I), or (1, N, I) for all, w (B, I, J), bias (B, J).");
    m.def(
        "matmul_nt",
        [](Array<const T, 3> dy, Array<const T, 3> w, Array<T, 3> out, int threads) {
            const int64_t B = w.shape(0), I = w.shape(1), J = w.shape(2), N = dy.shape(1);
            expect_shape(dy, "dy", {B, N, J});
            expect_shape(out, "out", {B, N, I});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().matmul_nt(dy.data(), w.data(), out.data(), B, N, I, J, threads);
        },
        array("dy"), array("w"), array("out"), "threads"_a = 1, "out[b] <- dy[b] w[b]^T: dy (B, N, J), w (B, I, J), out (B, N, I).");
    m.def(
        "matmul_tn",
        [](Array<const T, 3> x, Array<const T, 3> dy, Array<T, 3> out, int threads) {
            const int64_t B = dy.shape(0), N = dy.shape(1), J = dy.shape(2), I = x.shape(2);
            const int64_t step = shared_step(x, "x", B, N * I);
            expect_shape(x, "x", {int64_t(x.shape(0)), N, I});
            expect_shape(out, "out", {B, I, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().matmul_tn(x.data(), step, dy.data(), out.data(), B, N, I, J, threads);
        },
        array("x"), array("dy"), array("out"), "threads"_a = 1,
        "out[b] <- x[b]^T dy[b]: x (B, N, I), or (1, N, I) for all, dy (B, N, J), out (B, I, J).");
    m.def(
        "sum_rows",
        [](Array<const T, 3> dy, Array<T, 2> out, int threads) {
            const int64_t B = dy.shape(0), N = dy.shape(1), J = dy.shape(2);
            expect_shape(out, "out", {B, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().sum_rows(dy.data(), out.data(), B, N, J, threads);
        },
        array("dy"), array("out"), "threads"_a = 1, "out[b] <- 1^T dy[b]: dy (B, N, J), out (B, J).");
    m.def(
        "adam",
        [](Array<T, 2> p, Array<const T, 2> g, Array<T, 2> m, Array<T, 2> v, Array<const double, 1> lr,
           Array<const double, 1> weight_decay, Array<const double, 1> step, double beta1, double beta2, double eps,
           int threads) {
            const int64_t B = p.shape(0), n = p.shape(1);
            expect_shape(g, "g", {B, n});
            expect_shape(m, "m", {B, n});
            expect_shape(v, "v", {B, n});
            expect_shape(lr, "lr", {B});
            expect_shape(weight_decay, "weight_decay", {B});
            expect_shape(step, "step", {B});
            for (int64_t b = 0; b < B; ++b)
                if (!(step.data()[b] >= 1))
                    refuse("step " + std::to_string(step.data()[b]) + " of replicate " + std::to_string(b) +
                           ": expected a number >= 1, the update's own included");
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().adam(p.data(), g.data(), m.data(), v.data(), lr.data(), weight_decay.data(), step.data(), beta1,
                              beta2, eps, B, n, threads);
        },
        array("p"), array("g"), array("m"), array("v"), array("lr"), array("weight_decay"), array("step"), "beta1"_a, "beta2"_a, "eps"_a, "threads"_a = 1,
        "One update of p, m, v (B, n) in place from the gradient g; lr, weight_decay, step (B,) in float64.");
    m.def(
        "cross_entropy",
        [](Array<const T, 3> scores, Array<const int64_t, 1> labels, Array<const int64_t, 2> nodes, Array<T, 1> losses,
           Array<T, 3> grad, int threads) {
            const int64_t B = scores.shape(0), N = scores.shape(1), J = scores.shape(2), n = nodes.shape(1);
            check_nodes(labels, nodes, B, N, J);
            expect_shape(losses, "losses", {B});
            expect_shape(grad, "grad", {B, N, J});
            if (n == 0)
                refuse("nodes has 0 entries on axis 1: expected at least one node to take the mean of");
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().cross_entropy(scores.data(), labels.data(), nodes.data(), losses.data(), grad.data(), B, N, J, n,
                                       threads);
        },
        array("scores"), array("labels"), array("nodes"), array("losses"), array("grad"), "threads"_a = 1,
        "losses[b] <- mean over nodes[b] of -log softmax(scores[b])[label], grad[b] <- its gradient: (B,), (B, N, J).");
    m.def(
        "correct",
        [](Array<const T, 3> scores, Array<const int64_t, 1> labels, Array<const int64_t, 2> nodes,
           Array<int64_t, 1> out, int threads) {
            const int64_t B = scores.shape(0), N = scores.shape(1), J = scores.shape(2);
            check_nodes(labels, nodes, B, N, J);
            expect_shape(out, "out", {B});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().correct(scores.data(), labels.data(), nodes.data(), out.data(), B, N, J, nodes.shape(1), threads);
        },
        array("scores"), array("labels"), array("nodes"), array("out"), "threads"_a = 1,
        "out[b] <- how many of nodes[b] have the largest of their scores (B, N, J) at their label.");
}

} // namespace

void bind_dense(nb::module_ &m) {
    m.def(
        "keep_bits",
        [](Keys keys, Thresholds thresholds, int64_t count, Array<uint32_t, 2> out, int threads) {
            const int64_t B = keys.shape(0);
            check_masks(keys, thresholds, B, count);
            expect_shape(out, "out", {B, (count + 31) / 32});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<float>().keep_bits(keys.data(), thresholds.data(), count, out.data(), B, threads);
        },
        array("keys"), array("thresholds"), "count"_a, array("out"), "threads"_a = 1,
        "Bit e % 32 of out[b, e // 32] (uint32) <- whether element e of `count` stays.");
    bind<float>(m);
    bind<double>(m);
}

} // namespace codesgc
