// Bindings of the products with a graph matrix.
#include "bind.h"

namespace codesgc {
namespace {

void expect_terms(const char *name, int64_t terms) {
    if (terms < 1)
        refuse(std::string(name) + " has 0 entries on axis 1: expected K + 1, one for each polynomial T_0, ..., T_K");
}

struct Sizes {
    int64_t B, Q, I, J, K;
};

template <typename T>
Sizes sizes(const Csr<T> &S, const Array<const T, 4> &x, const Array<const T, 4> &a, int64_t J) {
    expect_square(S);
    const int64_t B = x.shape(0), Q = x.shape(2), I = x.shape(3), terms = a.shape(1);
    expect_shape(x, "x", {B, S.rows, Q, I});
    expect_terms("a", terms);
    expect_shape(a, "a", {B, terms, I, J});
    return {B, Q, I, J, terms - 1};
}

template <typename T>
void expect_gradients(const Csr<T> &S, const Sizes &s, const Array<const T, 4> &dy,
                      const std::optional<Array<T, 4>> &dx, const std::optional<Array<T, 4>> &da) {
    expect_shape(dy, "dy", {s.B, S.rows, s.Q, s.J});
    if (dx)
        expect_shape(*dx, "dx", {s.B, S.rows, s.Q, s.I});
    if (da)
        expect_shape(*da, "da", {s.B, s.K + 1, s.I, s.J});
}

// What the core and its gradients are given.
template <typename T>
Core<T> checked_core(const Csr<T> &S, const Array<const T, 3> &t, const Array<const T, 4> &G,
                     const Maybe<Array<const T, 3>> &bias, const Array<const T, 3> &a, const Maybe<Keys> &H_keys,
                     const Maybe<Ints<1>> &H_thresholds, const Maybe<Keys> &keys, const Maybe<Ints<1>> &thresholds) {
    expect_square(S);
    const int64_t B = G.shape(0), P = G.shape(1), Q = G.shape(2), R = G.shape(3), terms = a.shape(1);
    if (P * Q * R == 0)
        refuse("G has no entries: expected at least one on each of its axes P, Q and R");
    expect_shape(t, "t", {t.shape(0) == 1 ? 1 : B, S.rows, P});
    if (bias)
        expect_shape(*bias, "bias", {B, Q, R});
    expect_terms("a", terms);
    expect_shape(a, "a", {B, terms, R});
    return {t.data(), t.shape(0) == 1 ? 0 : S.rows * P, G.data(), pointer(bias), a.data(), B, P, Q, R, terms - 1,
            checked_drop(H_keys, H_thresholds, B, S.rows * Q * R), checked_drop(keys, thresholds, B, S.rows * Q)};
}

// Arrays come without conversion: a result must not be written to a copy.
template <typename T> void bind(nb::module_ &m) {
    m.def(
        "filter",
        [](const Csr<T> &S, Array<const T, 3> h, Array<const T, 3> m, Maybe<Keys> keys, Maybe<Ints<1>> thresholds,
           Array<T, 3> out, int threads) {
            expect_square(S);
            const int64_t B = h.shape(0), C = h.shape(2), terms = m.shape(1);
            expect_shape(h, "h", {B, S.rows, C});
            expect_terms("m", terms);
            expect_shape(m, "m", {B, terms, C});
            expect_shape(out, "out", {B, S.rows, C});
            const Drop drop = checked_drop(keys, thresholds, B, S.rows * C);
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().filter(S, h.data(), nullptr, m.data(), out.data(), nullptr, B, C, terms - 1, {}, drop,
                                threads);
        },
        "S"_a, "h"_a.noconvert(), "m"_a.noconvert(), "keys"_a.noconvert().none(), "thresholds"_a.noconvert().none(),
        "out"_a.noconvert(), "threads"_a = 1,
        "out <- dropped(sum_k T_k(S) h diag(m_k)): h, out (B, N, C), m (B, K+1, C); without keys nothing drops.");
    m.def(
        "filter_backward",
        [](const Csr<T> &S, Array<const T, 3> dy, Array<const T, 3> h, Array<const T, 3> m, Maybe<Keys> keys,
           Maybe<Ints<1>> thresholds, std::optional<Array<T, 3>> dh, std::optional<Array<T, 3>> dm, int threads) {
            expect_square(S);
            const int64_t B = h.shape(0), C = h.shape(2), terms = m.shape(1);
            expect_shape(dy, "dy", {B, S.rows, C});
            expect_shape(h, "h", {B, S.rows, C});
            expect_terms("m", terms);
            expect_shape(m, "m", {B, terms, C});
            if (dh)
                expect_shape(*dh, "dh", {B, S.rows, C});
            if (dm)
                expect_shape(*dm, "dm", {B, terms, C});
            const Drop drop = checked_drop(keys, thresholds, B, S.rows * C);
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().filter(S, dy.data(), h.data(), m.data(), pointer(dh), pointer(dm), B, C, terms - 1, drop, {},
                                threads);
        },
        "S"_a, "dy"_a.noconvert(), "h"_a.noconvert(), "m"_a.noconvert(), "keys"_a.noconvert().none(),
        "thresholds"_a.noconvert().none(), "dh"_a.noconvert().none(), "dm"_a.noconvert().none(), "threads"_a = 1,
        "Of y = dropped(dy): dh <- sum_k T_k(S) y diag(m_k),  dm[k, c] <- <h[:, c], (T_k(S) y)[:, c]>; None for what is "
        "not needed.");
    m.def(
        "advance",
        [](const Csr<T> &S, Array<T, 3> previous, Array<const T, 3> current, std::optional<Array<const T, 3>> add,
           int threads) {
            expect_square(S);
            const int64_t B = previous.shape(0), C = previous.shape(2);
            expect_shape(previous, "previous", {B, S.rows, C});
            expect_shape(current, "current", {B, S.rows, C});
            if (add)
                expect_shape(*add, "add", {B, S.rows, C});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().advance(S, previous.data(), current.data(), add ? add->data() : nullptr, B, C, threads);
        },
        "S"_a, "previous"_a.noconvert(), "current"_a.noconvert(), "add"_a.noconvert().none(), "threads"_a = 1,
        "previous <- 2 S current - previous (+ add): one step of the Chebyshev recurrence, (B, N, C).");
    m.def(
        "synthesise",
        [](const Csr<T> &S, Array<const T, 4> x, Array<const T, 4> a, Array<T, 4> out, int threads) {
            const Sizes s = sizes(S, x, a, out.shape(3));
            expect_shape(out, "out", {s.B, S.rows, s.Q, s.J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().synthesise(S, x.data(), a.data(), out.data(), s.B, s.Q, s.I, s.J, s.K, false, threads);
        },
        "S"_a, "x"_a.noconvert(), "a"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
        "out <- sum_k T_k(S) (x A_k), propagating Q J columns: x (B, N, Q, I), a (B, K+1, I, J), out (B, N, Q, J).");
    m.def(
        "analyse",
        [](const Csr<T> &S, Array<const T, 4> x, Array<const T, 4> a, Array<T, 4> out, int threads) {
            const Sizes s = sizes(S, x, a, out.shape(3));
            expect_shape(out, "out", {s.B, S.rows, s.Q, s.J});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().analyse(S, x.data(), nullptr, a.data(), out.data(), nullptr, s.B, s.Q, s.I, s.J, s.K, false,
                                 threads);
        },
        "S"_a, "x"_a.noconvert(), "a"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
        "out <- sum_k (T_k(S) x) A_k, propagating Q I columns: x (B, N, Q, I), a (B, K+1, I, J), out (B, N, Q, J).");
    // The gradients are each other's functions: dx = sum_k (T_k(S) dy) A_k^T and da_k^T = (T_k(S) dy)^T x, or else
    // dx = sum_k T_k(S) (dy A_k^T) and da_k = (T_k(S) x)^T dy.
    m.def(
        "synthesise_backward",
        [](const Csr<T> &S, Array<const T, 4> dy, Array<const T, 4> x, Array<const T, 4> a,
           std::optional<Array<T, 4>> dx, std::optional<Array<T, 4>> da, int threads) {
            const Sizes s = sizes(S, x, a, dy.shape(3));
            expect_gradients(S, s, dy, dx, da);
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().analyse(S, dy.data(), x.data(), a.data(), pointer(dx), pointer(da), s.B, s.Q, s.J, s.I, s.K,
                                 true, threads);
        },
        "S"_a, "dy"_a.noconvert(), "x"_a.noconvert(), "a"_a.noconvert(),
        "dx"_a.noconvert().none(), "da"_a.noconvert().none(), "threads"_a = 1,
        "Gradients of synthesise, propagating Q J columns; None for what is not needed.");
    m.def(
        "analyse_backward",
        [](const Csr<T> &S, Array<const T, 4> dy, Array<const T, 4> x, Array<const T, 4> a,
           std::optional<Array<T, 4>> dx, std::optional<Array<T, 4>> da, int threads) {
            const Sizes s = sizes(S, x, a, dy.shape(3));
            expect_gradients(S, s, dy, dx, da);
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            if (dx)
                kernels<T>().synthesise(S, dy.data(), a.data(), dx->data(), s.B, s.Q, s.J, s.I, s.K, true, threads);
            if (da)
                kernels<T>().analyse(S, x.data(), dy.data(), nullptr, nullptr, da->data(), s.B, s.Q, s.I, s.J, s.K,
                                     false, threads);
        },
        "S"_a, "dy"_a.noconvert(), "x"_a.noconvert(), "a"_a.noconvert(),
        "dx"_a.noconvert().none(), "da"_a.noconvert().none(), "threads"_a = 1,
        "Gradients of analyse, propagating Q I columns; None for what is not needed.");
    m.def(
        "core",
        [](const Csr<T> &S, Array<const T, 3> t, Array<const T, 4> G, Maybe<Array<const T, 3>> bias,
           Array<const T, 3> a, Maybe<Keys> H_keys, Maybe<Ints<1>> H_thresholds, Maybe<Keys> keys,
           Maybe<Ints<1>> thresholds, Array<T, 3> out, int threads) {
            const Core<T> of = checked_core(S, t, G, bias, a, H_keys, H_thresholds, keys, thresholds);
            expect_shape(out, "out", {of.B, S.rows, of.Q});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().core(S, of, out.data(), threads);
        },
        "S"_a, "t"_a.noconvert(), "G"_a.noconvert(), "bias"_a.noconvert().none(), "a"_a.noconvert(),
        "H_keys"_a.noconvert().none(), "H_thresholds"_a.noconvert().none(), "keys"_a.noconvert().none(),
        "thresholds"_a.noconvert().none(), "out"_a.noconvert(), "threads"_a = 1,
        "out <- dropped(sum_k T_k(S) (H a_k)) for H = dropped(t G + 1 bias^T): t (B or 1, N, P), G (B, P, Q, R), bias "
        "(B, Q, R), a (B, K+1, R), out (B, N, Q).");
    m.def(
        "core_backward",
        [](const Csr<T> &S, Array<const T, 3> dz, Array<const T, 3> t, Array<const T, 4> G,
           Maybe<Array<const T, 3>> bias, Array<const T, 3> a, Maybe<Keys> H_keys, Maybe<Ints<1>> H_thresholds,
           Maybe<Keys> keys, Maybe<Ints<1>> thresholds, Maybe<Array<T, 3>> dt, Maybe<Array<T, 4>> dG,
           Maybe<Array<T, 3>> dbias, Maybe<Array<T, 3>> da, int threads) {
            const Core<T> of = checked_core(S, t, G, bias, a, H_keys, H_thresholds, keys, thresholds);
            expect_shape(dz, "dz", {of.B, S.rows, of.Q});
            if (dt)
                expect_shape(*dt, "dt", {of.B, S.rows, of.P});
            if (dG)
                expect_shape(*dG, "dG", {of.B, of.P, of.Q, of.R});
            if (dbias)
                expect_shape(*dbias, "dbias", {of.B, of.Q, of.R});
            if (da)
                expect_shape(*da, "da", {of.B, of.K + 1, of.R});
            threads = checked_threads(threads);
            nb::gil_scoped_release release;
            kernels<T>().core_backward(S, of, dz.data(), pointer(dt), pointer(dG), pointer(dbias), pointer(da),
                                       threads);
        },
        "S"_a, "dz"_a.noconvert(), "t"_a.noconvert(), "G"_a.noconvert(), "bias"_a.noconvert().none(),
        "a"_a.noconvert(), "H_keys"_a.noconvert().none(), "H_thresholds"_a.noconvert().none(),
        "keys"_a.noconvert().none(), "thresholds"_a.noconvert().none(), "dt"_a.noconvert().none(),
        "dG"_a.noconvert().none(), "dbias"_a.noconvert().none(), "da"_a.noconvert().none(), "threads"_a = 1,
        "Gradients of core; None for what is not needed.");
}

} // namespace

void bind_propagation(nb::module_ &m) {
    bind<float>(m);
    bind<double>(m);
}

} // namespace codesgc
