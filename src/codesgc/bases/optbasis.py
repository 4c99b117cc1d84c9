"""The basis that is orthonormal with respect to the signal itself (OptBasisGNN)."""

from typing import Any

import torch
from torch import Tensor

from codesgc.bases.base import Basis
from codesgc.bases.favard import favard
from codesgc.engine import CSR, Dropout, Filter, Operator
from codesgc.engine.linear import propagate
from codesgc.errors import InputError


def orthonormal_terms(S: Operator, x: Tensor, order: int) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """V_0, ..., V_K with orthonormal columns channel by channel, and the recurrence's gamma and q, each (..., I).

    q_0 V_0 = x and q_k V_k = S V_{k-1} - gamma_{k-1} V_{k-1} - q_{k-1} V_{k-2} with gamma_{k-1} = <S V_{k-1}, V_{k-1}>:
    Lanczos on every channel x_i, so that V_k = P_k(S) x_i for the polynomials that are orthonormal in the spectral
    measure of x_i. Where the terms so far span all that S makes of a channel, the further ones and their q are 0.
    """
    least = torch.finfo(x.dtype).eps ** 0.5  # a remainder below this is rounding
    terms, gammas, qs = [torch.zeros_like(x)], [], []

    def normalised(v: Tensor, least: float) -> None:
        norm = v.norm(dim=-2)
        left = norm > least
        qs.append(torch.where(left, norm, 0.0))
        terms.append(v * torch.where(left, 1 / torch.where(left, norm, 1.0), 0.0)[..., None, :])

    normalised(x, torch.finfo(x.dtype).tiny ** 0.5)
    for _ in range(order):
        v = S.scale * propagate(S.t, terms[-1]) + S.shift * terms[-1]
        gammas.append((v * terms[-1]).sum(-2))
        normalised(v - gammas[-1][..., None, :] * terms[-1] - qs[-1][..., None, :] * terms[-2], least)
    return terms[1:], gammas, qs


class SignalFilter(Filter):
    """Products in the basis of the signal that is propagated; it needs the terms themselves, and keeps them."""

    def __init__(self, S: Operator, order: int, channels: int) -> None:
        self.S, self.order, self.channels = S, order, channels

    def filter(self, h: Tensor, m: Tensor, drop: Dropout | None = None) -> Tensor:
        terms, _, _ = orthonormal_terms(self.S, h, self.order)
        y = sum((v * m[..., k, None, :] for k, v in enumerate(terms)), start=torch.zeros_like(h))
        return y if drop is None else drop(y)

    def analyse(self, x: Tensor, a: Tensor) -> Tensor:
        terms, _, _ = orthonormal_terms(self.S, x[..., 0, :], self.order)
        return sum((v @ a[..., k, :, :] for k, v in enumerate(terms)), start=x.new_zeros(()))[..., None, :]

    def synthesise(self, x: Tensor | CSR, a: Tensor, drop: Dropout | None = None) -> Tensor:
        y = self.analyse(x.to_dense()[..., None, :] if isinstance(x, CSR) else x, a)
        return y if drop is None else drop(y)


class OptBasis(Basis, name="optbasis"):
    """P_k orthonormal in the spectral measure of each input channel: <P_k(S) x_i, P_l(S) x_i> = delta_kl.

    The polynomials depend on the signal, so `evaluate` is answered by the fixed basis that `fit` returns for a graph
    and its signals.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    reserved = ("order", "replicates", "channels")

    @classmethod
    def build(cls, order: int, channels: int, replicates: int | None, /, **options: Any) -> "OptBasis":
        return cls(channels)

    def on(self, S: Operator, order: int) -> Filter:
        assert self.channels is not None
        return SignalFilter(S, order, self.channels)

    def fit(self, S: Operator, x: Tensor, order: int) -> "FittedBasis":
        """The basis of these signals x (..., N, I) on this matrix, as fixed polynomials."""
        with torch.no_grad():
            _, gamma, q = orthonormal_terms(S.to(torch.float64), x.double(), order)
        return FittedBasis(torch.stack([*gamma, torch.zeros_like(q[0])], -1), torch.stack(q, -1))

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        raise InputError("basis 'optbasis' has no values without a signal: call basis.fit(S, x, order).evaluate(...)")


class FittedBasis(Basis):
    """The polynomials that `OptBasis.fit` found: those of `Favard` with the data's gamma and q."""

    def __init__(self, gamma: Tensor, q: Tensor) -> None:
        super().__init__()
        self.channels = gamma.shape[-2]
        self.gamma, self.q = gamma, q  # (..., I, K+1)

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        left = self.q > 0
        values = favard(points, order, self.gamma, torch.where(left, self.q, 1.0))
        return values * left.cumprod(-1)[..., None]
