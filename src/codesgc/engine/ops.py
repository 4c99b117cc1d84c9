"""The engine's products as torch operators: autograd, fake tensors and `torch.compile` know them.

Sparse matrices are passed by their handles. An operator's numbers come from `native` where its kernels serve, and from
`portable` elsewhere. Each product is linear in each of its arguments, so that its gradients are products of the same
kinds; those have gradients, too, and second derivatives work. A product may end in a dropout, given by keys (B,) and
rates (B,) or by None: a diagonal, which is its own adjoint.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from codesgc.engine import native, portable
from codesgc.engine.sparse import CSR

Optional = Tensor | None
Function = Callable[..., Any]


def engine(tensor: Tensor) -> ModuleType:
    """Where the numbers for such a tensor come from."""
    return native if native.serves(tensor) else portable


class _Mode(threading.local):
    direct = False


_mode = _Mode()


@contextmanager
def called_directly() -> Iterator[None]:
    """Operators run as plain autograd functions: the same numbers, without the cost of torch's dispatcher.

    For the trainer, whose tensors are ordinary ones. What compiles, traces or transforms needs the operators.
    """
    before, _mode.direct = _mode.direct, True
    try:
        yield
    finally:
        _mode.direct = before


def operator(
    fake: Function, context: Function | None = None, backward: Function | None = None
) -> Callable[[Function], Function]:
    """Registers a function as `codesgc::<its name>`, with its results' shapes and its gradients, if it has any."""

    def register(function: Function) -> Function:
        name = function.__name__
        op = torch.library.custom_op(f"codesgc::{name}", function, mutates_args=())
        op.register_fake(fake)
        direct: Any = None
        if context is not None and backward is not None:
            op.register_autograd(backward, setup_context=context)
            noting = context

            def forward(ctx: Any, *args: Any) -> Any:  # in one piece: torch inspects signatures at every call otherwise
                output = function(*args)
                noting(ctx, args, output)
                return output

            methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
            direct = type(name, (torch.autograd.Function,), methods)

        def call(*args: Any) -> Any:
            if not _mode.direct:
                return op(*args)
            return direct.apply(*args) if direct is not None and torch.is_grad_enabled() else function(*args)

        return call

    return register


def _given(gradient: Optional, like: Tensor) -> Tensor:
    """Operators return tensors; one without elements stands for a gradient that was not asked for."""
    return like.new_empty(0) if gradient is None else gradient


def _wanted(gradients: tuple[Tensor, ...], needs: tuple[bool, ...]) -> tuple[Optional, ...]:
    return tuple(gradient if need else None for gradient, need in zip(gradients, needs, strict=True))


def _dropped(X: int, keys: Optional, rate: Optional) -> CSR:
    matrix = CSR.of(X)
    return matrix if keys is None or rate is None else matrix.dropped(keys, rate)


# --- dropout: linear in x and its own adjoint


def _dropout_fake(x: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
    return x.new_empty(keys.shape[0], x.shape[1])


def _dropout_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, keys, rate = inputs
    ctx.shape = x.shape
    ctx.save_for_backward(keys, rate)


def _dropout_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
    keys, rate = ctx.saved_tensors
    return dropout(dy, keys, rate).sum_to_size(ctx.shape), None, None


@operator(_dropout_fake, _dropout_context, _dropout_backward)
def dropout(x: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
    """x (B or 1, n) with the masks of keys (B,) at rates (B,): (B, n)."""
    return engine(x).dropout(x, keys, rate)


# --- dense products. With L(dy, x, w) = <gx, y w^T> + <gw, x^T y> + <gb, 1^T y>, y = dropped(dy), the gradients of the
# gradients are dropped(gx w + x gw + 1 gb^T), y gw^T and gx^T y


def _affine_fake(x: Tensor, w: Tensor, bias: Optional, keys: Optional, rate: Optional) -> Tensor:
    return x.new_empty(w.shape[0], x.shape[1], w.shape[2])


def _affine_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, w, _, keys, rate = inputs
    ctx.save_for_backward(x, w)
    ctx.keys, ctx.rate = keys, rate


def _affine_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
    x, w = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    return *_wanted(affine_backward(x, w, dy, ctx.keys, ctx.rate, *needs), needs), None, None


@operator(_affine_fake, _affine_context, _affine_backward)
def affine(x: Tensor, w: Tensor, bias: Optional, keys: Optional, rate: Optional) -> Tensor:
    """dropped(x w + 1 bias^T): (B or 1, N, I), (B, I, J), (B, J) -> (B, N, J)."""
    return engine(x).affine(x, w, bias, keys, rate)


def _affine_backward_fake(
    x: Tensor, w: Tensor, dy: Tensor, keys: Optional, rate: Optional, need_x: bool, need_w: bool, need_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    db = w.new_empty((w.shape[0], w.shape[2]) if need_bias else 0)
    return x.new_empty(x.shape if need_x else 0), w.new_empty(w.shape if need_w else 0), db


def _affine_backward_context(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, dy, ctx.keys, ctx.rate, *ctx.needs = inputs
    ctx.save_for_backward(x, w, dy)


def _affine_backward_backward(ctx: Any, gx: Tensor, gw: Tensor, gb: Tensor) -> tuple[Optional, ...]:
    (x, w, dy), (need_x, need_w, need_bias) = ctx.saved_tensors, ctx.needs
    masks = ctx.keys, ctx.rate
    ddy = torch.zeros_like(dy)
    dx = dw = None
    if need_x:
        ddy = ddy + affine(gx, w, None, *masks)
        dw = affine_backward(gx, w, dy, *masks, False, True, False)[1]
    if need_w:
        ddy = ddy + affine(x, gw, gb if need_bias else None, *masks)
        dx = affine_backward(x, gw, dy, *masks, True, False, False)[0]
    elif need_bias:
        ddy = ddy + affine(x, torch.zeros_like(w), gb, *masks)
    return dx, dw, ddy, None, None, None, None, None


@operator(_affine_backward_fake, _affine_backward_context, _affine_backward_backward)
def affine_backward(
    x: Tensor, w: Tensor, dy: Tensor, keys: Optional, rate: Optional, need_x: bool, need_w: bool, need_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """dx = y w^T, dw = x^T y, db = 1^T y for y = dropped(dy), dy (B, N, J); those that are needed."""
    dx, dw, db = engine(x).affine_backward(x, w, dy, keys, rate, (need_x, need_w, need_bias))
    dx = None if dx is None else dx.sum_to_size(x.shape)
    return _given(dx, x), _given(dw, w), _given(db, dy)


# --- sparse features, which are data: only the weights have gradients


def _features_fake(
    X: int, w: Tensor, bias: Optional, X_keys: Optional, X_rate: Optional, keys: Optional, rate: Optional
) -> Tensor:
    return w.new_empty(w.shape[0], CSR.of(X).shape[0], w.shape[2])


def _features_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.X, _, _, *ctx.masks = inputs
    ctx.alive = CSR.of(ctx.X)


def _features_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
    needs = ctx.needs_input_grad[1:3]
    dw, db = features_backward(ctx.X, dy, *ctx.masks, needs[1])
    return None, *_wanted((dw, db), needs), None, None, None, None


@operator(_features_fake, _features_context, _features_backward)
def features(
    X: int, w: Tensor, bias: Optional, X_keys: Optional, X_rate: Optional, keys: Optional, rate: Optional
) -> Tensor:
    """dropped(dropped(X) w + 1 bias^T): w (B, I, J) -> (B, N, J)."""
    return engine(w).features(_dropped(X, X_keys, X_rate), w, bias, keys, rate)


def _features_backward_fake(
    X: int, dy: Tensor, X_keys: Optional, X_rate: Optional, keys: Optional, rate: Optional, need_bias: bool
) -> tuple[Tensor, Tensor]:
    dw = dy.new_empty(dy.shape[0], CSR.of(X).shape[1], dy.shape[2])
    return dw, dy.new_empty((dy.shape[0], dy.shape[2]) if need_bias else 0)


def _features_backward_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.X, _, *ctx.masks, ctx.need_bias = inputs
    ctx.alive = CSR.of(ctx.X)


def _features_backward_backward(ctx: Any, gw: Tensor, gb: Tensor) -> tuple[Optional, ...]:
    return None, features(ctx.X, gw, gb if ctx.need_bias else None, *ctx.masks), None, None, None, None, None


@operator(_features_backward_fake, _features_backward_context, _features_backward_backward)
def features_backward(
    X: int, dy: Tensor, X_keys: Optional, X_rate: Optional, keys: Optional, rate: Optional, need_bias: bool
) -> tuple[Tensor, Tensor]:
    """dw = dropped(X)^T y (B, I, J) and, where it is needed, db = 1^T y, for y = dropped(dy), dy (B, N, J)."""
    dw, db = engine(dy).features_backward(_dropped(X, X_keys, X_rate), dy, keys, rate, need_bias)
    return dw, _given(db, dy)


# --- products with polynomials of a graph matrix: with L(dy, x, a) = <dy, Y(x, a)>, the gradients are those of L in x
# and in a, and the gradients of those are values and gradients of L(dy, gx, a) + L(dy, x, ga)


def _products(name: str) -> tuple[Function, Function]:
    """The operators of `portable.<name>`, a function of dense x and a, and of its gradients, to any order."""

    def forward(S: int, x: Tensor, a: Tensor, keys: Optional, rate: Optional) -> Tensor:
        return getattr(engine(x), name)(CSR.of(S), x, a, keys, rate)

    def backward(
        S: int, dy: Tensor, x: Tensor, a: Tensor, keys: Optional, rate: Optional, need_x: bool, need_a: bool
    ) -> tuple[Tensor, Tensor]:
        gradients_of = getattr(engine(x), f"{name}_backward")
        dx, da = gradients_of(CSR.of(S), dy.contiguous(), x, a, (need_x, need_a), keys, rate)
        return _given(dx, x), _given(da, a)

    def product_fake(S: int, x: Tensor, a: Tensor, keys: Optional, rate: Optional) -> Tensor:
        return x.new_empty(*x.shape[:-1], a.shape[-1])

    def gradients_fake(
        S: int, dy: Tensor, x: Tensor, a: Tensor, keys: Optional, rate: Optional, need_x: bool, need_a: bool
    ) -> tuple[Tensor, Tensor]:
        return x.new_empty(x.shape if need_x else 0), a.new_empty(a.shape if need_a else 0)

    def product_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.S, x, a, *ctx.masks = inputs
        ctx.alive = CSR.of(ctx.S)
        ctx.save_for_backward(x, a)

    def gradients_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.S, dy, x, a, *ctx.masks, need_x, need_a = inputs
        ctx.alive, ctx.needs = CSR.of(ctx.S), (need_x, need_a)
        ctx.save_for_backward(dy, x, a)

    def product_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
        x, a = ctx.saved_tensors
        needs = ctx.needs_input_grad[1:3]
        return None, *_wanted(gradients(ctx.S, dy, x, a, *ctx.masks, *needs), needs), None, None

    def gradients_backward(ctx: Any, gx: Tensor, ga: Tensor) -> tuple[Optional, ...]:
        (dy, x, a), (need_x, need_a) = ctx.saved_tensors, ctx.needs
        ddy = torch.zeros_like(dy)
        dx = da = None
        if need_x:
            ddy = ddy + product(ctx.S, gx, a, *ctx.masks)
            da = gradients(ctx.S, dy, gx, a, *ctx.masks, False, True)[1]
        if need_a:
            ddy = ddy + product(ctx.S, x, ga, *ctx.masks)
            dx = gradients(ctx.S, dy, x, ga, *ctx.masks, True, False)[0]
        return None, ddy, dx, da, None, None, None, None

    forward.__name__, backward.__name__ = name, f"{name}_backward"
    product = operator(product_fake, product_context, product_backward)(forward)
    gradients = operator(gradients_fake, gradients_context, gradients_backward)(backward)
    return product, gradients


filter, _ = _products("filter")
synthesise, _synthesise_backward = _products("synthesise")
analyse, _ = _products("analyse")


# --- the core of Tucker: an affine map and a synthesis whose tensor in between is not stored


def _core_fake(S: int, t: Tensor, G: Tensor, *_: Any) -> Tensor:
    return t.new_empty(G.shape[0], t.shape[1], G.shape[2])


def _core_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.S, t, G, b, a, *ctx.masks = inputs
    ctx.alive = CSR.of(ctx.S)
    ctx.save_for_backward(t, G, b, a)


def _core_backward(ctx: Any, dz: Tensor) -> tuple[Optional, ...]:
    """Where the gradients need gradients themselves, they come from the operators of the two parts, which have them."""
    needs, tensors = ctx.needs_input_grad[1:5], ctx.saved_tensors
    gradients = _core_backward_in_parts if torch.is_grad_enabled() else core_backward
    return None, *_wanted(gradients(ctx.S, dz, *tensors, *ctx.masks, *needs), needs), None, None, None, None


@operator(_core_fake, _core_context, _core_backward)
def core(
    S: int,
    t: Tensor,
    G: Tensor,
    b: Optional,
    a: Tensor,
    G_keys: Optional,
    G_rate: Optional,
    Z_keys: Optional,
    Z_rate: Optional,
) -> Tensor:
    """dropped_Z(sum_k T_k(S) (H a_k)), H = dropped_G(t G + 1 b^T): (B, N, Q).

    t (B or 1, N, P), G (B, P, Q, R), b (B, Q, R), a (B, K+1, R).
    """
    return engine(t).core(CSR.of(S), t, G, b, a, (G_keys, G_rate), (Z_keys, Z_rate))


def _core_backward_fake(
    S: int, dz: Tensor, t: Tensor, G: Tensor, b: Optional, a: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    need_t, need_G, need_b, need_a = rest[-4:]
    db = G.new_empty((G.shape[0], *G.shape[2:]) if need_b else 0)
    dt, dG = t.new_empty(t.shape if need_t else 0), G.new_empty(G.shape if need_G else 0)
    return dt, dG, db, a.new_empty(a.shape if need_a else 0)


@operator(_core_backward_fake)
def core_backward(
    S: int,
    dz: Tensor,
    t: Tensor,
    G: Tensor,
    b: Optional,
    a: Tensor,
    G_keys: Optional,
    G_rate: Optional,
    Z_keys: Optional,
    Z_rate: Optional,
    need_t: bool,
    need_G: bool,
    need_b: bool,
    need_a: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of core; those that are needed."""
    needs = need_t, need_G, need_b, need_a
    masks = (G_keys, G_rate), (Z_keys, Z_rate)
    dt, dG, db, da = engine(t).core_backward(CSR.of(S), dz.contiguous(), t, G, b, a, *masks, needs)
    dt = None if dt is None else dt.sum_to_size(t.shape)
    return _given(dt, t), _given(dG, G), _given(db, G), _given(da, a)


def _core_backward_in_parts(
    S: int, dz: Tensor, t: Tensor, G: Tensor, b: Optional, a: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    """H = affine(t, G, b), Z = synthesise(H, a)."""
    G_keys, G_rate, Z_keys, Z_rate, *needs = rest
    w = G.flatten(2)
    h = affine(t, w, None if b is None else b.flatten(1), G_keys, G_rate).unflatten(2, G.shape[2:])
    dh, da = _synthesise_backward(S, dz[..., None], h, a[..., None], Z_keys, Z_rate, any(needs[:3]), needs[3])
    if not any(needs[:3]):
        return dh, dh, dh, da[..., 0]
    dt, dw, db = affine_backward(t, w, dh.flatten(2), G_keys, G_rate, *needs[:3])
    return dt, dw.reshape(G.shape) if needs[1] else dw, db.unflatten(1, G.shape[2:]) if needs[2] else db, da.squeeze(-1)


def _synthesise_features_fake(S: int, X: int, a: Tensor, keys: Optional, rate: Optional) -> Tensor:
    return a.new_empty(a.shape[0], CSR.of(X).shape[0], 1, a.shape[3])


def _synthesise_features_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.S, ctx.X, values, *_, ctx.keys, ctx.rate = inputs
    ctx.alive = CSR.of(ctx.S), CSR.of(ctx.X)
    ctx.order = values.shape[1] - 1


def _synthesise_features_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
    return None, None, synthesise_features_backward(ctx.S, ctx.X, dy, ctx.order, ctx.keys, ctx.rate), None, None


@operator(_synthesise_features_fake, _synthesise_features_context, _synthesise_features_backward)
def synthesise_features(S: int, X: int, a: Tensor, keys: Optional, rate: Optional) -> Tensor:
    """sum_k T_k(S) (dropped(X) A_k): a (B, K+1, I, J) -> (B, N, 1, J)."""
    return engine(a).synthesise(CSR.of(S), _dropped(X, keys, rate), a)


def _synthesise_features_backward_fake(
    S: int, X: int, dy: Tensor, order: int, keys: Optional, rate: Optional
) -> Tensor:
    return dy.new_empty(dy.shape[0], order + 1, CSR.of(X).shape[1], dy.shape[3])


def _synthesise_features_backward_backward(ctx: Any, g: Tensor) -> tuple[Optional, ...]:
    return None, None, synthesise_features(ctx.S, ctx.X, g, ctx.keys, ctx.rate), None, None, None


@operator(_synthesise_features_backward_fake, _synthesise_features_context, _synthesise_features_backward_backward)
def synthesise_features_backward(S: int, X: int, dy: Tensor, order: int, keys: Optional, rate: Optional) -> Tensor:
    """dA_k = dropped(X)^T T_k(S) dy, k = 0, ..., order: dy (B, N, 1, J) -> (B, K+1, I, J)."""
    x = _dropped(X, keys, rate)
    a = dy.new_empty(dy.shape[0], order + 1, x.shape[1], dy.shape[3])
    return _given(engine(dy).synthesise_backward(CSR.of(S), dy.contiguous(), x, a, (False, True))[1], dy)


# --- the loss, which computes its gradient on the way


def _cross_entropy_fake(scores: Tensor, labels: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), torch.empty_like(scores)


def _cross_entropy_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _cross_entropy_backward(ctx: Any, losses: Tensor, _: Tensor) -> tuple[Optional, ...]:
    (grad,) = ctx.saved_tensors
    return grad * losses[:, None, None], None, None


@operator(_cross_entropy_fake, _cross_entropy_context, _cross_entropy_backward)
def cross_entropy(scores: Tensor, labels: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy over nodes (B, n) of scores (B, N, J) for each replicate, (B,), and its gradient (B, N, J)."""
    return engine(scores).cross_entropy(scores, labels, nodes)
