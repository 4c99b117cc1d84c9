"""The learnable orthogonal basis of FavardGNN (paper, equations 28 and 29)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from codesgc.bases.base import Basis, three_term


def favard(points: Tensor, order: int, gamma: Tensor, q: Tensor) -> Tensor:
    """The recurrence below for given gamma and q (..., K+1): values (..., K+1, n)."""
    gamma, q = gamma.to(points)[..., None, :], q.to(points)[..., None, :]
    return three_term(
        order,
        torch.ones_like(points) / q[..., 0],
        lambda k, p, r: ((points - gamma[..., k - 1]) * p - q[..., k - 1] * r) / q[..., k],
    )


class Favard(Basis, name="favard"):
    """P_0 = 1 / q_0,  P_k = ((t - gamma_{k-1}) P_{k-1} - q_{k-1} P_{k-2}) / q_k with q_k = sqrt(beta_k) > 0.

    Any gamma and any q > 0 make the P_k orthonormal for some measure (Favard), so the basis itself can be learned; its
    gradient passes through K+1 points and not through the graph. Parameters are gamma and log q, of shape
    (..., [channels,] K+1); they start at gamma = 0, q_0 = 1 and q_k = 1/2, where P_k = U_k, Chebyshev of the second
    kind. With `channels` every input channel has its own basis.

    >>> Favard(order=2).evaluate(torch.tensor([0.5]), order=2).detach().flatten().tolist()
    [1.0, 1.0, 0.0]
    """

    def __init__(self, order: int, channels: int | None = None, *, replicates: int | None = None) -> None:
        super().__init__()
        self.channels = channels
        shape = tuple(n for n in (replicates, channels) if n is not None)
        self.gamma = nn.Parameter(torch.empty(*shape, order + 1))
        self.log_q = nn.Parameter(torch.empty(*shape, order + 1))
        self.reset_parameters()

    @classmethod
    def build(cls, order: int, channels: int, replicates: int | None, /, **options: Any) -> "Favard":
        return cls(order, channels if options.get("channels") else None, replicates=replicates)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Chebyshev polynomials of the second kind; nothing is drawn."""
        with torch.no_grad():
            self.gamma.zero_()
            self.log_q.fill_(math.log(0.5))
            self.log_q[..., 0] = 0.0

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        return favard(points, order, self.gamma, self.log_q.to(points).exp())
