"""Linear maps of signals that may be sparse."""

from typing import Any

import torch
from torch import Tensor

from codesgc.engine.dense import matmul
from codesgc.engine.sparse import CSR


class _SparseLinear(torch.autograd.Function):
    """W -> X W for a sparse X that is data: the gradient is X^T dY, and linear in dY again."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: CSR) -> Tensor:
        ctx.x, ctx.shape = x, weight.shape
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _SparseLinear.apply(grads[0], ctx.x.T).sum_to_size(ctx.shape), None


def linear(x: Tensor | CSR, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W + 1 b^T: x (..., N, I) or CSR (N, I), weight (..., I, J), bias (..., J) -> (..., N, J)."""
    out = _SparseLinear.apply(weight, x) if isinstance(x, CSR) else matmul(x, weight)
    return out if bias is None else out + bias[..., None, :]


class _Propagate(torch.autograd.Function):
    """h -> S h for a symmetric S: its own adjoint."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, S: CSR) -> Tensor:
        ctx.S = S
        return S @ h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return propagate(ctx.S, grads[0]), None


def propagate(S: CSR, h: Tensor) -> Tensor:
    """S h for a symmetric S: h (..., N, C) -> (..., N, C)."""
    out: Tensor = _Propagate.apply(h, S)
    return out


def with_ones(x: Tensor | CSR) -> Tensor | CSR:
    """x with a first column of ones: a bias before the propagation is the coefficient of this constant signal."""
    return x.with_ones if isinstance(x, CSR) else torch.cat([x.new_ones(*x.shape[:-1], 1), x], dim=-1)
