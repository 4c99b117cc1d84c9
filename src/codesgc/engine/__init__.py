"""The numerics every model runs on: sparse products, Chebyshev filters, counter-based dropout.

Three facts carry it (see the module docstrings): a product is propagated where it is narrowest, a filter in a
symmetric matrix is its own adjoint and so stores no term of its recurrence, and replicates share the graph: every
tensor may have leading replicate axes, and a replicate's numbers never depend on its neighbours.
"""

from codesgc.engine.dropout import Dropout, Dropouts
from codesgc.engine.filters import analyse, core, filter, synthesise
from codesgc.engine.linear import linear, matmul, with_ones
from codesgc.engine.operator import Filter, Operator
from codesgc.engine.planner import SPARSE, STEP, VECTOR, Route, cheapest, lanes
from codesgc.engine.sparse import CSR

__all__ = [
    "CSR",
    "SPARSE",
    "STEP",
    "VECTOR",
    "Dropout",
    "Dropouts",
    "Filter",
    "Operator",
    "Route",
    "analyse",
    "cheapest",
    "core",
    "filter",
    "lanes",
    "linear",
    "matmul",
    "synthesise",
    "with_ones",
]
