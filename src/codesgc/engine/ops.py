"""The engine's products as torch operators: autograd, fake tensors and `torch.compile` know them.

Sparse matrices are passed by their handles. An operator's numbers come from `native` where its kernels serve, and from
`portable` elsewhere. Each product is linear in each of its arguments, so that its gradients are products of the same
kinds; those have gradients, too, and second derivatives work.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from codesgc.engine import native, portable
from codesgc.engine.sparse import CSR

Optional = Tensor | None


def engine(tensor: Tensor) -> ModuleType:
    """Where the numbers for such a tensor come from."""
    return native if native.serves(tensor) else portable


def _given(gradient: Optional, like: Tensor) -> Tensor:
    """Operators return tensors; one without elements stands for a gradient that was not asked for."""
    return like.new_empty(0) if gradient is None else gradient


def _dropped(X: int, keys: Optional, rate: Optional) -> CSR:
    matrix = CSR.of(X)
    return matrix if keys is None or rate is None else matrix.dropped(keys, rate)


# --- dropout: linear in x and its own adjoint


@torch.library.custom_op("codesgc::dropout", mutates_args=())
def dropout(x: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
    """x (B or 1, n) with the masks of keys (B,) at rates (B,): (B, n)."""
    return engine(x).dropout(x, keys, rate)


@dropout.register_fake
def _(x: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
    return x.new_empty(keys.shape[0], x.shape[1])


def _dropout_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, keys, rate = inputs
    ctx.shape = x.shape
    ctx.save_for_backward(keys, rate)


def _dropout_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
    keys, rate = ctx.saved_tensors
    return dropout(dy, keys, rate).sum_to_size(ctx.shape), None, None


dropout.register_autograd(_dropout_backward, setup_context=_dropout_context)


# --- dense products


@torch.library.custom_op("codesgc::affine", mutates_args=())
def affine(x: Tensor, w: Tensor, bias: Optional) -> Tensor:
    """x w + 1 bias^T: (B or 1, N, I), (B, I, J), (B, J) -> (B, N, J)."""
    return engine(x).affine(x, w, bias)


@affine.register_fake
def _(x: Tensor, w: Tensor, bias: Optional) -> Tensor:
    return x.new_empty(w.shape[0], x.shape[1], w.shape[2])


@torch.library.custom_op("codesgc::matmul_nt", mutates_args=())
def matmul_nt(y: Tensor, w: Tensor) -> Tensor:
    """y w^T: (B, N, J), (B, I, J) -> (B, N, I)."""
    return engine(y).matmul_nt(y, w)


@matmul_nt.register_fake
def _(y: Tensor, w: Tensor) -> Tensor:
    return y.new_empty(y.shape[0], y.shape[1], w.shape[1])


@torch.library.custom_op("codesgc::matmul_tn", mutates_args=())
def matmul_tn(x: Tensor, y: Tensor) -> Tensor:
    """x^T y: (B or 1, N, I), (B, N, J) -> (B, I, J)."""
    return engine(y).matmul_tn(x, y)


@matmul_tn.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return y.new_empty(y.shape[0], x.shape[2], y.shape[2])


@torch.library.custom_op("codesgc::sum_rows", mutates_args=())
def sum_rows(y: Tensor) -> Tensor:
    """1^T y: (B, N, J) -> (B, J)."""
    return engine(y).sum_rows(y)


@sum_rows.register_fake
def _(y: Tensor) -> Tensor:
    return y.new_empty(y.shape[0], y.shape[2])


def _save_tensors(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*(i for i in inputs if isinstance(i, Tensor)))


def _affine_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
    x, w = ctx.saved_tensors[:2]
    dx = matmul_nt(dy, w).sum_to_size(x.shape) if ctx.needs_input_grad[0] else None
    dw = matmul_tn(x, dy) if ctx.needs_input_grad[1] else None
    return dx, dw, sum_rows(dy) if ctx.needs_input_grad[2] else None


def _matmul_nt_backward(ctx: Any, g: Tensor) -> tuple[Optional, ...]:
    y, w = ctx.saved_tensors
    return affine(g, w, None), matmul_tn(g, y)


def _matmul_tn_backward(ctx: Any, g: Tensor) -> tuple[Optional, ...]:
    x, y = ctx.saved_tensors
    return matmul_nt(y, g).sum_to_size(x.shape), affine(x, g, None)


def _sum_rows_backward(ctx: Any, g: Tensor) -> Tensor:
    return g[:, None].expand(*g.shape[:1], ctx.rows, *g.shape[1:])


def _sum_rows_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.rows = inputs[0].shape[1]


affine.register_autograd(_affine_backward, setup_context=_save_tensors)
matmul_nt.register_autograd(_matmul_nt_backward, setup_context=_save_tensors)
matmul_tn.register_autograd(_matmul_tn_backward, setup_context=_save_tensors)
sum_rows.register_autograd(_sum_rows_backward, setup_context=_sum_rows_context)


# --- sparse features, which are data: only the weights have gradients


@torch.library.custom_op("codesgc::features", mutates_args=())
def features(X: int, w: Tensor, bias: Optional, keys: Optional, rate: Optional) -> Tensor:
    """dropped(X) w + 1 bias^T: w (B, I, J) -> (B, N, J)."""
    return engine(w).features(_dropped(X, keys, rate), w, bias)


@features.register_fake
def _(X: int, w: Tensor, bias: Optional, keys: Optional, rate: Optional) -> Tensor:
    return w.new_empty(w.shape[0], CSR.of(X).shape[0], w.shape[2])


@torch.library.custom_op("codesgc::features_transposed", mutates_args=())
def features_transposed(X: int, y: Tensor, keys: Optional, rate: Optional) -> Tensor:
    """dropped(X)^T y: y (B, N, J) -> (B, I, J)."""
    return engine(y).features_transposed(_dropped(X, keys, rate), y)


@features_transposed.register_fake
def _(X: int, y: Tensor, keys: Optional, rate: Optional) -> Tensor:
    return y.new_empty(y.shape[0], CSR.of(X).shape[1], y.shape[2])


def _features_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.X, ctx.keys, ctx.rate, ctx.alive = inputs[0], inputs[-2], inputs[-1], CSR.of(inputs[0])


def _features_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
    dw = features_transposed(ctx.X, dy, ctx.keys, ctx.rate) if ctx.needs_input_grad[1] else None
    return None, dw, sum_rows(dy) if ctx.needs_input_grad[2] else None, None, None


def _features_transposed_backward(ctx: Any, g: Tensor) -> tuple[Optional, ...]:
    return None, features(ctx.X, g, None, ctx.keys, ctx.rate), None, None


features.register_autograd(_features_backward, setup_context=_features_context)
features_transposed.register_autograd(_features_transposed_backward, setup_context=_features_context)


# --- products with polynomials of a graph matrix: with L(dy, x, a) = <dy, Y(x, a)>, the gradients are those of L in x
# and in a, and the gradients of those are values and gradients of L(dy, gx, a) + L(dy, x, ga)


def _products(name: str) -> Any:
    """The operator of `portable.<name>`, a function of dense x and a, with its gradients to any order."""

    def forward(S: int, x: Tensor, a: Tensor) -> Tensor:
        return getattr(engine(x), name)(CSR.of(S), x, a)

    def backward(S: int, dy: Tensor, x: Tensor, a: Tensor, need_x: bool, need_a: bool) -> tuple[Tensor, Tensor]:
        dx, da = getattr(engine(x), f"{name}_backward")(CSR.of(S), dy.contiguous(), x, a, (need_x, need_a))
        return _given(dx, x), _given(da, a)

    product = torch.library.custom_op(f"codesgc::{name}", forward, mutates_args=())
    gradients = torch.library.custom_op(f"codesgc::{name}_backward", backward, mutates_args=())

    @product.register_fake
    def _(S: int, x: Tensor, a: Tensor) -> Tensor:
        return x.new_empty(*x.shape[:-1], a.shape[-1])

    @gradients.register_fake
    def _(S: int, dy: Tensor, x: Tensor, a: Tensor, need_x: bool, need_a: bool) -> tuple[Tensor, Tensor]:
        return x.new_empty(x.shape if need_x else 0), a.new_empty(a.shape if need_a else 0)

    def context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.S, ctx.alive, ctx.needs = inputs[0], CSR.of(inputs[0]), inputs[-2:]
        ctx.save_for_backward(*(i for i in inputs if isinstance(i, Tensor)))

    def product_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
        x, a = ctx.saved_tensors
        _, need_x, need_a = ctx.needs_input_grad
        dx, da = gradients(ctx.S, dy, x, a, need_x, need_a)
        return None, dx if need_x else None, da if need_a else None

    def gradients_backward(ctx: Any, gx: Tensor, ga: Tensor) -> tuple[Optional, ...]:
        (dy, x, a), (need_x, need_a) = ctx.saved_tensors, ctx.needs
        ddy = torch.zeros_like(dy)
        dx = da = None
        if need_x:
            ddy, da = ddy + product(ctx.S, gx, a), gradients(ctx.S, dy, gx, a, False, True)[1]
        if need_a:
            ddy, dx = ddy + product(ctx.S, x, ga), gradients(ctx.S, dy, x, ga, True, False)[0]
        return None, ddy, dx, da, None, None

    product.register_autograd(product_backward, setup_context=context)
    gradients.register_autograd(gradients_backward, setup_context=context)
    return product


filter = _products("filter")
synthesise = _products("synthesise")
analyse = _products("analyse")


@torch.library.custom_op("codesgc::synthesise_features", mutates_args=())
def synthesise_features(S: int, X: int, a: Tensor, keys: Optional, rate: Optional) -> Tensor:
    """sum_k T_k(S) (dropped(X) A_k): a (B, K+1, I, J) -> (B, N, 1, J)."""
    return engine(a).synthesise(CSR.of(S), _dropped(X, keys, rate), a)


@synthesise_features.register_fake
def _(S: int, X: int, a: Tensor, keys: Optional, rate: Optional) -> Tensor:
    return a.new_empty(a.shape[0], CSR.of(X).shape[0], 1, a.shape[3])


@torch.library.custom_op("codesgc::synthesise_features_backward", mutates_args=())
def synthesise_features_backward(S: int, X: int, dy: Tensor, order: int, keys: Optional, rate: Optional) -> Tensor:
    """dA_k = dropped(X)^T T_k(S) dy, k = 0, ..., order: dy (B, N, 1, J) -> (B, K+1, I, J)."""
    x = _dropped(X, keys, rate)
    a = dy.new_empty(dy.shape[0], order + 1, x.shape[1], dy.shape[3])
    return _given(engine(dy).synthesise_backward(CSR.of(S), dy.contiguous(), x, a, (False, True))[1], dy)


@synthesise_features_backward.register_fake
def _(S: int, X: int, dy: Tensor, order: int, keys: Optional, rate: Optional) -> Tensor:
    return dy.new_empty(dy.shape[0], order + 1, CSR.of(X).shape[1], dy.shape[3])


def _synthesise_features_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    (ctx.S, ctx.X), (ctx.keys, ctx.rate) = inputs[:2], inputs[-2:]
    ctx.alive = CSR.of(ctx.S), CSR.of(ctx.X)
    ctx.order = inputs[2].shape[1] - 1 if isinstance(inputs[2], Tensor) and inputs[2].dim() == 4 else 0


def _synthesise_features_backward(ctx: Any, dy: Tensor) -> tuple[Optional, ...]:
    return None, None, synthesise_features_backward(ctx.S, ctx.X, dy, ctx.order, ctx.keys, ctx.rate), None, None


def _synthesise_features_backward_backward(ctx: Any, g: Tensor) -> tuple[Optional, ...]:
    return None, None, synthesise_features(ctx.S, ctx.X, g, ctx.keys, ctx.rate), None, None, None


synthesise_features.register_autograd(_synthesise_features_backward, setup_context=_synthesise_features_context)
synthesise_features_backward.register_autograd(
    _synthesise_features_backward_backward, setup_context=_synthesise_features_context
)


# --- the loss, which computes its gradient on the way


@torch.library.custom_op("codesgc::cross_entropy", mutates_args=())
def cross_entropy(scores: Tensor, labels: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy over nodes (B, n) of scores (B, N, J) for each replicate, (B,), and its gradient (B, N, J)."""
    return engine(scores).cross_entropy(scores, labels, nodes)


@cross_entropy.register_fake
def _(scores: Tensor, labels: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), torch.empty_like(scores)


def _cross_entropy_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _cross_entropy_backward(ctx: Any, losses: Tensor, _: Tensor) -> tuple[Optional, ...]:
    (grad,) = ctx.saved_tensors
    return grad * losses[:, None, None], None, None


cross_entropy.register_autograd(_cross_entropy_backward, setup_context=_cross_entropy_context)
