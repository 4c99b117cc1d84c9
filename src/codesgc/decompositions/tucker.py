"""CoDeSGC-Tucker (paper, equations 15 to 18, Algorithm 2), Tucker2 and Tucker1: the same with identities as factors."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from codesgc.decompositions.base import Decomposition, add_bias, grouped, mixing, stacked
from codesgc.engine import CSR, Filter, Route, lanes, linear, matmul, with_ones
from codesgc.errors import InputError, whole

FORMED_TWICE = 128  # columns of T up to which forming H once more in the backward pass takes less time than storing it


class Tucker(Decomposition, name="tucker"):
    """W[i, j, k] = sum_pqr G[p, q, r] C[i, p] P[j, q] M[k, r].

        T = dropout_C(X C + 1 b_C^T),   H_(1) = dropout_G(T G_(1) + 1 b_G^T)
        Z[:, q] = dropout_Z(sum_k P_k(S) sum_r m_kr H[:, q, r]),   Y = Z P^T + 1 b_P^T

    The sum over r comes before the propagation, so Q columns propagate and not Q R. `identities` names the factors that
    are identities, and their sizes are then those of the mode: Tucker2 has one, Tucker1 two. A step whose factor is an
    identity is left out, with its bias and its dropout (without P, Z is the result).
    """

    dropouts: ClassVar[tuple[str, ...]] = ("input", "C", "G", "Z")
    identities: ClassVar[str] = ""
    C: Tensor | None  # (..., I, P)
    G: Tensor  # (..., P, Q, R)
    M: Tensor | None  # (..., K+1, R)
    P: Tensor | None  # (..., J, Q)
    b_C: Tensor | None
    b_G: Tensor | None
    b_P: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        order: int,
        *,
        rank: int | None = None,
        rank_in: int | None = None,
        rank_out: int | None = None,
        **common: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, order, **common)
        p = self.rank_in = self._size("C", "rank_in", rank_in, in_channels)
        q = self.rank_out = self._size("P", "rank_out", rank_out, out_channels)
        r = self.rank = self._size("M", "rank", rank, order + 1)
        for name in ("C", "b_C", "M", "P", "b_P"):
            self.register_parameter(name, None)
        if "C" not in self.identities:
            self.add("C", in_channels, p, fan_in=in_channels)
            self.add_bias("b_C", p, fan_in=in_channels, group="C")
        self.add("G", p, q, r, fan_in=p)
        self.add_bias("b_G", q, r, fan_in=p, group="G")
        if "M" not in self.identities:
            self.add("M", order + 1, r, fan_in=order + 1)
        if "P" not in self.identities:
            self.add("P", out_channels, q, fan_in=q)
            self.add_bias("b_P", out_channels, fan_in=q, group="P")

    def _size(self, factor: str, label: str, given: int | None, mode: int) -> int:
        """Columns of a factor: 32 unless given; those of the mode where the factor is an identity."""
        if factor not in self.identities:
            return whole(label, 32 if given is None else given)
        if given not in (None, mode):
            raise InputError(
                f"{label} {given!r}: {self.name!r} has the identity as {factor}, so it is {mode}; leave it out"
            )
        return mode

    @property
    def constant_signal(self) -> bool:
        return self.bias

    def core(self) -> Tensor:
        """The map of (1, T) to the signals that are filtered with P_k: (..., P+1, Q, K+1)."""
        G = stacked(self.b_G, self.G, -3)
        return G if self.M is None else matmul(G.flatten(-3, -2), self.M.mT).unflatten(-2, G.shape[-3:-1])

    def expand_affine(self) -> tuple[Tensor, Tensor | None]:
        W = self.core()
        if self.C is not None:
            C = stacked(self.b_C, self.C)
            ones = torch.zeros_like(C[..., :1])
            ones[..., 0, :] = 1
            W = matmul(torch.cat([ones, C], -1), W.flatten(-2)).unflatten(-1, W.shape[-2:])
        return self._outputs(W), self.b_P

    def _outputs(self, W: Tensor) -> Tensor:
        """P times the second axis of W (..., I, Q, K+1)."""
        return W if self.P is None else matmul(self.P[..., None, :, :], W)

    def routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        P, Q, R, J, terms = self.rank_in, self.rank_out, self.rank, self.out_channels, self.order + 1
        first = 0.0 if self.C is None else mixing(x, P)
        last = 0 if self.P is None else Q * lanes(J)
        inner = mixing(x, Q * R) if self.C is None else P * lanes(Q * R)

        def signals() -> Tensor | CSR:
            return x if self.C is None else linear(x, self.C, self.b_C, self.drop["C"])  # (..., N, P)

        def result(z: Tensor) -> Tensor:
            return z if self.P is None else linear(z, self.P.mT, self.b_P)  # (..., N, J)

        def core() -> Tensor:
            t = signals()
            M = torch.eye(terms, dtype=t.dtype, device=self.G.device) if self.M is None else self.M
            drop_Z = None if self.P is None else self.drop["Z"]
            if isinstance(t, Tensor) and P <= FORMED_TWICE:
                return result(op.core(t, self.G, self.b_G, M, self.drop["G"], drop_Z))
            b_G = None if self.b_G is None else self.b_G.flatten(-2)
            h = linear(t, self.G.flatten(-2), b_G, self.drop["G"]).unflatten(-1, (Q, R))  # (..., N, Q, R)
            return result(op.synthesise(h, M[..., None], drop_Z)[..., 0])  # (..., N, Q)

        def folded() -> Tensor:
            signals_, G = with_ones(signals()), self.core().movedim(-1, -3)  # (..., K+1, P+1, Q)
            if isinstance(signals_, CSR):
                return result(self.drop["Z"](op.synthesise(signals_, G)[..., 0, :]))
            return result(op.synthesise(grouped(signals_), G, self.drop["Z"])[..., 0, :])

        def input_() -> Tensor:
            t = with_ones(signals())
            assert isinstance(t, Tensor)
            return result(op.analyse(t[..., None, :], self.core().movedim(-1, -3))[..., 0, :])

        def output() -> Tensor:
            A = self._outputs(self.core())
            return add_bias(op.synthesise(grouped(with_ones(signals())), A.movedim(-1, -3))[..., 0, :], self.b_P)

        routes = [Route("core", Q, first + inner + terms * Q * R + last, ("C", "G", "Z"), core)]
        if self.P is not None:
            each = self.term_by_term(x, Q) if self.C is None else P * lanes(terms * Q)
            routes.append(Route("core, M within G", Q, first + each + last, ("C", "Z"), folded))
        if self.C is not None:
            routes.append(Route("input factor", P + 1, first + terms * P * lanes(Q) + last, ("C",), input_))
            routes.append(Route("output side", J, first + P * lanes(terms * J), ("C",), output))
        return routes


class Tucker2(Tucker, name="tucker2"):
    """Tucker with C = I, the version that the paper runs: W[i, j, k] = sum_qr G[i, q, r] P[j, q] M[k, r]."""

    identities = "C"
    dropouts = ("input", "G", "Z")


class Tucker2CM(Tucker, name="tucker2_cm"):
    """Tucker with P = I: W[i, j, k] = sum_pr G[p, j, r] C[i, p] M[k, r]."""

    identities = "P"
    dropouts = ("input", "C", "G")


class Tucker2CP(Tucker, name="tucker2_cp"):
    """Tucker with M = I: W[i, j, k] = sum_pq G[p, q, k] C[i, p] P[j, q]."""

    identities = "M"
    dropouts = ("input", "C", "G", "Z")


class Tucker1(Tucker, name="tucker1"):
    """Tucker with C = P = I, the version that the paper runs: W[i, j, k] = sum_r G[i, j, r] M[k, r]."""

    identities = "CP"
    dropouts = ("input", "G")


class Tucker1P(Tucker, name="tucker1_p"):
    """Tucker with C = M = I: W[i, j, k] = sum_q G[i, q, k] P[j, q]."""

    identities = "CM"
    dropouts = ("input", "G", "Z")


class Tucker1C(Tucker, name="tucker1_c"):
    """Tucker with P = M = I: W[i, j, k] = sum_p G[p, j, k] C[i, p]."""

    identities = "PM"
    dropouts = ("input", "C", "G")
