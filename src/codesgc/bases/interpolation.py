"""Interpolation at Chebyshev nodes (ChebNetII)."""

from torch import Tensor

from codesgc.bases.base import Basis, chebyshev_nodes
from codesgc.bases.chebyshev import Chebyshev


class Interpolation(Basis, name="interpolation"):
    """P_l is the polynomial of degree K that is 1 at the node x_l = cos((l + 1/2) pi / (K+1)) and 0 at the others:

        P_l(t) = 2 / (K+1) sum'_k T_k(x_l) T_k(t)        (the term k = 0 is halved)

    so a coefficient is the value of the filter at a node.

    >>> import torch
    >>> Interpolation().evaluate(chebyshev_nodes(2)[0], order=2).round().abs().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    fixed = True

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        _, cosines = chebyshev_nodes(order)
        return cosines.to(points) @ Chebyshev().evaluate(points, order)
