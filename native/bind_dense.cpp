// Bindings of what happens at each node: features, dense products, dropout, the optimiser and the loss.
#include "bind.h"

namespace codesgc {
namespace {

// An array is taken as it is or refused: what is written to a converted copy would be lost.
auto array(const char *name) { return nb::arg(name).noconvert(); }

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

// The finaliser of splitmix64: every bit of the result depends on every bit of x.
uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

int64_t stream_key(int64_t seed, int64_t step) {
    constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15u;
    return int64_t(mix(mix(uint64_t(seed) + GOLDEN) + (uint64_t(step) + 1) * GOLDEN));
}

template <typename T> void bind(nb::module_ &m) {
    m.def(
        "dropout",
        [](Array<const T, 2> x, Keys keys, Ints<1> thresholds, Array<T, 2> out, int threads) {
            const int64_t B = out.shape(0), n = out.shape(1), step = shared_step(x, "x", B, n);
            expect_shape(x, "x", {int64_t(x.shape(0)), n});
            const Drop drop = checked_drop(keys, thresholds, B, n);
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().dropout(x.data(), step, drop, out.data(), B, n, threads);
        },
        array("x"), array("keys"), array("thresholds"), array("out"), "threads"_a = 1,
        "out[b] <- dropped(x[b]): x (B, n), or (1, n) for all; out (B, n), which may be x.");
    m.def(
        "sparse_matmul",
        [](const Csr<T> &X, Array<const T, 3> w, Maybe<Array<const T, 2>> bias, Maybe<Keys> keys,
           Maybe<Ints<1>> thresholds, Maybe<Keys> out_keys, Maybe<Ints<1>> out_thresholds, Array<T, 3> out,
           int threads) {
            const int64_t B = w.shape(0), J = w.shape(2);
            expect_shape(w, "w", {B, X.cols, J});
            if (bias)
                expect_shape(*bias, "bias", {B, J});
            const Drop x_drop = checked_drop(keys, thresholds, B, X.values.size());
            const Drop drop = checked_drop(out_keys, out_thresholds, B, X.rows * J);
            expect_shape(out, "out", {B, X.rows, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().sparse_matmul(X, w.data(), pointer(bias), x_drop, drop, out.data(), B, J, threads);
        },
        "X"_a, array("w"), array("bias").none(), array("keys").none(), array("thresholds").none(),
        array("out_keys").none(), array("out_thresholds").none(), array("out"), "threads"_a = 1,
        "out[b] <- dropped(dropped(X) w[b] + 1 bias[b]^T): w (B, I, J), bias (B, J), out (B, N, J); without keys nothing "
        "drops.");
    m.def(
        "sparse_matmul_t",
        [](const Csr<T> &X, Array<const T, 3> y, Maybe<Keys> keys, Maybe<Ints<1>> thresholds, Maybe<Keys> y_keys,
           Maybe<Ints<1>> y_thresholds, Array<T, 3> out, Maybe<Array<T, 2>> sums, int threads) {
            const int64_t B = y.shape(0), J = y.shape(2);
            expect_shape(y, "y", {B, X.rows, J});
            const Drop x_drop = checked_drop(keys, thresholds, B, X.values.size());
            const Drop drop = checked_drop(y_keys, y_thresholds, B, X.rows * J);
            expect_shape(out, "out", {B, X.cols, J});
            if (sums)
                expect_shape(*sums, "sums", {B, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().sparse_matmul_t(X, y.data(), x_drop, drop, out.data(), pointer(sums), B, J, threads);
        },
        "X"_a, array("y"), array("keys").none(), array("thresholds").none(), array("y_keys").none(),
        array("y_thresholds").none(), array("out"), array("sums").none(), "threads"_a = 1,
        "out[b] <- dropped(X)^T dropped(y[b]), sums[b] <- 1^T dropped(y[b]): y (B, N, J), out (B, I, J), sums (B, J); "
        "without keys nothing drops.");
    m.def(
        "matmul",
        [](Array<const T, 3> x, Array<const T, 3> w, Maybe<Array<const T, 2>> bias, Maybe<Keys> keys,
           Maybe<Ints<1>> thresholds, Array<T, 3> out, int threads) {
            const int64_t B = w.shape(0), I = w.shape(1), J = w.shape(2), N = x.shape(1);
            const int64_t step = shared_step(x, "x", B, N * I);
            expect_shape(x, "x", {int64_t(x.shape(0)), N, I});
            if (bias)
                expect_shape(*bias, "bias", {B, J});
            const Drop drop = checked_drop(keys, thresholds, B, N * J);
            expect_shape(out, "out", {B, N, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().matmul(x.data(), step, w.data(), pointer(bias), drop, out.data(), B, N, I, J, threads);
        },
        array("x"), array("w"), array("bias").none(), array("keys").none(), array("thresholds").none(), array("out"),
        "threads"_a = 1,
        "out[b] <- dropped(x[b] w[b] + 1 bias[b]^T): x (B, N, I), or (1, N, I) for all, w (B, I, J), bias (B, J).");
    m.def(
        "matmul_backward",
        [](Array<const T, 3> x, Array<const T, 3> w, Array<const T, 3> dy, Maybe<Keys> keys, Maybe<Ints<1>> thresholds,
           Maybe<Array<T, 3>> dx, Maybe<Array<T, 3>> dw, Maybe<Array<T, 2>> sums, int threads) {
            const int64_t B = w.shape(0), I = w.shape(1), J = w.shape(2), N = x.shape(1);
            const int64_t step = shared_step(x, "x", B, N * I);
            expect_shape(x, "x", {int64_t(x.shape(0)), N, I});
            expect_shape(dy, "dy", {B, N, J});
            const Drop drop = checked_drop(keys, thresholds, B, N * J);
            if (dx)
                expect_shape(*dx, "dx", {B, N, I});
            if (dw)
                expect_shape(*dw, "dw", {B, I, J});
            if (sums)
                expect_shape(*sums, "sums", {B, J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().matmul_backward(x.data(), step, w.data(), dy.data(), drop, pointer(dx), pointer(dw),
                                         pointer(sums), B, N, I, J, threads);
        },
        array("x"), array("w"), array("dy"), array("keys").none(), array("thresholds").none(), array("dx").none(),
        array("dw").none(), array("sums").none(), "threads"_a = 1,
        "Of y = dropped(dy): dx[b] <- y[b] w[b]^T, dw[b] <- x[b]^T y[b], sums[b] <- 1^T y[b]; None for what is not "
        "needed.");
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
        "stream_keys",
        [](Keys seeds, Keys steps, Array<int64_t, 1> out) {
            expect_shape(steps, "steps", {int64_t(seeds.shape(0))});
            expect_shape(out, "out", {int64_t(seeds.shape(0))});
            for (size_t b = 0; b < seeds.shape(0); ++b)
                out.data()[b] = stream_key(seeds.data()[b], steps.data()[b]);
        },
        array("seeds"), array("steps"), array("out"), "The keys of the streams (seed, step), each (B,).");
    m.def(
        "keep_bits",
        [](Keys keys, Ints<1> thresholds, int64_t count, Array<uint32_t, 2> out, int threads) {
            const int64_t B = keys.shape(0);
            checked_drop(keys, thresholds, B, count);
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
