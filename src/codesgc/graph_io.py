"""What other libraries and files call a graph, as keyword arguments of `codesgc.graph.Graph`.

Nothing here knows the class: each function returns a dictionary, and `Graph` checks what is in it. SciPy is imported
where it is used; NetworkX and PyG are recognised by what their objects offer and never imported.
"""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codesgc.errors import InputError
from codesgc.files import replacing
from codesgc.graph_checks import check_scipy

Arguments = dict[str, Any]
X_PARTS = ("x_indptr", "x_indices", "x_values", "x_shape")


def scipy_arguments(adjacency: Any) -> Arguments:
    """Edges of an (N, N) matrix A: one column i -> j per stored entry, with weight A_ij."""
    from scipy import sparse

    if not (isinstance(adjacency, np.ndarray) or hasattr(adjacency, "tocsr")):
        raise TypeError(
            f"adjacency is {type(adjacency).__name__}: expected a SciPy sparse matrix or a NumPy array; "
            f"pass scipy.sparse.csr_array(adjacency)"
        )
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise InputError(
            f"adjacency has shape {adjacency.shape}: expected (N, N), a row and a column per node; pass a square matrix"
        )
    try:
        checked = check_scipy(adjacency, "adjacency")
        if checked.dtype.kind in "biu":  # sums of small integers would wrap around
            checked = checked.astype(np.float64)
        csr = sparse.csr_array(checked, copy=True)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"adjacency cannot be read ({error}): expected a matrix of numbers") from None
    csr.sum_duplicates()
    coo = csr.tocoo()
    unweighted = bool((coo.data == 1).all())
    return {
        "edge_index": np.stack([coo.row, coo.col]).astype(np.int64),
        "edge_weight": None if unweighted else coo.data,
        "num_nodes": coo.shape[0],
    }


def networkx_arguments(g: Any, weight: str | None) -> Arguments:
    """Edges of a NetworkX graph, in both directions if it is undirected; nodes are numbered in the order of g.nodes."""
    if isinstance(g, type) or not (hasattr(g, "is_directed") and hasattr(g, "nodes") and hasattr(g, "edges")):
        raise TypeError(f"g is {type(g).__name__}: expected a networkx graph; pass networkx.Graph(edges)")
    number = {node: k for k, node in enumerate(g.nodes)}
    columns = [(number[u], number[v], w) for u, v, w in g.edges(data=weight)]  # w is None where there is no weight
    if not g.is_directed():
        columns += [(j, i, w) for i, j, w in columns if i != j]
    weighted = any(w is not None for _, _, w in columns)
    return {
        "edge_index": np.array([(i, j) for i, j, _ in columns], dtype=np.int64).reshape(-1, 2).T,
        "edge_weight": [1.0 if w is None else w for _, _, w in columns] if weighted else None,
        "num_nodes": len(number),
    }


def pyg_arguments(data: Any) -> Arguments:
    """What PyG's Data stores under the names it uses by convention."""
    if hasattr(data, "to_dict"):
        stored = data.to_dict()
    else:
        stored = data if isinstance(data, Mapping) else getattr(data, "__dict__", {})
    if stored.get("edge_index") is None:
        raise InputError(f"data has no edge_index, only {_names(stored)}: expected a torch_geometric Data with edges")
    arguments = {key: stored.get(key) for key in ("edge_index", "x", "y", "num_nodes", "edge_weight")}
    attribute = stored.get("edge_attr")
    if arguments["edge_weight"] is None and hasattr(attribute, "ndim"):
        if attribute.ndim == 2 and attribute.shape[1] == 1:
            attribute = attribute[:, 0]
        arguments["edge_weight"] = attribute if attribute.ndim == 1 else None
    return arguments


def read_npz(path: str | os.PathLike[str]) -> Arguments:
    """Arguments from the arrays of an .npz file; see `Graph.from_npz` for the keys."""
    file = _file(path)
    arrays = _load(file)
    edges = _one_of(file, arrays, "edge_index", "edges")
    if edges is None:
        raise InputError(
            f"{file} holds {_names(arrays)}: expected 'edge_index' (2, E) or 'edges' (E, 2); save the edges under one"
        )
    # A (2, 2) array is read as its key says; any other has one axis of length 2, and that one is the two ends.
    upright = "edges" in arrays
    if edges.ndim == 2 and edges.shape[0 if upright else 1] == 2 and edges.shape[1 if upright else 0] != 2:
        upright = not upright
    arguments = {
        "edge_index": edges.T if upright else edges,
        "edge_weight": arrays.get("edge_weight"),
        "x": _one_of(file, arrays, "x", "node_features"),
        "y": _one_of(file, arrays, "y", "node_labels"),
        "num_nodes": arrays.get("num_nodes"),
        "name": str(arrays["name"]) if "name" in arrays else None,
    }
    parts = [key for key in X_PARTS if key in arrays]
    if parts and arguments["x"] is not None:
        raise InputError(f"{file} holds features twice, dense and as {_names(parts)}: expected one; remove the other")
    if parts:
        arguments["x"] = _sparse_features(file, arrays)
    return arguments


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write beside the target, then rename: a reader sees the old file or the new one, never half of one."""
    file = _file(path)
    try:
        with replacing(file) as stream:
            np.savez_compressed(stream, **dict(arrays))  # type: ignore[arg-type]  # numpy's stub reads ** as allow_pickle
    except OSError as error:
        raise InputError(
            f"{file} cannot be written ({error.strerror}): expected a path in an existing folder; "
            f"create the folder, or choose another path"
        ) from error


def _load(file: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a file that Graph has a use for; other keys are not even unpacked."""
    known = {
        "edge_index",
        "edges",
        "edge_weight",
        "x",
        "node_features",
        "y",
        "node_labels",
        "num_nodes",
        "name",
        *X_PARTS,
    }
    try:
        stream = file.open("rb")
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): expected an .npz file; check the path") from error
    with stream:
        if not zipfile.is_zipfile(stream):
            raise InputError(
                f"{file} is not an .npz file, or cut short: expected one made by numpy.savez; make it again"
            )
        stream.seek(0)
        try:
            with np.load(stream, allow_pickle=False) as archive:
                found = archive.files
                arrays = {key: archive[key] for key in found if key in known}
        except Exception as error:  # a damaged file may fail anywhere in zipfile, zlib, ast or numpy: all mean the same
            if "allow_pickle" in str(error):
                raise InputError(
                    f"{file} holds pickled Python objects, which may run code when read: expected arrays of numbers; "
                    f"save it again without dtype=object"
                ) from None
            raise InputError(
                f"{file} is damaged ({error}): expected an .npz file made by numpy.savez; make it again"
            ) from error
    if not arrays:
        raise InputError(f"{file} holds {_names(found)}: expected 'edge_index' or 'edges'; save the edges under one")
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"{file}: {key!r} is no array: expected a file made by numpy.savez; make it again")
    return arrays


def _sparse_features(file: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    from scipy import sparse

    missing = [key for key in X_PARTS if key not in arrays]
    if missing:
        raise InputError(f"{file} lacks {_names(missing)}: expected all of {_names(X_PARTS)} for sparse features")
    indptr, indices, values, shape = (arrays[key] for key in X_PARTS)
    for key, kinds, expected in zip(
        X_PARTS, ("iu", "iu", "biuf", "iu"), ("integers",) * 2 + ("numbers", "integers"), strict=True
    ):
        if arrays[key].dtype.kind not in kinds:
            raise InputError(f"{file}: {key!r} has dtype {arrays[key].dtype}: expected {expected}; save it again")
    try:
        return check_scipy(sparse.csr_array((values, indices, indptr), shape=tuple(shape)), "x")
    except (ValueError, TypeError) as error:
        raise InputError(f"{file}: {_names(X_PARTS)} do not form a CSR matrix ({error}); save it again") from error


def _one_of(file: Path, arrays: Mapping[str, npt.NDArray[Any]], key: str, other: str) -> npt.NDArray[Any] | None:
    if key in arrays and other in arrays:
        raise InputError(f"{file} holds both {key!r} and {other!r}: expected one of them; remove the other")
    return arrays.get(key, arrays.get(other))


def _file(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is {path!r}: expected a string or a pathlib.Path")
    return Path(path)


def _names(keys: Any) -> str:
    return ", ".join(repr(str(key)) for key in keys) or "nothing"
