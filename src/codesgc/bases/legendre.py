"""Legendre polynomials."""

import torch
from torch import Tensor

from codesgc.bases.base import Basis, three_term


class Legendre(Basis, name="legendre"):
    """P_0 = 1, P_1 = t, k P_k = (2k - 1) t P_{k-1} - (k - 1) P_{k-2}.

    >>> Legendre().evaluate(torch.tensor([0.5]), order=2).flatten().tolist()
    [1.0, 0.5, -0.125]
    """

    fixed = True

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        return three_term(order, torch.ones_like(points), lambda k, p, q: ((2 * k - 1) * points * p - (k - 1) * q) / k)
