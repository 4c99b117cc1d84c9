"""Polynomial bases, by name in `BASES`; adding one is one short file (CONTRIBUTING.md)."""

from codesgc.bases.base import BASES, Basis, Tabulated, make_basis
from codesgc.bases.bernstein import Bernstein
from codesgc.bases.chebyshev import Chebyshev, ChebyshevSecond
from codesgc.bases.favard import Favard
from codesgc.bases.interpolation import Interpolation
from codesgc.bases.jacobi import Jacobi
from codesgc.bases.legendre import Legendre
from codesgc.bases.monomial import Monomial
from codesgc.bases.optbasis import OptBasis

__all__ = [
    "BASES",
    "Basis",
    "Bernstein",
    "Chebyshev",
    "ChebyshevSecond",
    "Favard",
    "Interpolation",
    "Jacobi",
    "Legendre",
    "Monomial",
    "OptBasis",
    "Tabulated",
    "make_basis",
]
