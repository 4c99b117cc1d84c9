"""Which side of a product propagates: the cheapest by a count of multiplications.

Nodes and channels commute, so every factorisation has several orders of computation, all with the same result. A route
costs

    lanes(columns) x order x (nnz(S) x SPARSE + nodes x STEP)  +  nodes x dense

multiplications, the columns it propagates and the dense multiplications it needs at each node. In units of a dense
multiplication, SPARSE is the price of one that gathers, and STEP that of a node's turn in the recurrence, whose terms
pass through the caches. Columns come in vectors: 7 cost as much as 16. Both prices were fitted to the ten graphs of
the paper, on which the cheapest route found is the fastest or within a few per cent of it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from codesgc.engine.operator import Operator

SPARSE = 1.5
STEP = 20.0
VECTOR = 16


def lanes(columns: int) -> int:
    """Columns as the vectors hold them."""
    return -(-columns // VECTOR) * VECTOR


@dataclass(frozen=True)
class Route:
    """One order of computation. `meets`: the tensors between the factors that it forms, where a dropout may act."""

    name: str
    columns: int
    dense: float
    meets: Collection[str]
    run: Callable[[], Tensor]

    def cost(self, S: Operator, order: int) -> float:
        return lanes(self.columns) * order * (S.nnz * SPARSE + S.num_nodes * STEP) + S.num_nodes * self.dense


def cheapest(routes: Sequence[Route], S: Operator, order: int, active: Collection[str]) -> Route:
    """The cheapest route, among those that meet all tensors with an active dropout."""
    return min((r for r in routes if set(active) <= set(r.meets)), key=lambda r: r.cost(S, order))
