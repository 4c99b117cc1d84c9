"""W[i, j, k] = alpha_k w_ij: all filters share one polynomial (GCN, SGC, S2GC, APPNP, GPR-GNN, BernNet, ChebNetII)."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from codesgc.bases import Interpolation
from codesgc.decompositions.base import Decomposition, add_bias, mixing, stacked
from codesgc.engine import CSR, Filter, Route, lanes, linear, with_ones
from codesgc.errors import InputError


class Shared(Decomposition):
    """W[i, j, k] = alpha_k W[i, j].

        H = dropout_W(X W + 1 b^T),   Y = sum_k alpha_k P_k(S) H

    A subclass says what alpha (..., K+1) is. `late_bias` puts the bias after the propagation.
    """

    dropouts = ("input", "W")
    W: Tensor  # (..., I, J)
    b_W: Tensor | None
    late_bias: ClassVar[bool] = False

    def __init__(self, in_channels: int, out_channels: int, order: int, **common: Any) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.add("W", in_channels, out_channels, fan_in=in_channels)
        self.add_bias("b_W", out_channels, fan_in=in_channels, group="W")

    @abstractmethod
    def alpha(self) -> Tensor:
        """The shared coefficients (..., K+1)."""

    @property
    def constant_signal(self) -> bool:
        return self.bias and not self.late_bias

    def expand_affine(self) -> tuple[Tensor, Tensor | None]:
        early, late = (None, self.b_W) if self.late_bias else (self.b_W, None)
        alpha = self.alpha().to(self.W)
        return stacked(early, self.W)[..., None] * alpha[..., None, None, :], late

    def routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        I, J = self.in_channels, self.out_channels
        early, late = (None, self.b_W) if self.late_bias else (self.b_W, None)

        def output() -> Tensor:
            h = linear(x, self.W, early, self.drop["W"])  # (..., N, J)
            return add_bias(op.filter(h, self.alpha()[..., None]), late)

        def input_() -> Tensor:
            signals = with_ones(x) if self.constant_signal else x
            dense = signals.to_dense() if isinstance(signals, CSR) else signals
            z = op.filter(dense, self.alpha()[..., None])  # (..., N, I)
            return linear(z, stacked(early, self.W) if self.constant_signal else self.W, late)

        return [
            Route("output side", J, mixing(x, J), ("W",), output),
            Route("input side", I + self.constant_signal, I * lanes(J), (), input_),
        ]


class GCN(Shared, name="gcn"):
    """alpha_k = delta_k1 (equation 8)."""

    late_bias = True

    def __init__(self, in_channels: int, out_channels: int, order: int, **common: Any) -> None:
        if order < 1:
            raise InputError(f"order {order}: decomposition 'gcn' takes the first power of S; expected order >= 1")
        super().__init__(in_channels, out_channels, order, **common)

    def alpha(self) -> Tensor:
        return torch.eye(self.order + 1, dtype=torch.float64, device=self.W.device)[1]


class SGC(Shared, name="sgc"):
    """alpha_k = delta_kK: the last power alone."""

    late_bias = True

    def alpha(self) -> Tensor:
        return torch.eye(self.order + 1, dtype=torch.float64, device=self.W.device)[-1]


class Restart(Shared):
    """Coefficients given by a restart probability `alpha`, one number or one a replicate."""

    restart: Tensor

    def __init__(
        self, in_channels: int, out_channels: int, order: int, *, alpha: float | Tensor = 0.1, **common: Any
    ) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.setting("restart", alpha, lambda a: (a >= 0) & (a <= 1), "a probability (option alpha) from 0 to 1")


class S2GC(Restart, name="s2gc"):
    """alpha_k = (1 - alpha) / K for k >= 1, and alpha_0 = alpha."""

    late_bias = True

    def __init__(
        self, in_channels: int, out_channels: int, order: int, *, alpha: float | Tensor = 0.05, **common: Any
    ) -> None:
        super().__init__(in_channels, out_channels, order, alpha=alpha, **common)

    def alpha(self) -> Tensor:
        restart = self.restart[..., None]
        return torch.cat([restart, ((1 - restart) / max(self.order, 1)).expand(*restart.shape[:-1], self.order)], -1)


class APPNP(Restart, name="appnp"):
    """alpha_k = (1 - alpha)^k alpha^(1 - delta_kK): K steps of personalised PageRank."""

    def alpha(self) -> Tensor:
        return personalised_pagerank(self.restart, self.order)


def personalised_pagerank(restart: Tensor, order: int) -> Tensor:
    """(1 - alpha)^k alpha for k < K and (1 - alpha)^K, which sum to 1: (..., K+1)."""
    powers = (1 - restart)[..., None] ** torch.arange(order + 1, dtype=torch.float64, device=restart.device)
    return torch.cat([restart[..., None] * powers[..., :-1], powers[..., -1:]], -1)


class GPR(Restart, name="gpr"):
    """alpha_k learned, starting at the coefficients of APPNP (GPR-GNN)."""

    alpha_k: Tensor

    def __init__(self, in_channels: int, out_channels: int, order: int, **common: Any) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.add("alpha_k", order + 1, group="alpha")

    def initial(self, name: str) -> Tensor:
        return personalised_pagerank(self.restart, self.order).expand_as(self.get_parameter(name))

    def alpha(self) -> Tensor:
        return self.alpha_k


class Nonnegative(Shared, name="nonnegative"):
    """alpha_k = max(theta_k, 0), starting at 1 (BernNet): in the Bernstein basis the filter is nonnegative."""

    theta: Tensor

    def __init__(self, in_channels: int, out_channels: int, order: int, **common: Any) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.add("theta", order + 1, group="alpha")

    def alpha(self) -> Tensor:
        return self.theta.relu()


class Interpolated(Shared, name="interpolated"):
    """alpha_k = 2 / (K+1) sum_l gamma_l T_k(x_l) at the Chebyshev nodes x_l, the term k = 0 halved (ChebNetII).

    In the Chebyshev basis gamma_l is the filter's value at x_l; it starts at 1, the filter that changes nothing.
    """

    gamma: Tensor

    def __init__(self, in_channels: int, out_channels: int, order: int, **common: Any) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        self.add("gamma", order + 1)

    def alpha(self) -> Tensor:
        return (self.gamma.double()[..., None] * Interpolation().to_chebyshev(self.order).to(self.gamma.device)).sum(-2)
