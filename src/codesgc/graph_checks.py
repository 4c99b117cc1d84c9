"""Checks of what a user gives for a graph, and the canonical form that what passes is brought to.

An error says what was given, what was expected and how to fix it. `codesgc.graph` offers the public
names.
"""

import operator
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from codesgc.errors import InputError

Array = Tensor | npt.ArrayLike
Duplicates = Literal["error", "sum", "first"]

# i * num_nodes + j, the key by which edges are sorted and merged, then fits in int64 with room to spare
MAX_NODES = 2**31 - 1
# Weights computed in floating point differ by a few roundings between (i, j) and (j, i); more is not symmetric.
ROUNDINGS = 16


# --- edges


def check_edges(
    edge_index: Array, edge_weight: Array | None = None, num_nodes: int | None = None
) -> tuple[Tensor, Tensor | None, int]:
    """Edges as int64 (2, E), weights as floating (E,) or None, and the number of nodes; nothing is merged or sorted.

    For layers that take edges as PyG does. Weights keep their floating dtype, integers become float32; the number of
    nodes is the largest index + 1 unless given.

    >>> check_edges([[0, 2], [1, 0]], [1, 3])
    (tensor([[0, 2],
            [1, 0]]), tensor([1., 3.]), 3)
    >>> check_edges([[0, 2], [1, 0]], num_nodes=2)
    Traceback (most recent call last):
    codesgc.errors.InputError: edge_index names node 2 in column 1: expected indices below num_nodes = 2; \
pass num_nodes=3 and a row of x and y for each node
    """
    check_devices(edge_index, edge_weight=edge_weight)
    edges = _as_tensor(edge_index, "edge_index")
    if edges.layout != torch.strided:
        raise InputError(
            "edge_index is a sparse tensor: expected a dense one of shape (2, E), one column per edge; "
            "pass adjacency.coalesce().indices()"
        )
    if edges.dim() != 2 or edges.size(0) != 2:
        transposed = edges.dim() == 2 and edges.size(1) == 2
        fix = "pass edge_index.T" if transposed else "pass one row of sources and one row of targets"
        raise InputError(f"edge_index has shape {_shape(edges)}: expected (2, E), one column per edge; {fix}")
    if isinstance(edge_index, Sequence) and edges.numel() == 0:
        edges = edges.long()  # [[], []] has no dtype of its own
    if not _is_integer(edges):
        raise InputError(
            f"edge_index has dtype {edges.dtype}: expected integers, the indices of nodes; pass edge_index.long()"
        )
    edges = edges.long()
    smallest, largest = (int(edges.min()), int(edges.max())) if edges.numel() else (0, -1)
    if smallest < 0:
        raise InputError(
            f"edge_index names node {smallest} in column {_column(edges, smallest)}: expected indices from 0; "
            f"remove padding columns, or renumber the nodes from 0"
        )
    nodes = largest + 1 if num_nodes is None else _check_count(num_nodes)
    if nodes == 0:
        raise InputError(
            "the graph has no nodes, or nothing says how many: expected at least one; pass num_nodes, x or an edge"
        )
    if nodes > MAX_NODES:
        raise InputError(f"the graph has {nodes} nodes: expected at most {MAX_NODES}; renumber the nodes from 0")
    if largest >= nodes:
        raise InputError(
            f"edge_index names node {largest} in column {_column(edges, largest)}: expected indices below "
            f"num_nodes = {nodes}; pass num_nodes={largest + 1} and a row of x and y for each node"
        )
    return edges, None if edge_weight is None else _check_weight(edge_weight, edges), nodes


def check_devices(edge_index: object, **others: object) -> None:
    """Everything where the edges are; what is no tensor counts as on the CPU."""
    home, *devices = (
        v.device if isinstance(v, Tensor) else torch.device("cpu") for v in (edge_index, *others.values())
    )
    for (name, value), device in zip(others.items(), devices, strict=True):
        if value is not None and device != home:
            raise InputError(
                f"{name} is on {device} and edge_index on {home}: expected one device; pass both from there, "
                f"or build a Graph on the CPU and call graph.to({str(device)!r})"
            )


def check_positive_degrees(degree: Tensor, matrix_name: str) -> None:
    """Refuse a node with d_i = sum_j w_ij < 0, where d_i^(-1/2) is not a real number; d_i = 0 (isolated) is allowed.

    >>> check_positive_degrees(torch.tensor([1.0, -2.0]), "laplacian")
    Traceback (most recent call last):
    codesgc.errors.InputError: node 1 has degree -2.0: matrix 'laplacian' takes square roots of degrees and expected \
none below 0; remove the negative edge weights, or pass a matrix of your own, matrix='custom'
    """
    bad = (~(degree >= 0)).nonzero().flatten()
    if bad.numel():
        node = int(bad[0])
        raise InputError(
            f"node {node} has degree {float(degree[node])}: matrix {matrix_name!r} takes square roots of degrees and "
            f"expected none below 0; remove the negative edge weights, or pass a matrix of your own, matrix='custom'"
        )


def _check_weight(edge_weight: Array, edges: Tensor) -> Tensor:
    weight = _as_tensor(edge_weight, "edge_weight")
    expected = (edges.size(1),)
    if weight.shape != expected:
        column = weight.dim() == 2 and weight.size(1) == 1
        fix = "pass edge_weight.squeeze(1)" if column else "pass the weights in the order of those columns"
        raise InputError(
            f"edge_weight has shape {_shape(weight)}: expected {expected}, one weight per column of edge_index; {fix}"
        )
    if weight.layout != torch.strided:
        raise InputError(
            f"edge_weight has layout {weight.layout}: expected a dense tensor; pass edge_weight.to_dense()"
        )
    weight = weight if weight.is_floating_point() else _as_float(weight, "edge_weight")
    _check_finite(weight, "edge_weight", "remove those edges, or give them a number")
    return weight


def merge_edges(
    edges: Tensor, weight: Tensor | None, num_nodes: int, duplicates: Duplicates
) -> tuple[Tensor, Tensor | None]:
    """Columns sorted and unique, with duplicates treated as asked."""
    merged, groups, first = _merge(edges, num_nodes)
    repeated = edges.size(1) - merged.size(1)
    if repeated and duplicates == "error":
        i, j = merged[:, groups.bincount().argmax()].tolist()
        raise InputError(
            f"edge_index holds {counted(repeated, 'duplicate')}, for example {i} -> {j}: expected each column once; "
            f"pass duplicates='sum' to add their weights, or duplicates='first' to keep the first of each"
        )
    if repeated and duplicates == "sum":
        weight = torch.ones(edges.size(1), device=edges.device) if weight is None else weight
        # Added in float64 and rounded once. Opposite directions may still add up in a different order: symmetric
        # evens that out.
        total = torch.zeros(merged.size(1), dtype=torch.float64, device=edges.device)
        total = total.index_add(0, groups, weight.double()).to(weight.dtype)
        _check_finite(total, "edge_weight", "scale the weights down: those of duplicates add up to more than the dtype")
        return merged, total
    return merged, None if weight is None else weight[first]


def symmetric(edges: Tensor, weight: Tensor | None, num_nodes: int, complete: bool) -> tuple[Tensor, Tensor | None]:
    """Both directions of every edge with one weight, from sorted unique columns; or the error that names the gap."""
    key, reverse = edges[0] * num_nodes + edges[1], edges[1] * num_nodes + edges[0]
    place = torch.searchsorted(key, reverse).clamp(max=max(key.numel() - 1, 0))
    alone = key[place] != reverse
    if bool(alone.any()) and not complete:
        i, j = edges[:, alone][:, 0].tolist()
        raise InputError(
            f"edge_index holds {counted(int(alone.sum()), 'edge')} without the reverse, for example {i} -> {j}: "
            f"expected both directions of each edge; pass to_undirected=True to add what is missing"
        )
    if weight is not None:
        back = torch.where(alone, weight, weight[place])
        largest = torch.maximum(weight.abs(), back.abs())
        differ = (weight - back).abs() > ROUNDINGS * torch.finfo(weight.dtype).eps * largest
        if bool(differ.any()):
            k = int(differ.nonzero()[0])
            i, j = edges[:, k].tolist()
            raise InputError(
                f"edge_weight has different values on the two directions of {counted(int(differ.sum()) // 2, 'edge')}, "
                f"for example {float(weight[k])} on {i} -> {j} and {float(back[k])} on {j} -> {i}: expected one weight "
                f"per undirected edge; pass one direction of each edge and to_undirected=True, or weigh both the same"
            )
        weight = torch.where(weight == back, weight, weight / 2 + back / 2)
    if bool(alone.any()):
        edges = torch.cat([edges, edges[:, alone].flip(0)], dim=1)
        weight = None if weight is None else torch.cat([weight, weight[alone]])
        edges, _, order = _merge(edges, num_nodes)
        weight = None if weight is None else weight[order]
    return edges, weight


def _merge(index: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Places (i, j) sorted by row, then column, and unique: the places (2, U), the group of each column given (E,), and
    the first column given of each group (U,)."""
    key, order = (index[0] * columns + index[1]).sort(stable=True)
    unique, sorted_groups, counts = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    groups = torch.empty_like(order).scatter_(0, order, sorted_groups)
    merged = torch.stack([unique // max(columns, 1), unique % max(columns, 1)])
    return merged, groups, order[counts.cumsum(0) - counts]


# --- features and labels


def csr_tensor(
    crow: Tensor, col: Tensor, values: Tensor, size: Sequence[int], *, check_invariants: bool = False
) -> Tensor:
    """A torch CSR tensor, without torch's notice that CSR is in beta: every CSR tensor of the library is made here.

    >>> csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.ones(2), (2, 2)).to_dense()
    tensor([[0., 1.],
            [1., 0.]])
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor|invariant)")
        return torch.sparse_csr_tensor(crow, col, values, tuple(size), check_invariants=check_invariants)


def check_features(x: Any) -> Tensor:
    """Features as a fresh float tensor, dense or canonical CSR."""
    if isinstance(x, Tensor) and x.layout in (torch.sparse_coo, torch.sparse_csr):
        index, values, size = _entries_of_torch(x)
    elif hasattr(x, "tocoo"):  # any SciPy sparse matrix, without importing SciPy
        index, values, size = _entries_of_scipy(x)
    else:
        dense = _as_tensor(x, "x")
        if dense.layout != torch.strided:
            raise InputError(
                f"x has layout {dense.layout}: expected a dense, COO or CSR tensor; pass x.to_sparse_csr()"
            )
        _check_matrix(dense.shape)
        dense = _as_float(dense, "x").clone(memory_format=torch.contiguous_format)
        _check_finite(dense, "x", "replace missing features, for example by torch.nan_to_num(x)")
        return dense
    index = index.long()
    if index.numel() and not bool(((index >= 0) & (index < index.new_tensor(size)[:, None])).all()):
        raise InputError(
            f"x has entries outside its shape {tuple(size)}: expected indices within it; rebuild the matrix"
        )
    values = _as_float(values, "x")
    _check_finite(values, "x", "replace missing features by numbers")
    merged, groups, _ = _merge(index, size[1])
    summed = torch.zeros(merged.size(1), dtype=values.dtype, device=values.device).index_add(0, groups, values)
    _check_finite(summed, "x", "scale the features down: entries stored twice add up to more than the dtype holds")
    merged, summed = merged[:, summed != 0], summed[summed != 0]
    crow = torch.zeros(size[0] + 1, dtype=torch.int64, device=values.device)
    crow[1:] = torch.bincount(merged[0], minlength=size[0]).cumsum(0)
    return csr_tensor(crow, merged[1], summed, size)


def _entries_of_torch(x: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
    _check_matrix(x.shape)
    if x.dense_dim():
        raise InputError("x is a hybrid sparse tensor: expected one number per entry; pass x.to_dense()")
    if x.layout == torch.sparse_coo:
        # Not x.coalesce(): it would move entries that lie outside the shape to other places.
        return x._indices(), x._values(), x.shape
    try:
        csr_tensor(x.crow_indices(), x.col_indices(), x.values(), x.shape, check_invariants=True)
    except RuntimeError as error:
        raise InputError(
            f"x is not a valid CSR tensor ({error}): expected sorted rows; rebuild it from a dense one"
        ) from None
    return torch.stack([rows_of(x.crow_indices()), x.col_indices().long()]), x.values(), x.shape


def _entries_of_scipy(x: Any) -> tuple[Tensor, Tensor, torch.Size]:
    _check_matrix(x.shape)
    coo = check_scipy(x, "x").tocoo()
    index = torch.stack([_as_tensor(part, "x").long() for part in (coo.row, coo.col)])
    return index, _as_tensor(coo.data, "x"), torch.Size(coo.shape)


def check_scipy(matrix: Any, name: str) -> Any:
    """The matrix, if its index arrays can be followed: SciPy itself trusts them, and may go out of bounds."""
    if hasattr(matrix, "check_format"):
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise InputError(f"{name} is no valid sparse matrix ({error}); rebuild it from its entries") from None
    elif getattr(matrix, "format", None) == "coo":
        for index, size in zip(matrix.coords, matrix.shape, strict=True):
            if index.size and not (index.min() >= 0 and index.max() < size):
                raise InputError(
                    f"{name} has entries outside its shape {matrix.shape}: expected indices within it; rebuild it"
                )
    return matrix


def _check_matrix(shape: Sequence[int]) -> None:
    if len(shape) != 2:
        fix = "pass x[:, None] if each node has one feature" if len(shape) == 1 else "pass one row per node"
        raise InputError(f"x has shape {tuple(shape)}: expected (N, F), one row of features per node; {fix}")
    if shape[0] * shape[1] >= 2**63:
        raise InputError(f"x has shape {tuple(shape)}: expected fewer than 2**63 entries; remove empty columns")


def check_labels(y: Array) -> Tensor:
    labels = _as_tensor(y, "y")
    if labels.layout != torch.strided or labels.dim() != 1:
        fix = "pass one class per node"
        if labels.dim() == 2:
            fix = "pass y.squeeze(1)" if labels.size(1) == 1 else "pass y.argmax(1) if its rows are one-hot"
        raise InputError(f"y has shape {_shape(labels)}: expected (N,), one class per node; {fix}")
    if isinstance(y, Sequence) and labels.numel() == 0:
        labels = labels.long()
    if not _is_integer(labels):
        raise InputError(f"y has dtype {labels.dtype}: expected integers, the classes of the nodes; pass y.long()")
    labels = labels.to(torch.int64, copy=True)
    bad = (labels < -1).nonzero().flatten()
    if bad.numel():
        node = int(bad[0])
        raise InputError(
            f"y has label {int(labels[node])} at node {node}: expected classes from 0, or -1 for a node without label; "
            f"renumber the classes"
        )
    return labels


def check_row_counts(num_nodes: int | None, x: Tensor | None, y: Tensor | None) -> int | None:
    """N as far as num_nodes, x and y say, which must agree."""
    said = None if num_nodes is None else (_check_count(num_nodes), f"num_nodes = {num_nodes}")
    for tensor, what in ((x, "x"), (y, "y")):
        if tensor is None:
            continue
        rows = tensor.size(0)
        said = said or (rows, f"the {counted(rows, 'row')} of {what}")
        if rows != said[0]:
            raise InputError(
                f"{what} has {counted(rows, 'row')}: expected {said[0]} to match {said[1]}, one per node; "
                f"pass one for every node, isolated ones included"
            )
    return None if said is None else said[0]


# --- helpers


def _as_tensor(value: object, name: str) -> Tensor:
    """The tensor itself, or a fresh one with what an array or nested lists hold; Python floats become float32."""
    if isinstance(value, Tensor):
        return value.as_tensor() if hasattr(value, "as_tensor") else value  # PyG's EdgeIndex is a subclass
    if not (isinstance(value, list | tuple) or hasattr(value, "__array__")):
        raise TypeError(f"{name} is {type(value).__name__}: expected a tensor, a NumPy array or nested lists")
    if np.ma.isMaskedArray(value) and np.ma.is_masked(value):
        raise InputError(f"{name} is a masked array with missing values: expected all of them; pass {name}.filled(...)")
    try:
        array = np.asarray(value)
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"{name} is no array of numbers ({error}): expected rows of equal length, of a type that torch knows; "
            f"pass a tensor, or {name}.astype(float)"
        ) from None
    return tensor.float() if isinstance(value, list | tuple) and tensor.dtype == torch.float64 else tensor


def _as_float(tensor: Tensor, name: str) -> Tensor:
    if tensor.is_complex():
        raise InputError(f"{name} has dtype {tensor.dtype}: expected real numbers; pass {name}.real or {name}.abs()")
    return tensor.to(stored_dtype(tensor))


def stored_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _check_finite(values: Tensor, name: str, fix: str) -> None:
    bad = (~torch.isfinite(values)).nonzero()
    if bad.numel():
        where = f" at {name}{bad[0].tolist()}" if name != "x" or values.dim() == 2 else ""
        first = float(values[tuple(bad[0])])
        raise InputError(
            f"{name} holds {counted(bad.size(0), 'value')} that {'is' if bad.size(0) == 1 else 'are'} NaN or infinite, "
            f"first {first}{where}: expected finite numbers; {fix}"
        )


def _check_count(num_nodes: object) -> int:
    try:
        count = operator.index(num_nodes)  # type: ignore[arg-type]  # anything may come here; what is no integer raises
    except TypeError:
        count = None
    if count is None or isinstance(num_nodes, bool):
        raise TypeError(f"num_nodes is {num_nodes!r}: expected an integer; pass int(num_nodes)")
    if count < 0:
        raise InputError(f"num_nodes is {count}: expected the number of nodes; leave it out to infer it")
    return count


def _is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def rows_of(crow: Tensor) -> Tensor:
    """The row of each entry of a CSR matrix."""
    return torch.repeat_interleave(crow.diff().long())


def _column(edges: Tensor, node: int) -> int:
    return int((edges == node).any(dim=0).nonzero()[0])


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
