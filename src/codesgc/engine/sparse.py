"""Sparse matrices in compressed rows, with values that may differ from replicate to replicate."""

import itertools
import warnings
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from codesgc.engine.masks import drop


def _consume_beta_warning() -> None:
    """torch says once per process that CSR tensors are in beta; nobody who calls this library can act on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        empty = torch.zeros(0)
        torch.sparse_csr_tensor(torch.zeros(1, dtype=torch.int32), empty.int(), empty, (0, 0), check_invariants=False)


_consume_beta_warning()


_HANDLES: "WeakValueDictionary[int, CSR]" = WeakValueDictionary()
_COUNT = itertools.count(1)


class CSR:
    """A sparse matrix X of `shape` (rows, columns): row n holds `values[indptr[n]:indptr[n + 1]]` in the columns
    `indices[indptr[n]:indptr[n + 1]]`. `values` (..., nnz) may carry leading replicate axes; the pattern is shared.

    The engine's operators know it by its `handle`, a number, as torch's operators take tensors and numbers only. A
    dropout of its values is `keys` and `rate`, one for each replicate, and is applied when it is multiplied.

    >>> X = CSR.from_tensor(torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    >>> (X @ torch.eye(2)).tolist(), (X.T @ torch.eye(2)).tolist()
    ([[0.0, 2.0], [3.0, 0.0]], [[0.0, 3.0], [2.0, 0.0]])
    """

    def __init__(self, indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        index = torch.int32 if max(indices.numel(), *shape) < 2**31 else torch.int64
        self.indptr, self.indices = indptr.to(index), indices.to(index)
        self.stored, self.shape = values, shape
        self.keys: Tensor | None = None
        self.rate: Tensor | None = None
        self._base: CSR | None = None  # of which this is a dropout, or has the pattern
        self.native: Any = None  # the native kernels' copy
        self.handle = next(_COUNT)
        _HANDLES[self.handle] = self

    @classmethod
    def from_tensor(cls, x: Tensor) -> "CSR":
        """From a dense, COO or CSR tensor with two axes."""
        csr = x if x.layout == torch.sparse_csr else x.to_sparse_csr()
        return cls(csr.crow_indices(), csr.col_indices(), csr.values(), (x.shape[0], x.shape[1]))

    @staticmethod
    def of(handle: int) -> "CSR":
        """The matrix of that handle, while it lives."""
        try:
            return _HANDLES[int(handle)]  # where torch traces with symbols, this one is a constant
        except KeyError:
            raise RuntimeError(f"the sparse matrix with handle {handle} is gone: keep the operator alive") from None

    @property
    def base(self) -> "CSR":
        """The matrix whose pattern this one shares, and its stored values if this is a dropout of it."""
        return self if self._base is None else self._base

    @property
    def native_values(self) -> Tensor | None:
        """The stored values if all replicates share them, whatever each then drops; None if they differ."""
        return self.stored if self.base.stored is self.stored and self.stored.dim() == 1 else None

    @property
    def nnz(self) -> int:
        return self.indices.numel()

    @property
    def dtype(self) -> torch.dtype:
        return self.stored.dtype

    @property
    def device(self) -> torch.device:
        return self.stored.device

    @cached_property
    def values(self) -> Tensor:
        """The values (..., nnz), after the dropout if there is one."""
        if self.keys is None or self.rate is None:
            return self.stored
        batch = self.keys.shape
        return drop(self.stored[None], self.keys.reshape(-1), self.rate.expand(batch).reshape(-1)).reshape(*batch, -1)

    def dropped(self, keys: Tensor, rate: Tensor) -> "CSR":
        """With stored values dropped for each replicate: keys and rate (B,) or ()."""
        if self.keys is not None or self.stored.dim() > 1:  # they differ among the replicates already
            batch = torch.broadcast_shapes(self.values.shape[:-1], keys.shape)
            flat = self.values.expand(*batch, self.nnz).reshape(-1, self.nnz)
            values = drop(flat, keys.expand(batch).reshape(-1), rate.expand(batch).reshape(-1))
            return self.with_values(values.reshape(*batch, self.nnz))
        other = CSR(self.indptr, self.indices, self.stored, self.shape)
        other.keys, other.rate, other._base = keys, rate, self
        return other

    def operands(self, batch: torch.Size) -> tuple["CSR", Tensor | None, Tensor | None]:
        """What an operator takes for these replicates: the matrix, and the keys and rates of its dropout, each (B,)."""
        if self.keys is not None and self.rate is not None:
            keys, rate = self.keys.expand(batch).reshape(-1), self.rate.expand(batch).reshape(-1)
            return self.base, keys, rate
        if self.stored.dim() > 1:
            return self.with_values(self.stored.expand(*batch, self.nnz).reshape(-1, self.nnz)), None, None
        return self, None, None

    def to(self, *args: object) -> "CSR":
        """The same matrix in another dtype or on another device."""
        values = self.values.to(*args)  # type: ignore[call-overload]
        return CSR(self.indptr.to(values.device), self.indices.to(values.device), values, self.shape)

    def with_values(self, values: Tensor) -> "CSR":
        """The same pattern with other values."""
        other = CSR(self.indptr, self.indices, values, self.shape)
        other._base = self.base
        return other

    @cached_property
    def _pattern_of_transpose(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pattern of the transpose, and which of our entries each of its entries is."""
        if self.base is not self:
            return self.base._pattern_of_transpose
        rows = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.indptr.diff().long())
        order = torch.argsort(self.indices, stable=True)
        counts = torch.bincount(self.indices, minlength=self.shape[1])
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(self.indptr.dtype), rows[order], order

    @cached_property
    def T(self) -> "CSR":
        """The transpose."""
        indptr, indices, order = self._pattern_of_transpose
        return CSR(indptr, indices, self.values[..., order], (self.shape[1], self.shape[0]))

    @cached_property
    def with_ones(self) -> "CSR":
        """The matrix (1, X) with one more column, of ones, in front."""
        rows, columns = self.shape
        indptr = self.indptr + torch.arange(rows + 1, device=self.device, dtype=self.indptr.dtype)
        own = torch.ones(self.nnz + rows, dtype=torch.bool, device=self.device)
        own[indptr[:-1].long()] = False
        indices = self.indices.new_zeros(self.nnz + rows)
        indices[own] = self.indices + 1
        values = self.values.new_ones(*self.batch, self.nnz + rows)
        values[..., own] = self.values
        return CSR(indptr, indices, values, (rows, columns + 1))

    @cached_property
    def matrices(self) -> list[Tensor]:
        """One torch CSR tensor for each replicate's values."""
        flat = self.values.reshape(-1, self.nnz) if self.nnz else self.values.new_zeros(self.batch.numel(), 0)
        return [torch.sparse_csr_tensor(self.indptr, self.indices, v, self.shape, check_invariants=False) for v in flat]

    @property
    def batch(self) -> torch.Size:
        """The replicate axes."""
        return self.stored.shape[:-1] if self.keys is None else self.keys.shape

    def __matmul__(self, dense: Tensor) -> Tensor:
        """X D: (..., columns, C) -> (..., rows, C), without autograd (`linear` and the filters have their own)."""
        batch = torch.broadcast_shapes(self.batch, dense.shape[:-2])
        right = dense.expand(*batch, *dense.shape[-2:]).reshape(-1, *dense.shape[-2:])
        out = right.new_empty(right.shape[0], self.shape[0], right.shape[-1])
        left = self.matrices if len(self.matrices) > 1 else self.matrices * right.shape[0]
        for matrix, columns, result in zip(left, right, out, strict=True):
            torch.mm(matrix, columns, out=result)
        return out.reshape(*batch, *out.shape[1:])

    def advance(self, previous: Tensor, current: Tensor) -> Tensor:
        """One step of the recurrence, 2 X current - previous, written over `previous`: both (B, rows, C)."""
        (matrix,) = self.matrices
        for p, c in zip(previous, current, strict=True):
            torch.addmm(p, matrix, c, beta=-1, alpha=2, out=p)
        return previous

    def to_dense(self) -> Tensor:
        dense = torch.stack([matrix.to_dense() for matrix in self.matrices])
        return dense.reshape(*self.batch, *self.shape)

    def __repr__(self) -> str:
        return f"CSR(shape={self.shape}, nnz={self.nnz}, dtype={self.dtype})"
