"""The three products with Chebyshev polynomials of a graph matrix, and their gradients.

For a symmetric S with its spectrum in [-1, 1], and h, x, Y with the nodes as rows:

    filter(S, h, m)       Y = sum_k T_k(S) h diag(m_k)       the columns of h propagate, each with its own polynomial
    synthesise(S, x, A)   Y = sum_k T_k(S) (x A_k)           the columns of the result propagate (Clenshaw)
    analyse(S, x, A)      Y = sum_k (T_k(S) x) A_k           the columns of x propagate

The last two are the same function: `synthesise` is for results narrower than x, `analyse` for the opposite. Each is
linear in its two arguments, and S is its own transpose, so both gradients are again sums of T_k(S) applied to dY
(or to x): one more sweep of the recurrence T_{k+1} = 2 S T_k - T_{k-1}, of which only two terms are ever kept. Memory
is a few buffers of one term's size, whatever the order. Because each result is bilinear, the gradients' own gradients
are the same functions once more, so that second derivatives work, too.

Shapes: S has N rows; h (..., N, C) and m (..., K+1, C); x (..., N, Q, I) and A (..., K+1, I, J) give Y (..., N, Q, J),
where the middle axis Q is a batch of signals that share the coefficients. x may also be a CSR of features (N, I), then
Y is (..., N, 1, J).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from codesgc.engine.dense import matmul
from codesgc.engine.sparse import CSR

Signals = Tensor | CSR
Forward = Callable[[CSR, Signals, Tensor], Tensor]
Needs = tuple[bool, bool]  # whether the gradients in (x, a) are wanted
Gradient = tuple[Tensor | None, Tensor | None]
Backward = Callable[[CSR, Tensor, Signals, Tensor, Needs], Gradient]


def chebyshev_terms(S: CSR, v: Tensor, order: int) -> Iterator[Tensor]:
    """T_0(S) v, ..., T_order(S) v for v (B, N, C), each valid until the next but one is asked for."""
    yield v
    if order == 0:
        return
    previous, current = v.clone(), S @ v
    yield current
    for _ in range(order - 1):
        previous, current = current, S.advance(previous, current)
        yield current


def _filter(S: CSR, h: Signals, m: Tensor) -> Tensor:
    assert isinstance(h, Tensor)
    out = torch.zeros_like(h)
    for k, term in enumerate(chebyshev_terms(S, h, m.shape[-2] - 1)):
        out.addcmul_(term, m[:, k, None, :])
    return out


def _filter_backward(S: CSR, dy: Tensor, h: Signals, m: Tensor, needs: Needs) -> Gradient:
    """dh = sum_k T_k(S) dy diag(m_k),  dm[k, c] = <h[:, c], T_k(S) dy[:, c]>: one sweep over dy."""
    assert isinstance(h, Tensor)
    dh = torch.zeros_like(h) if needs[0] else None
    dm = torch.empty_like(m) if needs[1] else None
    for k, term in enumerate(chebyshev_terms(S, dy, m.shape[-2] - 1)):
        if dh is not None:
            dh.addcmul_(term, m[:, k, None, :])
        if dm is not None:
            dm[:, k] = (h * term).sum(1)
    return dh, dm


def _times(x: Signals, a: Tensor) -> Tensor:
    """x A_k as (B, N, Q J): x (B, N, Q, I) or CSR (N, I), a (B, I, J)."""
    if isinstance(x, CSR):
        return x @ a
    return matmul(x.flatten(1, 2), a).reshape(*x.shape[:2], -1)


def _transpose_times(x: Signals, y: Tensor) -> Tensor:
    """x^T y as (B, I, J), summed over nodes and Q: x (B, N, Q, I) or CSR (N, I), y (B, N, Q J)."""
    if isinstance(x, CSR):
        return x.T @ y
    batch, _, _, columns = x.shape
    return matmul(x.reshape(batch, -1, columns).mT, y.reshape(batch, x.shape[1] * x.shape[2], -1))


def _groups(x: Signals) -> int:
    return 1 if isinstance(x, CSR) else x.shape[2]


def _synthesise(S: CSR, x: Signals, a: Tensor) -> Tensor:
    """Clenshaw: b_k = x A_k + 2 S b_{k+1} - b_{k+2},  Y = x A_0 + S b_1 - b_2."""
    order, groups = a.shape[1] - 1, _groups(x)
    if order == 0:
        return _times(x, a[:, 0]).unflatten(2, (groups, -1))
    current = _times(x, a[:, order])
    previous = torch.zeros_like(current)
    for k in range(order - 1, 0, -1):
        previous, current = current, S.advance(previous, current).add_(_times(x, a[:, k]))
    return (S @ current).sub_(previous).add_(_times(x, a[:, 0])).unflatten(2, (groups, -1))


def _synthesise_backward(S: CSR, dy: Tensor, x: Signals, a: Tensor, needs: Needs) -> Gradient:
    """dx = sum_k (T_k(S) dy) A_k^T,  dA_k = x^T T_k(S) dy: one sweep over dy."""
    dx = torch.zeros_like(x) if needs[0] and isinstance(x, Tensor) else None
    da = torch.empty_like(a) if needs[1] else None
    for k, term in enumerate(chebyshev_terms(S, dy.flatten(2), a.shape[1] - 1)):
        if da is not None:
            da[:, k] = _transpose_times(x, term)
        if dx is not None:
            dx += _times(term.reshape(dy.shape), a[:, k].mT).reshape(dx.shape)
    return dx, da


def _analyse(S: CSR, x: Signals, a: Tensor) -> Tensor:
    assert isinstance(x, Tensor)
    out = x.new_zeros(*x.shape[:3], a.shape[-1])
    for k, term in enumerate(chebyshev_terms(S, x.flatten(2), a.shape[1] - 1)):
        out += _times(term.reshape(x.shape), a[:, k]).reshape(out.shape)
    return out


def _analyse_backward(S: CSR, dy: Tensor, x: Signals, a: Tensor, needs: Needs) -> Gradient:
    """dx = sum_k T_k(S) (dy A_k^T), from the output side;  dA_k = (T_k(S) x)^T dy with the terms computed again."""
    assert isinstance(x, Tensor)
    da = torch.empty_like(a) if needs[1] else None
    if da is not None:
        for k, term in enumerate(chebyshev_terms(S, x.flatten(2), a.shape[1] - 1)):
            da[:, k] = _transpose_times(term.reshape(x.shape), dy.flatten(2))
    return _synthesise(S, dy, a.mT) if needs[0] else None, da


def _bilinear(forward: Forward, backward: Backward) -> Callable[[CSR, Signals, Tensor], Tensor]:
    """The differentiable function of (x, a) whose value and gradients the two sweeps compute."""

    class Gradients(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, dy: Tensor, x: Signals, a: Tensor, S: CSR, needs: Needs) -> Gradient:
            ctx.S, ctx.sparse = S, x if isinstance(x, CSR) else None
            ctx.save_for_backward(dy, a, *(() if isinstance(x, CSR) else (x,)))
            return backward(S, dy.contiguous(), x, a, needs)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            # with L(dy, x, a) = <dy, Y(x, a)>, the gradients' gradients are those of L(dy, gx, a) + L(dy, x, ga)
            S, (gx, ga), (dy, a, *dense) = ctx.S, grads, ctx.saved_tensors
            x = ctx.sparse if ctx.sparse is not None else dense[0]
            by_x = None if gx is None else product(S, gx, a)
            by_a = None if ga is None else product(S, x, ga)
            ddy = by_a if by_x is None else by_x if by_a is None else by_x + by_a
            dx = None if ga is None or ctx.sparse is not None else Gradients.apply(dy, x, ga, S, (True, False))[0]
            da = None if gx is None else Gradients.apply(dy, gx, a, S, (False, True))[1]
            return ddy, dx, da, None, None

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Signals, a: Tensor, S: CSR) -> Tensor:
            ctx.S, ctx.sparse = S, x if isinstance(x, CSR) else None
            ctx.save_for_backward(a, *(() if isinstance(x, CSR) else (x,)))
            return forward(S, x, a)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            a, *dense = ctx.saved_tensors
            x = ctx.sparse if ctx.sparse is not None else dense[0]
            return *Gradients.apply(grads[0], x, a, ctx.S, ctx.needs_input_grad[:2]), None

    def product(S: CSR, x: Signals, a: Tensor) -> Tensor:
        out: Tensor = Product.apply(x, a, S)
        return out

    return product


_diagonal = _bilinear(_filter, _filter_backward)
_output_side = _bilinear(_synthesise, _synthesise_backward)
_input_side = _bilinear(_analyse, _analyse_backward)


def _flat(t: Tensor, batch: torch.Size, axes: int) -> Tensor:
    """Leading axes broadcast to `batch` and merged into one; the last `axes` axes stay."""
    own = t.shape[t.dim() - axes :]
    return t.expand(*batch, *own).reshape(-1, *own)


def filter(S: CSR, h: Tensor, m: Tensor) -> Tensor:
    """sum_k T_k(S) h diag(m_k): h (..., N, C), m (..., K+1, C) or (..., K+1, 1) -> (..., N, C)."""
    batch = torch.broadcast_shapes(h.shape[:-2], m.shape[:-2])
    m = m.expand(*m.shape[:-1], h.shape[-1])
    return _diagonal(S, _flat(h, batch, 2).contiguous(), _flat(m, batch, 2)).reshape(*batch, *h.shape[-2:])


def _mixed(side: Callable[[CSR, Signals, Tensor], Tensor], S: CSR, x: Signals, a: Tensor) -> Tensor:
    if isinstance(x, CSR):
        batch = torch.broadcast_shapes(x.values.shape[:-1], a.shape[:-3])
        x = x.with_values(_flat(x.values, batch, 1)) if x.values.dim() > 1 else x
        out = side(S, x, _flat(a, batch, 3))
        return out.reshape(*batch, *out.shape[1:])
    batch = torch.broadcast_shapes(x.shape[:-3], a.shape[:-3])
    out = side(S, _flat(x, batch, 3).contiguous(), _flat(a, batch, 3))
    return out.reshape(*batch, *out.shape[1:])


def synthesise(S: CSR, x: Signals, a: Tensor) -> Tensor:
    """sum_k T_k(S) (x A_k), propagating Q J columns: x (..., N, Q, I) or CSR (N, I), a (..., K+1, I, J)."""
    return _mixed(_output_side, S, x, a)


def analyse(S: CSR, x: Tensor, a: Tensor) -> Tensor:
    """sum_k (T_k(S) x) A_k, propagating Q I columns: x (..., N, Q, I), a (..., K+1, I, J)."""
    return _mixed(_input_side, S, x, a)
