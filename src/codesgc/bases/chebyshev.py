"""Chebyshev polynomials of both kinds."""

import torch
from torch import Tensor

from codesgc.bases.base import Basis, three_term


class Chebyshev(Basis, name="chebyshev"):
    """T_0 = 1, T_1 = t, T_k = 2 t T_{k-1} - T_{k-2}: T_k(cos x) = cos(k x).

    >>> Chebyshev().evaluate(torch.tensor([0.5]), order=3).flatten().tolist()
    [1.0, 0.5, -0.5, -1.0]
    """

    fixed = True

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        return three_term(order, torch.ones_like(points), lambda k, p, q: (2 if k > 1 else 1) * points * p - q)


class ChebyshevSecond(Basis, name="chebyshev2"):
    """U_0 = 1, U_1 = 2 t, U_k = 2 t U_{k-1} - U_{k-2}: U_k(cos x) = sin((k+1) x) / sin x.

    >>> ChebyshevSecond().evaluate(torch.tensor([0.5]), order=3).flatten().tolist()
    [1.0, 1.0, 0.0, -1.0]
    """

    fixed = True

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        return three_term(order, torch.ones_like(points), lambda k, p, q: 2 * points * p - q)
