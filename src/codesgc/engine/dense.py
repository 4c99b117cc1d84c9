"""Dense products of replicates, each with the bits that it has alone.

A batched product rounds a slice by where it lies in the batch, so every replicate is multiplied by itself.
"""

from typing import Any

import torch
from torch import Tensor


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b slice by slice: (..., N, I), (..., I, J) with leading axes that broadcast -> (..., N, J)."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if not batch:
        return torch.mm(a, b)
    left = a.expand(*batch, *a.shape[-2:]).reshape(-1, *a.shape[-2:])
    right = b.expand(*batch, *b.shape[-2:]).reshape(-1, *b.shape[-2:])
    products = [torch.mm(x.contiguous(), y.contiguous()) for x, y in zip(left, right, strict=True)]
    return torch.stack(products).reshape(*batch, a.shape[-2], b.shape[-1])


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return _product(a, b)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        (dy,) = grads
        return (
            matmul(dy, b.mT).sum_to_size(a.shape) if ctx.needs_input_grad[0] else None,
            matmul(a.mT, dy).sum_to_size(b.shape) if ctx.needs_input_grad[1] else None,
        )


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a b: (..., N, I), (..., I, J) -> (..., N, J), where a replicate's bits do not depend on the others."""
    out: Tensor = _Matmul.apply(a, b)
    return out
