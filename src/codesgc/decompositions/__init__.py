"""Factorisations of the coefficient tensor, by name in `DECOMPOSITIONS`; adding one is one short file."""

from codesgc.decompositions.base import DECOMPOSITIONS, Decomposition, make_decomposition
from codesgc.decompositions.cp import CP
from codesgc.decompositions.full import Full
from codesgc.decompositions.per_channel import BoundedPerOutput, PerInput, PerOutput
from codesgc.decompositions.shared import APPNP, GCN, GPR, S2GC, SGC, Interpolated, Nonnegative
from codesgc.decompositions.tucker import Tucker, Tucker1, Tucker1C, Tucker1P, Tucker2, Tucker2CM, Tucker2CP

__all__ = [
    "APPNP",
    "CP",
    "DECOMPOSITIONS",
    "GCN",
    "GPR",
    "S2GC",
    "SGC",
    "BoundedPerOutput",
    "Decomposition",
    "Full",
    "Interpolated",
    "Nonnegative",
    "PerInput",
    "PerOutput",
    "Tucker",
    "Tucker1",
    "Tucker1C",
    "Tucker1P",
    "Tucker2",
    "Tucker2CM",
    "Tucker2CP",
    "make_decomposition",
]
