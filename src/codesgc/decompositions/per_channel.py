"""W[i, j, k] = alpha_kj w_ij (JacobiConv) and alpha_ki w_ij (FavardGNN, OptBasisGNN): a polynomial for each channel."""

from typing import Any

import torch
from torch import Tensor

from codesgc.decompositions.base import Decomposition, mixing, stacked
from codesgc.engine import CSR, Filter, Route, lanes, linear


class PerOutput(Decomposition, name="per_output"):
    """W[i, j, k] = alpha[k, j] W[i, j] (equation 12).

    H = dropout_W(X W + 1 b^T),   Y = sum_k P_k(S) H diag(alpha_k)
    """

    dropouts = ("input", "W")
    W: Tensor  # (..., I, J)
    b_W: Tensor | None
    beta: Tensor  # (..., K+1, J)

    def __init__(self, in_channels: int, out_channels: int, order: int, **common: Any) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.add("W", in_channels, out_channels, fan_in=in_channels)
        self.add_bias("b_W", out_channels, fan_in=in_channels, group="W")
        self.add("beta", order + 1, out_channels)

    def alpha(self) -> Tensor:
        """The coefficients of every output channel's polynomial (..., K+1, J)."""
        return self.beta

    @property
    def constant_signal(self) -> bool:
        return self.bias

    def expand_affine(self) -> tuple[Tensor, Tensor | None]:
        return stacked(self.b_W, self.W)[..., None] * self.alpha().mT[..., None, :, :], None

    def routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        def output() -> Tensor:
            h = linear(x, self.W, self.b_W, self.drop["W"])  # (..., N, J)
            return op.filter(h, self.alpha())

        return [Route("output side", self.out_channels, mixing(x, self.out_channels), ("W",), output)]


class BoundedPerOutput(PerOutput, name="per_output_bounded"):
    """alpha[k, j] = beta[k, j] prod_{l=1..k} gamma' tanh(eta_l): JacobiConv's decay over the orders, |factor| < gamma'.

    Starts at beta = 1 and eta = min(1 / gamma', 1). gamma' (`gamma`) is a number, or one a replicate.
    """

    bound: Tensor
    eta: Tensor  # (..., K)

    def __init__(
        self, in_channels: int, out_channels: int, order: int, *, gamma: float | Tensor = 1.0, **common: Any
    ) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.setting("bound", gamma, lambda g: g > 0, "a number > 0 (option gamma), the factors' bound")
        self.add("eta", order)

    def initial(self, name: str) -> Tensor:
        if name == "eta":
            return (1 / self.bound[..., None]).clamp_max(1.0).expand_as(self.eta)
        return super().initial(name)

    def alpha(self) -> Tensor:
        decay = (self.bound.to(self.eta)[..., None] * self.eta.tanh()).cumprod(-1)
        return self.beta * torch.cat([torch.ones_like(self.beta[..., :1, 0]), decay], -1)[..., None]


class PerInput(Decomposition, name="per_input"):
    """W[i, j, k] = alpha[k, i] W[i, j] (equation 31).

        Z = dropout_Z(sum_k P_k(S) X diag(alpha_k)),   Y = Z W + 1 b^T

    The signals themselves propagate, so a basis may have its own polynomials for each. Starts at the filter P_0.
    """

    dropouts = ("input", "Z")
    per_channel = True
    alpha: Tensor  # (..., K+1, I)
    W: Tensor  # (..., I, J)
    b_W: Tensor | None

    def __init__(self, in_channels: int, out_channels: int, order: int, **common: Any) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.add("alpha", order + 1, in_channels)
        self.add("W", in_channels, out_channels, fan_in=in_channels)
        self.add_bias("b_W", out_channels, fan_in=in_channels, group="W")

    def initial(self, name: str) -> Tensor:
        start = torch.zeros_like(self.get_parameter(name))
        start[..., 0, :] = 1
        return start

    def expand_affine(self) -> tuple[Tensor, Tensor | None]:
        W = self.W[..., None] * self.alpha.mT[..., None, :]
        return stacked(None, W, -3), self.b_W

    def routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        I, J = self.in_channels, self.out_channels

        def input_() -> Tensor:
            z = op.filter(x.to_dense() if isinstance(x, CSR) else x, self.alpha, self.drop["Z"])  # (..., N, I)
            return linear(z, self.W, self.b_W)

        return [Route("input side", I, I * lanes(J), ("Z",), input_)]
