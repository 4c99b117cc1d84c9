"""Sparse matrices in compressed rows, with values that may differ from replicate to replicate."""

import warnings
from functools import cached_property

import torch
from torch import Tensor


def _consume_beta_warning() -> None:
    """torch says once per process that CSR tensors are in beta; nobody who calls this library can act on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        empty = torch.zeros(0)
        torch.sparse_csr_tensor(torch.zeros(1, dtype=torch.int32), empty.int(), empty, (0, 0), check_invariants=False)


_consume_beta_warning()


class CSR:
    """A sparse matrix X of `shape` (rows, columns): row n holds `values[indptr[n]:indptr[n + 1]]` in the columns
    `indices[indptr[n]:indptr[n + 1]]`. `values` (..., nnz) may carry leading replicate axes; the pattern is shared.

    >>> X = CSR.from_tensor(torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    >>> (X @ torch.eye(2)).tolist(), (X.T @ torch.eye(2)).tolist()
    ([[0.0, 2.0], [3.0, 0.0]], [[0.0, 3.0], [2.0, 0.0]])
    """

    def __init__(self, indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        index = torch.int32 if max(indices.numel(), *shape) < 2**31 else torch.int64
        self.indptr, self.indices = indptr.to(index), indices.to(index)
        self.values, self.shape = values, shape

    @classmethod
    def from_tensor(cls, x: Tensor) -> "CSR":
        """From a dense, COO or CSR tensor with two axes."""
        csr = x if x.layout == torch.sparse_csr else x.to_sparse_csr()
        return cls(csr.crow_indices(), csr.col_indices(), csr.values(), (x.shape[0], x.shape[1]))

    @property
    def nnz(self) -> int:
        return self.indices.numel()

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def to(self, *args: object) -> "CSR":
        """The same matrix in another dtype or on another device."""
        values = self.values.to(*args)  # type: ignore[call-overload]
        return CSR(self.indptr.to(values.device), self.indices.to(values.device), values, self.shape)

    def with_values(self, values: Tensor) -> "CSR":
        """The same pattern, and whatever was derived from it, with other values."""
        other = CSR(self.indptr, self.indices, values, self.shape)
        other.__dict__["_transposed"] = self._transposed
        return other

    @cached_property
    def _transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pattern of the transpose, and which of our entries each of its entries is."""
        rows = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.indptr.diff().long())
        order = torch.argsort(self.indices, stable=True)
        counts = torch.bincount(self.indices, minlength=self.shape[1])
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(self.indptr.dtype), rows[order], order

    @cached_property
    def T(self) -> "CSR":
        """The transpose."""
        indptr, indices, order = self._transposed
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
        values = self.values.new_ones(*self._batch, self.nnz + rows)
        values[..., own] = self.values
        return CSR(indptr, indices, values, (rows, columns + 1))

    @cached_property
    def matrices(self) -> list[Tensor]:
        """One torch CSR tensor for each replicate's values."""
        flat = self.values.reshape(-1, self.nnz) if self.nnz else self.values.new_zeros(self._batch.numel(), 0)
        return [torch.sparse_csr_tensor(self.indptr, self.indices, v, self.shape, check_invariants=False) for v in flat]

    @property
    def _batch(self) -> torch.Size:
        return self.values.shape[:-1]

    def __matmul__(self, dense: Tensor) -> Tensor:
        """X D: (..., columns, C) -> (..., rows, C), without autograd (`linear` and the filters have their own)."""
        batch = torch.broadcast_shapes(self._batch, dense.shape[:-2])
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
        return dense.reshape(*self._batch, *self.shape)

    def __repr__(self) -> str:
        return f"CSR(shape={self.shape}, nnz={self.nnz}, dtype={self.dtype})"
