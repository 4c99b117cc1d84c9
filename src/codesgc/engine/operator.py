"""A graph matrix as the engine wants it, and filters in a polynomial basis on it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from codesgc.engine.dropout import Dropout
from codesgc.engine.filters import analyse, core, filter, synthesise
from codesgc.engine.linear import matmul
from codesgc.engine.sparse import CSR


@dataclass(frozen=True)
class Operator:
    """S = scale t + shift I, where the symmetric matrix t has its spectrum in [-1, 1].

    Built once by a graph matrix and passed to layers in place of the edges, it saves normalising the graph at every
    call.
    """

    t: CSR
    scale: float
    shift: float
    name: str = "custom"

    @property
    def num_nodes(self) -> int:
        return self.t.shape[0]

    @property
    def nnz(self) -> int:
        return self.t.nnz

    @property
    def dtype(self) -> torch.dtype:
        return self.t.dtype

    def to(self, *args: object) -> "Operator":
        """The same matrix in another dtype or on another device."""
        return Operator(self.t.to(*args), self.scale, self.shift, self.name)

    def to_dense(self) -> Tensor:
        """S as a dense matrix, for small graphs and for tests."""
        t = self.t.to_dense()
        return self.scale * t + self.shift * torch.eye(self.num_nodes, dtype=t.dtype, device=t.device)

    def __repr__(self) -> str:
        return f"Operator({self.name}: S = {self.scale:g} t + {self.shift:g} I, nodes={self.num_nodes}, nnz={self.nnz})"


class Filter:
    """The engine's products with coefficients in a basis P_k(S) = sum_l B[k, l] T_l(t).

    B is (..., K+1, K+1); `channels` says that it is (..., I, K+1, K+1): every input channel has its own polynomials,
    and only the signals themselves, not mixtures of them, may be propagated.
    """

    def __init__(self, S: Operator, B: Tensor, channels: int | None = None) -> None:
        self.S, self.B, self.channels = S, B, channels
        self.order = B.shape[-1] - 1
        identity = torch.eye(self.order + 1, dtype=B.dtype, device=B.device).expand_as(B)
        # P_k = T_k: nothing to mix, and mixing would give the same bits
        self.chebyshev = channels is None and not B.requires_grad and torch.equal(B, identity)

    def filter(self, h: Tensor, m: Tensor, drop: Dropout | None = None) -> Tensor:
        """dropped(sum_k P_k(S) h diag(m_k)): m (..., K+1, C or 1)."""
        if self.chebyshev:
            return filter(self.S.t, h, m.to(h), drop)
        m = m.to(self.B)
        if self.channels is None:
            m = matmul(self.B.mT, m)
        else:  # m'[l, c] = sum_k B[c, k, l] m[k, c]
            m = (self.B * m.expand(*m.shape[:-1], self.channels).mT[..., None]).sum(-2).mT
        return filter(self.S.t, h, m.to(h), drop)

    def synthesise(self, x: Tensor | CSR, a: Tensor, drop: Dropout | None = None) -> Tensor:
        """dropped(sum_k P_k(S) (x A_k)), from the output side."""
        return synthesise(self.S.t, x, self._mixed(x, a), drop)

    def analyse(self, x: Tensor, a: Tensor) -> Tensor:
        """sum_k (P_k(S) x) A_k, from the input side."""
        return analyse(self.S.t, x, self._mixed(x, a))

    def core(
        self,
        t: Tensor,
        G: Tensor,
        b: Tensor | None,
        m: Tensor,
        drop_G: Dropout | None = None,
        drop_Z: Dropout | None = None,
    ) -> Tensor:
        """dropped_Z(sum_k P_k(S) (H m_k)), H = dropped_G(t G + 1 b^T): G (..., P, Q, R), m (..., K+1, R)."""
        return core(self.S.t, t, G, b, self._mixed(t, m[..., None])[..., 0], drop_G, drop_Z)

    def _mixed(self, x: Tensor | CSR, a: Tensor) -> Tensor:
        if self.chebyshev:
            return a.to(x.dtype)
        a = a.to(self.B)
        if self.channels is None:
            mixed = matmul(self.B.mT, a.flatten(-2)).unflatten(-1, a.shape[-2:])
        else:  # a'[l, i, j] = sum_k B[i, k, l] a[k, i, j]
            mixed = torch.stack([(self.B[..., k].mT[..., None] * a).sum(-3) for k in range(self.order + 1)], -3)
        return mixed.to(x.dtype)
