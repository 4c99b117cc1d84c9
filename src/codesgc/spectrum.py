"""Where a graph has its spectrum: the density of the eigenvalues of its matrix, without computing any of them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from codesgc.bases.base import three_term
from codesgc.engine import Operator
from codesgc.engine.portable import chebyshev_terms
from codesgc.errors import InputError, whole
from codesgc.graph import Graph
from codesgc.matrices import Matrix, make_matrix

EXACT = 512  # nodes up to which every unit vector is a probe: it costs less than the random ones on larger graphs


def chebyshev_moments(S: Operator, moments: int, *, probes: int | None = 16, seed: int = 0) -> Tensor:
    """mu_k = tr T_k(t) / N for k < moments, from random signs Z (N, R), R = probes:

        mu_2k = 2 <T_k Z, T_k Z> / (N R) - 1,   mu_2k+1 = 2 <T_k Z, T_k+1 Z> / (N R) - mu_1

    so that each product with t gives two moments. E Z Z^T = I makes the estimate unbiased, with a standard deviation of
    order 1 / sqrt(N R). With `probes=None` the columns of Z are all unit vectors, and the moments are exact.
    """
    N = S.num_nodes
    if probes is None:
        Z = torch.eye(N, dtype=torch.float64)
    else:
        generator = torch.Generator().manual_seed(seed)
        Z = 2.0 * torch.randint(2, (N, probes), generator=generator).double() - 1.0
    weight = 1.0 / float((Z * Z).sum())
    t = S.t.to(torch.float64).to("cpu")
    mu = torch.ones(moments + 1, dtype=torch.float64)
    before = Z
    for k, term in enumerate(chebyshev_terms(t, Z[None], (moments + 1) // 2)):
        now = term[0].clone()
        if k == 1:
            mu[1] = weight * (now * before).sum()
        elif k > 1:
            mu[2 * k - 1] = 2 * weight * (now * before).sum() - mu[1]
        if 0 < 2 * k <= moments:
            mu[2 * k] = 2 * weight * (now * now).sum() - 1
        before = now
    return mu[:moments]


def jackson(moments: int) -> Tensor:
    """g_k = ((n - k) cos(k pi / n) + sin(k pi / n) cot(pi / n)) / n with n = moments + 1.

    The damping that keeps a truncated Chebyshev series of a density non-negative; a single eigenvalue becomes a peak of
    width about pi / n.
    """
    n = moments + 1
    k = torch.arange(moments, dtype=torch.float64)
    angle = k * (math.pi / n)
    return ((n - k) * torch.cos(angle) + torch.sin(angle) / math.tan(math.pi / n)) / n


@dataclass(frozen=True)
class SpectralDensity:
    """Density rho of the eigenvalues of S = scale t + shift I, from damped Chebyshev moments of t:

        rho(scale t + shift) |scale| = (1 + 2 sum_k>0 c_k T_k(t)) / (pi sqrt(1 - t^2)),   c_k = g_k mu_k

    `coefficients` are the c_k; rho integrates to 1.
    """

    coefficients: Tensor  # (moments,)
    scale: float
    shift: float

    def grid(self, points: int = 201) -> Tensor:
        """Eigenvalues, increasing, denser towards both ends as the resolution is: (points,)."""
        angles = math.pi * (torch.arange(points, dtype=torch.float64) + 0.5) / points
        return (self.scale * angles.cos() + self.shift).sort().values

    def density(self, eigenvalues: Tensor) -> Tensor:
        """rho at these eigenvalues; 0 outside the interval that t in [-1, 1] stands for."""
        t = (eigenvalues.double() - self.shift) / self.scale
        inside = t.abs() < 1
        t = torch.where(inside, t, 0.0)
        order = len(self.coefficients) - 1
        terms = three_term(order, torch.ones_like(t), lambda k, p, q: (2 - (k == 1)) * t * p - q)
        series = 2 * self.coefficients @ terms - self.coefficients[0]
        return torch.where(inside, series / (math.pi * abs(self.scale) * (1 - t * t).sqrt()), 0.0)

    def share_below(self, eigenvalues: Tensor) -> Tensor:
        """Share of the eigenvalues that lie below these: the integral of rho, term by term."""
        t = ((eigenvalues.double() - self.shift) / self.scale).clamp(-1, 1)
        angle = t.acos()
        k = torch.arange(1, len(self.coefficients), dtype=torch.float64)
        sines = torch.sin(k[:, None] * angle) / k[:, None]
        above = (self.coefficients[0] * angle + 2 * self.coefficients[1:] @ sines) / math.pi
        return 1 - above if self.scale > 0 else above


def spectral_density(
    graph: Graph | Operator,
    matrix: str | Matrix = "sym",
    *,
    moments: int = 200,
    probes: int | None = None,
    seed: int = 0,
) -> SpectralDensity:
    """The spectral density of a graph's matrix by the kernel polynomial method (Weisse et al., 2006).

    Args:
        graph: the graph, or the operator of one in place of graph and `matrix`.
        matrix: the graph matrix S, a name in `MATRICES` or a `Matrix`.
        moments: how many Chebyshev moments; the resolution is about pi / moments of half the interval.
        probes: random vectors of the trace estimate; by default 16, and on small graphs all unit vectors.
        seed: of the random vectors.

    >>> ring = Graph([range(10), [*range(1, 10), 0]], to_undirected=True)
    >>> rho = spectral_density(ring)
    >>> rho.share_below(torch.tensor([-0.9, -0.5, 0.5])).round(decimals=2).tolist()
    [0.1, 0.3, 0.7]
    """
    moments = whole("moments", moments)
    probes = None if probes is None else whole("probes", probes)
    S = graph if isinstance(graph, Operator) else make_matrix(matrix)(graph, dtype=torch.float64)
    if S.num_nodes == 0:
        raise InputError("the graph has no nodes: expected at least one, or there is no spectrum")
    if probes is None and S.num_nodes > EXACT:
        probes = 16
    return SpectralDensity(jackson(moments) * chebyshev_moments(S, moments, probes=probes, seed=seed), S.scale, S.shift)
