"""CoDeSGC-CP (paper, equations 13 and 14, Algorithm 1)."""

from typing import Any

from torch import Tensor

from codesgc.decompositions.base import Decomposition, add_bias, grouped, mixing, stacked
from codesgc.engine import CSR, Filter, Route, lanes, linear, matmul
from codesgc.errors import whole


class CP(Decomposition, name="cp"):
    """W[i, j, k] = sum_r C[i, r] P[j, r] M[k, r].

    H = dropout_C(X C + 1 b_C^T),   Z = dropout_Z(sum_k P_k(S) H diag(m_k)),   Y = Z P^T + 1 b_P^T
    """

    dropouts = ("input", "C", "Z")
    C: Tensor  # (..., I, R)
    M: Tensor  # (..., K+1, R)
    P: Tensor  # (..., J, R)
    b_C: Tensor | None
    b_P: Tensor | None

    def __init__(self, in_channels: int, out_channels: int, order: int, *, rank: int = 32, **common: Any) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.rank = rank = whole("rank", rank)
        self.add("C", in_channels, rank, fan_in=in_channels)
        self.add_bias("b_C", rank, fan_in=in_channels, group="C")
        self.add("M", order + 1, rank, fan_in=order + 1)
        self.add("P", out_channels, rank, fan_in=rank)
        self.add_bias("b_P", out_channels, fan_in=rank, group="P")

    @property
    def constant_signal(self) -> bool:
        return self.bias

    def expand_affine(self) -> tuple[Tensor, Tensor | None]:
        PM = (self.P[..., :, None, :] * self.M[..., None, :, :]).flatten(-3, -2)  # (..., J (K+1), R)
        W = matmul(stacked(self.b_C, self.C), PM.mT)
        return W.unflatten(-1, (self.out_channels, self.order + 1)), self.b_P

    def routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        first, R, J, terms = mixing(x, self.rank), self.rank, self.out_channels, self.order + 1

        def signals() -> Tensor:
            return linear(x, self.C, self.b_C, self.drop["C"])  # (..., N, R)

        def rank() -> Tensor:
            z = op.filter(signals(), self.M, self.drop["Z"])  # (..., N, R)
            return linear(z, self.P.mT, self.b_P)  # (..., N, J)

        def output() -> Tensor:
            A = self.M[..., None] * self.P.mT[..., None, :, :]  # (..., K+1, R, J)
            return add_bias(op.synthesise(grouped(signals()), A)[..., 0, :], self.b_P)

        return [
            Route("rank", R, first + R * lanes(J), ("C", "Z"), rank),
            Route("output side", J, first + R * lanes(terms * J), ("C",), output),
        ]
