"""Linear maps of signals that may be sparse; every replicate has the bits that it has alone."""

from typing import Any

import torch
from torch import Tensor

from codesgc.engine import ops
from codesgc.engine.dropout import Dropout, broadcast, masks_for
from codesgc.engine.sparse import CSR


def linear(x: Tensor | CSR, weight: Tensor, bias: Tensor | None = None, drop: Dropout | None = None) -> Tensor:
    """dropped(x W + 1 b^T): x (..., N, I) or CSR (N, I), weight (..., I, J), bias (..., J) -> (..., N, J)."""
    leading = x.batch if isinstance(x, CSR) else x.shape[:-2]
    batch = broadcast(leading, weight.shape[:-2])
    batch, masks = masks_for(drop, batch)
    w = weight.expand(*batch, *weight.shape[-2:]).reshape(-1, *weight.shape[-2:])
    b = None if bias is None else bias.expand(*batch, bias.shape[-1]).reshape(-1, bias.shape[-1])
    if isinstance(x, CSR):
        X, keys, rate = x.operands(batch)
        out: Tensor = ops.features(X.handle, w, b, keys, rate, *masks)
    else:
        flat = x[None] if x.dim() == 2 else x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:])
        out = ops.affine(flat, w, b, *masks)
    return out.reshape(*batch, *out.shape[1:])


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a b: (..., N, I), (..., I, J) -> (..., N, J), where a replicate's bits do not depend on the others."""
    return linear(a, b)


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
