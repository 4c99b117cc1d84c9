"""An undirected graph with node features and labels.

Two doors lead in. `Graph` takes a whole data set, checks it once and stores it in one canonical form; `check_edges`
takes the raw `edge_index` given to a layer. Code behind either of them trusts what it receives. The checks themselves
are in `graph_checks`, what other libraries and files call a graph is in `graph_io`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from codesgc import graph_io
from codesgc.errors import InputError, unknown
from codesgc.graph_checks import (
    Array,
    Duplicates,
    check_devices,
    check_edges,
    check_features,
    check_labels,
    check_positive_degrees,
    check_row_counts,
    counted,
    csr_tensor,
    merge_edges,
    rows_of,
    stored_dtype,
    symmetric,
)

__all__ = ["Graph", "check_edges", "check_positive_degrees", "csr_tensor"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Graph:
    """An undirected graph G = (V, E, w) with node features X and labels y.

    Fields are read-only; methods that change something return a new graph, and a graph shares no memory with the
    arrays it was made from. Self-loops, isolated nodes, negative weights and a graph without edges are all legal.

    Args:
        edge_index: (2, E) integers, one column i -> j per direction of an edge: tensor, NumPy array or nested lists.
        x: (N, F) features: tensor (dense, COO or CSR), NumPy array, nested lists or SciPy sparse matrix. float64 stays
            float64, everything else becomes float32.
        y: (N,) integer labels from 0; -1 marks a node without one.
        edge_weight: (E,) finite weights; None means that all are 1. The two directions of an edge must have the same
            weight; where they differ by rounding only, both get the mean.
        num_nodes: N; by default the rows of x, else the length of y, else the largest index + 1.
        to_undirected: add the reverse of each edge that lacks it, with the same weight.
        duplicates: what becomes of a column (i, j) given more than once: "error"; "sum" adds the weights up (1 each if
            unweighted); "first" keeps the first one. An edge and its reverse are not duplicates of each other.
        name: for `repr` and reports; it does not take part in comparisons.

    >>> graph = Graph([[0, 1], [1, 2]], x=[[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], y=[0, 1, -1], to_undirected=True)
    >>> graph
    Graph(3 nodes, 2 edges, 2 features, 2 classes)
    >>> graph.edge_index
    tensor([[0, 1, 1, 2],
            [1, 0, 2, 1]])
    """

    edge_index: Tensor  # (2, E) int64: both directions of each edge, a self-loop once, sorted by row, then column
    edge_weight: Tensor | None  # (E,) float32 or float64; None: all ones
    x: Tensor | None  # (N, F) float32 or float64: dense, or CSR without duplicates and stored zeros
    y: Tensor | None  # (N,) int64, -1: no label
    num_nodes: int
    name: str | None

    def __init__(
        self,
        edge_index: Array,
        x: Any = None,
        y: Array | None = None,
        *,
        edge_weight: Array | None = None,
        num_nodes: int | None = None,
        to_undirected: bool = False,
        duplicates: Duplicates = "error",
        name: str | None = None,
    ) -> None:
        if duplicates not in ("error", "sum", "first"):
            raise unknown("duplicates", duplicates, ["error", "sum", "first"])
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name is {name!r}: expected a string or None; pass name={str(name)!r}")
        check_devices(edge_index, x=x, y=y, edge_weight=edge_weight)
        features = None if x is None else check_features(x)
        labels = None if y is None else check_labels(y)
        nodes = check_row_counts(num_nodes, features, labels)
        edges, weight, nodes = check_edges(edge_index, edge_weight, nodes)
        if weight is not None:
            weight = weight.to(stored_dtype(weight))
        edges, weight = merge_edges(edges, weight, nodes, duplicates)
        edges, weight = symmetric(edges, weight, nodes, to_undirected)
        self.__dict__.update(edge_index=edges, edge_weight=weight, x=features, y=labels, num_nodes=nodes, name=name)

    # --- what the graph holds

    @property
    def num_edges(self) -> int:
        """Undirected edges; a self-loop counts once."""
        return int((self.edge_index[0] <= self.edge_index[1]).sum())

    @property
    def num_features(self) -> int:
        """F, 0 without features."""
        return 0 if self.x is None else int(self.x.size(1))

    @property
    def num_classes(self) -> int:
        """Largest label + 1, 0 without labels."""
        return 0 if self.y is None else int(self.y.max()) + 1

    @property
    def labelled(self) -> Tensor:
        """(N,) bool: which nodes have a label."""
        if self.y is None:
            return torch.zeros(self.num_nodes, dtype=torch.bool, device=self.edge_index.device)
        return self.y >= 0

    @property
    def has_self_loops(self) -> bool:
        return bool((self.edge_index[0] == self.edge_index[1]).any())

    @property
    def num_isolated(self) -> int:
        """Nodes without any edge; a self-loop is an edge."""
        return self.num_nodes - int(torch.unique_consecutive(self.edge_index[0]).numel())

    def __repr__(self) -> str:
        parts = [] if self.name is None else [repr(self.name)]
        parts += [counted(self.num_nodes, "node"), counted(self.num_edges, "edge")]
        if self.edge_weight is not None:
            parts.append("weighted")
        if self.x is not None:
            sparse = self.x.layout == torch.sparse_csr
            share = self.x.values().numel() / max(self.x.numel(), 1) if sparse else 1.0
            parts.append(counted(self.num_features, "feature") + (f" (sparse, {share:.1%} nonzero)" if sparse else ""))
        if self.y is not None:
            parts.append(counted(self.num_classes, "class", "classes"))
        return f"Graph({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        """Same nodes, edges, weights, features and labels, to the last bit; no weights equal weights of 1."""
        if not isinstance(other, Graph):
            return NotImplemented
        return (
            self.num_nodes == other.num_nodes
            and _same(self.edge_index, other.edge_index)
            and _same_weights(self.edge_weight, other.edge_weight)
            and _same(self.x, other.x)
            and _same(self.y, other.y)
        )

    def __hash__(self) -> int:
        return hash((self.num_nodes, self.edge_index.size(1)))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Graph":
        return self._with()  # torch does not deep-copy CSR tensors

    # --- new graphs and tensors made from it

    def dense_features(self) -> Tensor:
        """X as a dense (N, F) tensor."""
        return self._features().to_dense()

    def row_normalised(self) -> "Graph":
        """x_ij / sum_j x_ij: the same graph, each row of features divided by its sum; rows that sum to 0 stay.

        >>> Graph([[], []], x=[[1, 3], [0, 0]]).row_normalised().x
        tensor([[0.2500, 0.7500],
                [0.0000, 0.0000]])
        """
        x = self._features()
        # The sums are taken in float64, where those of finite float32 features cannot overflow.
        if x.layout == torch.sparse_csr:
            crow, col, values = x.crow_indices(), x.col_indices(), x.values()
            row = rows_of(crow)
            sums = torch.zeros(x.size(0), dtype=torch.float64, device=x.device).index_add_(0, row, values.double())
            values = (values / torch.where(sums == 0, 1.0, sums)[row]).to(x.dtype)
            return self._with(x=csr_tensor(crow, col, values, x.shape))
        sums = x.sum(dim=1, keepdim=True, dtype=torch.float64)
        return self._with(x=(x / torch.where(sums == 0, 1.0, sums)).to(x.dtype))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Graph":
        """The same graph on another device, or with features and weights in another floating dtype.

        >>> Graph([[], []], x=[[1, 3]]).to(dtype=torch.float64).x.dtype
        torch.float64
        """
        if isinstance(device, torch.dtype):
            raise TypeError(f"device is {device}, a dtype: expected a device; pass dtype={device}")
        if dtype is not None and dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype is {dtype}: expected torch.float32 or torch.float64, the dtypes of a Graph")
        return self._with(
            edge_index=self.edge_index.to(device),
            edge_weight=None if self.edge_weight is None else self.edge_weight.to(device=device, dtype=dtype),
            x=None if self.x is None else self.x.to(device=device, dtype=dtype),
            y=None if self.y is None else self.y.to(device),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to an .npz file that `from_npz` reads back as it was; an old file is replaced in one step."""
        graph_io.write_npz(path, self._arrays())

    # --- graphs made from other things

    @classmethod
    def from_scipy(cls, adjacency: Any, x: Any = None, y: Array | None = None, **options: Any) -> "Graph":
        """From an (N, N) adjacency matrix, SciPy sparse or dense NumPy: A_ij is the weight of edge i -> j.

        Each stored entry of a sparse matrix is an edge, zeros included; call `eliminate_zeros()` first to drop them. As
        everywhere in SciPy, entries stored twice add up. A matrix of ones gives a graph without weights.

        >>> Graph.from_scipy(np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
        Graph(3 nodes, 2 edges, weighted)
        """
        return cls(x=x, y=y, **graph_io.scipy_arguments(adjacency), **options)

    @classmethod
    def from_networkx(
        cls, g: Any, *, x: Any = None, y: Array | None = None, weight: str | None = "weight", **options: Any
    ) -> "Graph":
        """From a NetworkX graph: node k is the k-th of `g.nodes`, rows of x and y in the same order.

        `weight` names the edge attribute with the weights (None: none); an edge without it weighs 1. The edges of a
        directed graph are taken as they are, so it has to hold both directions, or `to_undirected=True` be given;
        parallel edges of a multigraph are duplicates.

        >>> import networkx
        >>> Graph.from_networkx(networkx.path_graph(4), name="path")
        Graph('path', 4 nodes, 3 edges)
        """
        return cls(x=x, y=y, **graph_io.networkx_arguments(g, weight), **options)

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> "Graph":
        """From `torch_geometric.data.Data`: its edge_index, x, y, num_nodes, and edge_weight or one-column edge_attr.

        Edge features of several columns are no weights and are left out. Options given here replace what data holds.
        """
        return cls(**(graph_io.pyg_arguments(data) | options))

    @classmethod
    def from_npz(cls, path: str | os.PathLike[str], **options: Any) -> "Graph":
        """From an .npz file; never runs code stored in it. Options given here replace what the file holds.

        Keys: `edge_index` (2, E) or `edges` (E, 2); optionally `edge_weight`, `num_nodes`, `name`, `y` or
        `node_labels`, and features as `x` or `node_features`, or as CSR parts `x_indptr`, `x_indices`, `x_values`,
        `x_shape`. Edges stored the other way round are recognised, except two edges in a (2, 2) array.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graph = Graph([[0, 1], [1, 0]], y=[0, 1])
        ...     graph.save(f"{folder}/pair.npz")
        ...     Graph.from_npz(f"{folder}/pair.npz") == graph
        True
        """
        arguments = graph_io.read_npz(path)
        try:
            return cls(**(arguments | options))
        except InputError as error:
            raise InputError(f"{Path(path)}: {error}") from error

    # --- private

    def _features(self) -> Tensor:
        if self.x is None:
            raise InputError("the graph has no features: expected x of shape (N, F); pass x= when building the Graph")
        return self.x

    def _with(self, **changes: Any) -> "Graph":
        """A graph with some fields replaced, checked like any other: an overflow on the way is found here."""
        return Graph(**({name: getattr(self, name) for name in self.__dataclass_fields__} | changes))

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What `save` writes, under the keys that `from_npz` reads."""
        arrays: dict[str, Any] = {"edge_index": self.edge_index, "edge_weight": self.edge_weight, "y": self.y}
        if self.x is not None and self.x.layout == torch.sparse_csr:
            arrays["x_indptr"], arrays["x_indices"] = self.x.crow_indices(), self.x.col_indices()
            arrays["x_values"], arrays["x_shape"] = self.x.values(), torch.tensor(self.x.shape)
        else:
            arrays["x"] = self.x
        known = {key: tensor.detach().cpu().numpy() for key, tensor in arrays.items() if tensor is not None}
        known["num_nodes"] = np.array(self.num_nodes)
        return known if self.name is None else known | {"name": np.array(self.name)}


def _same_weights(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return all(weight is None or bool((weight == 1).all()) for weight in (a, b))
    return _same(a, b)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if (a.layout, a.dtype, a.device, a.shape) != (b.layout, b.dtype, b.device, b.shape):
        return False
    if a.layout == torch.sparse_csr:
        parts = (Tensor.crow_indices, Tensor.col_indices, Tensor.values)
        return all(torch.equal(part(a), part(b)) for part in parts)
    return torch.equal(a, b)
