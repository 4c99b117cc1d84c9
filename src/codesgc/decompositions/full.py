"""No decomposition at all (ChebNet)."""

from typing import Any

from torch import Tensor

from codesgc.decompositions.base import Decomposition, stacked
from codesgc.engine import CSR, Filter, Route


class Full(Decomposition, name="full"):
    """W[i, j, k] = w_ijk, with a bias after the propagation.

    ChebNet stores w as K+1 matrices I x J; so do we, as `W` (K+1, I, J).
    """

    W: Tensor  # (..., K+1, I, J)
    b_W: Tensor | None

    def __init__(self, in_channels: int, out_channels: int, order: int, **common: Any) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.add("W", order + 1, in_channels, out_channels, fan_in=in_channels)
        self.add_bias("b_W", out_channels, fan_in=in_channels, group="W")

    def expand_affine(self) -> tuple[Tensor, Tensor | None]:
        return stacked(None, self.W, -2).movedim(-3, -1), self.b_W

    def routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        return []
