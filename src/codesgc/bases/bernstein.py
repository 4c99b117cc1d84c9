"""Bernstein polynomials (BernNet)."""

from math import comb

import torch
from torch import Tensor

from codesgc.bases.base import Basis


class Bernstein(Basis, name="bernstein"):
    """P_k(t) = binomial(K, k) (1 - t)^(K-k) t^k: nonnegative on [0, 1], where they sum to 1.

    >>> Bernstein().evaluate(torch.tensor([0.5]), order=2).flatten().tolist()
    [0.25, 0.5, 0.25]
    """

    fixed = True

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        k = torch.arange(order + 1, dtype=points.dtype, device=points.device)[:, None]
        binomials = torch.tensor([comb(order, i) for i in range(order + 1)]).to(points)[:, None]
        return binomials * (1 - points) ** (order - k) * points**k
