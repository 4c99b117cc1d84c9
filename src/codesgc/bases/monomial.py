"""Powers of the matrix."""

import torch
from torch import Tensor

from codesgc.bases.base import Basis


class Monomial(Basis, name="monomial"):
    """P_k(t) = t^k.

    >>> Monomial().evaluate(torch.tensor([0.5]), order=2).flatten().tolist()
    [1.0, 0.5, 0.25]
    """

    fixed = True

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        return points ** torch.arange(order + 1, dtype=points.dtype, device=points.device)[:, None]
