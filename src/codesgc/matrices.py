"""Graph matrices S, each an affine map of one normalised adjacency with its spectrum in [-1, 1].

With A the weighted adjacency, D its degrees, I the identity:

    sym                  S = I - L = D^-1/2 A D^-1/2                       spectrum in [-1, 1]
    gcn                  S = (D + I)^-1/2 (A + I) (D + I)^-1/2             [-1, 1]
    laplacian            S = L                                             [0, 2]
    half_laplacian       S = L / 2                                         [0, 1]
    shifted_laplacian    S = L - I                                         [-1, 1]
    scaled_laplacian     S = 2 L / lambda_max - I                          [-1, 4 / lambda_max - 1]
    SymmetricMatrix      S given by the user                               estimated

All but `gcn` are S = scale t + shift I with the same t = D^-1/2 A D^-1/2, so the engine stores and multiplies one
matrix, whatever the model calls it. An isolated node has an empty row of t: a polynomial P(S) multiplies its signal by
P(shift).
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from codesgc.engine import CSR, Operator
from codesgc.errors import InputError, unknown
from codesgc.graph import Graph, check_edges, check_positive_degrees

MATRICES: dict[str, type["Matrix"]] = {}


def adjacency(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype) -> CSR:
    """The symmetric matrix A with A[i, j] the sum of the weights of the edges j -> i; an error where it is not one."""
    weight = torch.ones(edge_index.shape[1], device=edge_index.device) if edge_weight is None else edge_weight
    key, inverse = torch.unique(edge_index[0] * num_nodes + edge_index[1], return_inverse=True)
    values = torch.zeros(key.shape, dtype=dtype, device=key.device).index_add_(0, inverse, weight.to(dtype))
    rows, columns = key // num_nodes, key % num_nodes
    reverse, order = torch.sort(columns * num_nodes + rows)
    if not (torch.equal(reverse, key) and torch.allclose(values[order], values, rtol=1e-6, atol=0)):
        raise InputError(
            "edge_index is directed: expected every edge in both directions with one weight; "
            "build the graph with codesgc.Graph(edge_index, to_undirected=True) and use its edges"
        )
    values = (values + values[order]) / 2  # the two sums of a repeated edge may differ by rounding
    counts = torch.bincount(rows, minlength=num_nodes)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return CSR(indptr, columns, values, (num_nodes, num_nodes))


def _rows(A: CSR) -> Tensor:
    return torch.repeat_interleave(torch.arange(A.shape[0], device=A.device), A.indptr.diff().long())


def normalised(A: CSR, name: str) -> CSR:
    """D^-1/2 A D^-1/2, where a node of degree 0 keeps a row of zeros."""
    rows = _rows(A)
    degree = torch.zeros(A.shape[0], dtype=A.dtype, device=A.device).index_add_(0, rows, A.values)
    check_positive_degrees(degree, name)
    if bool((A.values < 0).any()):
        raise InputError(
            f"edge_weight has {int((A.values < 0).sum())} negative values: matrix {name!r} expected weights >= 0, "
            "or its spectrum leaves [-1, 1]; pass a codesgc.SymmetricMatrix of your own instead"
        )
    root = torch.where(degree > 0, degree, 1.0).rsqrt()
    return CSR(A.indptr, A.indices, A.values * (root[rows] * root[A.indices.long()]), A.shape)


def with_self_loops(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> tuple[Tensor, Tensor]:
    """The edges of A + I."""
    nodes = torch.arange(num_nodes, device=edge_index.device)
    weight = torch.ones(edge_index.shape[1], device=edge_index.device) if edge_weight is None else edge_weight
    return torch.cat([edge_index, nodes.expand(2, -1)], 1), torch.cat([weight, weight.new_ones(num_nodes)])


def extreme_eigenvalues(S: CSR, steps: int = 80) -> tuple[float, float, float]:
    """(least, greatest, margin): Lanczos estimates, and the residual norm by which the true ones may lie outside.

    Full reorthogonalisation, float64, a fixed start vector: the result depends on S alone.
    """
    size = S.shape[0]
    matrix = S.to(torch.float64)
    start = torch.linspace(0.5, 1.5, size, dtype=torch.float64, device=S.device).mul(9.0).sin() + 1.5
    basis = [start / start.norm()]
    alpha: list[float] = []
    beta: list[float] = []
    while True:
        v = (matrix @ basis[-1][:, None])[:, 0]
        alpha.append(float(v @ basis[-1]))
        stacked = torch.stack(basis)
        for _ in range(2):
            v = v - stacked.T @ (stacked @ v)
        beta.append(float(v.norm()))
        if len(alpha) == min(steps, size) or beta[-1] < 1e-12:
            break
        basis.append(v / beta[-1])
    off = torch.tensor(beta[:-1], dtype=torch.float64)
    T = torch.tensor(alpha, dtype=torch.float64).diag() + off.diag(1) + off.diag(-1)
    values, vectors = torch.linalg.eigh(T)
    margin = beta[-1] * float(vectors[-1, [0, -1]].abs().max())
    return float(values[0]), float(values[-1]), margin


class Matrix(nn.Module, ABC):
    """A graph matrix: called with edges, it gives the `Operator` of the graph.

    >>> edges = torch.tensor([[0, 1], [1, 0]])
    >>> MATRICES["laplacian"]()(edges).to_dense().tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    name: ClassVar[str]

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        if name is None:
            return
        if name in MATRICES:
            raise ValueError(f"matrix name {name!r} is taken by {MATRICES[name].__name__}: choose a free name")
        cls.name = name
        MATRICES[name] = cls

    def forward(
        self,
        edges: Graph | Operator | Tensor,
        edge_weight: Tensor | None = None,
        num_nodes: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> Operator:
        """The operator of a graph, or of the edges (2, E) of one; an operator is returned as it is."""
        if edge_weight is not None and isinstance(edges, Graph | Operator):
            raise InputError(f"edge_weight was given beside a {type(edges).__name__}, which has its own; leave it out")
        if isinstance(edges, Operator):
            if edges.name != self.name:
                raise InputError(f"the operator is of matrix {edges.name!r}: this layer expected {self.name!r}")
            if num_nodes is not None and edges.num_nodes != num_nodes:
                raise InputError(f"the operator has {edges.num_nodes} nodes: x has {num_nodes} rows; expected the same")
            return edges if dtype is None or edges.dtype == dtype else edges.to(dtype)
        if isinstance(edges, Graph):
            if num_nodes not in (None, edges.num_nodes):
                raise InputError(f"the graph has {edges.num_nodes} nodes: x has {num_nodes} rows; expected the same")
            num_nodes, edge_weight, edges = edges.num_nodes, edges.edge_weight, edges.edge_index
        index, edge_weight, num_nodes = check_edges(edges, edge_weight, num_nodes)
        if edge_weight is not None and edge_weight.requires_grad:
            raise InputError("edge_weight requires grad: expected constants, as the graph is data; pass its .detach()")
        scale, shift, t = self.affine(index, None if edge_weight is None else edge_weight.double(), num_nodes)
        return Operator(t.to(dtype or torch.get_default_dtype()), scale, shift, self.name)

    @abstractmethod
    def affine(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> tuple[float, float, CSR]:
        """(scale, shift, t) with S = scale t + shift I and the spectrum of t in [-1, 1], in float64."""


class Sym(Matrix, name="sym"):
    """S = I - L = D^-1/2 A D^-1/2."""

    scale: ClassVar[float] = 1.0
    shift: ClassVar[float] = 0.0

    def affine(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> tuple[float, float, CSR]:
        A = adjacency(edge_index, edge_weight, num_nodes, torch.float64)
        return self.scale, self.shift, normalised(A, self.name)


class Laplacian(Sym, name="laplacian"):
    """S = L."""

    scale = -1.0
    shift = 1.0


class HalfLaplacian(Sym, name="half_laplacian"):
    """S = L / 2 (BernNet)."""

    scale = -0.5
    shift = 0.5


class ShiftedLaplacian(Sym, name="shifted_laplacian"):
    """S = L - I (ChebNetII): the scaled Laplacian with lambda_max = 2."""

    scale = -1.0
    shift = 0.0


class ScaledLaplacian(Sym, name="scaled_laplacian"):
    """S = 2 L / lambda_max - I (ChebNet), lambda_max given, or estimated where it is None."""

    def __init__(self, lambda_max: float | None = None) -> None:
        super().__init__()
        if lambda_max is not None and not 0 < lambda_max < float("inf"):
            raise InputError(f"lambda_max {lambda_max!r}: expected a positive number, or None to estimate it")
        self.lambda_max = lambda_max

    def affine(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> tuple[float, float, CSR]:
        _, _, t = super().affine(edge_index, edge_weight, num_nodes)
        largest = self.lambda_max if self.lambda_max is not None else 1.0 - extreme_eigenvalues(t)[0]
        if largest < 1e-12:  # L = 0, the graph of self-loops: S = -I whatever it is divided by
            largest = 2.0
        return -2.0 / largest, 2.0 / largest - 1.0, t

    def extra_repr(self) -> str:
        return f"lambda_max={self.lambda_max}"


class GCN(Matrix, name="gcn"):
    """S = (D + I)^-1/2 (A + I) (D + I)^-1/2: the renormalised adjacency with self-loops."""

    def affine(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> tuple[float, float, CSR]:
        A = adjacency(*with_self_loops(edge_index, edge_weight, num_nodes), num_nodes, torch.float64)
        return 1.0, 0.0, normalised(A, self.name)


class SymmetricMatrix(Matrix, name="custom"):
    """The symmetric matrix S[i, j] = weight of the edge (i, j), as given, with any real spectrum.

    `spectrum` is an interval (least, greatest) that holds its eigenvalues; where it is None it is estimated by Lanczos,
    widened by the estimate's residual. It is carried to [-1, 1].

    >>> edges, weights = torch.tensor([[0, 1, 0], [1, 0, 0]]), torch.tensor([3.0, 3.0, -4.0])
    >>> SymmetricMatrix()(edges, weights).to_dense().round().tolist()
    [[-4.0, 3.0], [3.0, 0.0]]
    """

    def __init__(self, spectrum: tuple[float, float] | None = None) -> None:
        super().__init__()
        if spectrum is not None and not spectrum[0] <= spectrum[1]:
            raise InputError(f"spectrum {spectrum!r}: expected (least, greatest) eigenvalue, or None to estimate them")
        self.spectrum = spectrum

    def affine(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> tuple[float, float, CSR]:
        S = adjacency(edge_index, edge_weight, num_nodes, torch.float64)
        if self.spectrum is None:
            least, greatest, margin = extreme_eigenvalues(S)
            least, greatest = least - margin, greatest + margin
        else:
            least, greatest = self.spectrum
        shift = (greatest + least) / 2
        scale = max((greatest - least) / 2, 1e-8 * max(1.0, abs(shift)))
        rows = torch.arange(num_nodes, device=edge_index.device)
        edges = torch.cat([torch.stack([_rows(S), S.indices.long()]), rows.expand(2, -1)], 1)
        values = torch.cat([S.values / scale, torch.full((num_nodes,), -shift / scale, dtype=torch.float64)])
        return scale, shift, adjacency(edges, values, num_nodes, torch.float64)

    def extra_repr(self) -> str:
        return f"spectrum={self.spectrum}"


def make_matrix(matrix: str | Matrix) -> Matrix:
    """A registered matrix by its name, or the one given."""
    if isinstance(matrix, Matrix):
        return matrix
    if not isinstance(matrix, str) or matrix not in MATRICES:
        raise unknown("matrix", matrix, MATRICES)
    return MATRICES[matrix]()
