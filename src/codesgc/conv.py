"""One spectral graph convolution: a graph matrix, a basis, and a decomposition of the coefficients."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from codesgc.bases import Basis, make_basis
from codesgc.decompositions import make_decomposition
from codesgc.decompositions.base import Rates
from codesgc.engine import CSR, Operator
from codesgc.errors import InputError
from codesgc.graph import Graph
from codesgc.matrices import Matrix, make_matrix


def signals(x: Tensor | CSR, channels: int) -> Tensor | CSR:
    """Checked signals (..., N, channels), as a CSR where they are sparse."""
    if isinstance(x, Tensor) and x.layout != torch.strided:
        if x.requires_grad:
            raise InputError("x is sparse and requires grad: expected sparse features to be data; pass x.detach()")
        if x.dim() != 2:
            raise InputError(f"x is sparse with shape {tuple(x.shape)}: expected (nodes, {channels})")
        x = CSR.from_tensor(x)
    if not isinstance(x, Tensor | CSR):
        raise TypeError(f"x is a {type(x).__name__}: expected a tensor, dense or sparse")
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"x has dtype {x.dtype}: expected float32 or float64; pass x.float()")
    if len(x.shape) < 2 or x.shape[-1] != channels:
        raise InputError(
            f"x has shape {tuple(x.shape)}: expected (nodes, {channels}), one column for each input channel"
        )
    return x


class SpectralConv(nn.Module):
    """Y = sum_k P_k(S) X W_k, the coefficient tensor W (I, J, K+1) factorised (paper, equation 6).

    Args:
        in_channels: I, the channels of the signals X.
        out_channels: J, the channels of Y.
        order: K, the degree of the polynomials.
        basis: the polynomials P_k, a name in `BASES` or a `Basis`.
        matrix: the graph matrix S, a name in `MATRICES` or a `Matrix`.
        decomposition: the factorisation of W, a name in `DECOMPOSITIONS`.
        basis_options: options of the basis, as `{"a": 0.5, "b": 1.0}` for "jacobi".
        bias: whether each linear step has a bias.
        dropout: rates by the name of the place, as `{"input": 0.5, "C": 0.3, "Z": 0.2}` for "cp".
        replicates: B independent models on one graph; every factor gets a leading axis of that length.
        **options: options of the decomposition, as `rank=32` for "cp".

    Without biases the output is `sum_k P_k(S) X W[:, :, k]` with `P_k = conv.basis.evaluate(points, order)` and
    `W = conv.coefficients()`. Called with a PyG-style `edge_index`, it normalises the graph each time; to do that once,
    pass `conv.matrix(graph)` in place of the edges.

    The options `ridge` and `smoothness` of every decomposition hold W back in training; in a loop of your own, add
    `conv.decomposition.penalty()` to the loss.

    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> conv = SpectralConv(4, 2, order=3, basis="chebyshev", decomposition="cp", rank=5)
    >>> conv(torch.ones(3, 4), edge_index).shape, conv.coefficients().shape
    (torch.Size([3, 2]), torch.Size([4, 2, 4]))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        order: int,
        *,
        basis: str | Basis = "jacobi",
        matrix: str | Matrix = "sym",
        decomposition: str = "cp",
        basis_options: Mapping[str, Any] | None = None,
        bias: bool = True,
        dropout: Rates | None = None,
        replicates: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(basis_options, Mapping | None):
            raise TypeError(f"basis_options is {basis_options!r}: expected options by name, as {{'a': 0.5}}")
        self.decomposition = make_decomposition(
            decomposition,
            in_channels,
            out_channels,
            order,
            bias=bias,
            dropout=dropout,
            replicates=replicates,
            **options,
        )
        self.in_channels, self.out_channels, self.order = in_channels, out_channels, order
        self.basis = make_basis(basis, order, in_channels, replicates, **dict(basis_options or {}))
        self.matrix = make_matrix(matrix)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters and the dropout's seeds again."""
        self.decomposition.reset_parameters(generator)
        self.basis.reset_parameters(generator)

    def coefficients(self) -> Tensor:
        """The coefficient tensor W (..., I, J, K+1)."""
        return self.decomposition.expand()

    def forward(
        self, x: Tensor | CSR, edge_index: Tensor | Graph | Operator, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Signals x (..., N, I), dense or sparse, to (..., N, J)."""
        x = signals(x, self.in_channels)
        S = self.matrix(edge_index, edge_weight, x.shape[-2], x.dtype)
        out: Tensor = self.decomposition(x, self.basis.on(S, self.order))
        return out

    def explain(self, x: Tensor | CSR, edge_index: Tensor | Graph | Operator, edge_weight: Tensor | None = None) -> str:
        """The routes of the planner for these signals with their costs, and which is taken in this mode."""
        x = signals(x, self.in_channels)
        S = self.matrix(edge_index, edge_weight, x.shape[-2], x.dtype)
        op = self.basis.on(S, self.order)
        taken = self.decomposition.plan(x, op)
        lines = [f"{'':2}{'route':24}{'columns':>8}{'cost':>12}  dropout"]
        for route in self.decomposition.all_routes(x, op):
            mark = "->" if route.name == taken.name else ""
            masks = ", ".join(["input", *route.meets])
            lines.append(f"{mark:2}{route.name:24}{route.columns:8d}{route.cost(S, self.order):12.3g}  {masks}")
        return "\n".join(lines)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, order={self.order}"
