"""From the bytes of published files to arrays, one function a format.

Two of the formats are pickles. Their bytes come from `download.fetch`, which hands out nothing with an unknown
checksum, and are unpickled by a reader that knows six names and refuses every other.
"""

import io
import pickle
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib.resources import files as package_files
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from codesgc.errors import InputError


class RawGraph(NamedTuple):
    """A graph as arrays: each undirected edge once with the smaller end first, no self-loops."""

    edges: NDArray[np.int64]  # (2, E)
    features: Any  # (N, F), scipy CSR of float32
    labels: NDArray[np.int64]  # (N,)


Reader = Callable[[Mapping[str, bytes]], RawGraph]


def packaged(files: Mapping[str, bytes]) -> RawGraph:
    """Cora from the package itself, whatever `files` holds; `tools/embed_cora.py` made the file and describes it.

    Nodes, words and classes are numbered as in the Planetoid files of the same graph.
    """
    cora = _open_npz(package_files("codesgc.datasets").joinpath("cora.npz").read_bytes())
    indices, indptr = cora["indices"].astype(np.int32), cora["indptr"].astype(np.int32)
    features = sp.csr_matrix((np.ones(len(indices)), indices, indptr), shape=tuple(cora["shape"].tolist()))
    return _raw(cora["edges"], features, cora["labels"])


def planetoid(files: Mapping[str, bytes]) -> RawGraph:
    """CiteSeer, PubMed (and Cora) as published with Planetoid: Python 2 pickles and a list of test nodes.

    Row i of `tx` and `ty` belongs to the node in line i of `test.index`; all other nodes are the rows of `allx` and
    `ally`, in order. 15 nodes of CiteSeer have no row at all: they get no features and class 0, which is what the usual
    arg max over an absent (all-zero) one-hot row gives, so that all 3327 nodes count as labelled as in the paper.
    `graph` lists neighbours in both directions, some twice; the published edge counts are reached only without its
    self-loops (124 in CiteSeer, 3 in PubMed), which are dropped.
    """
    part = {file.split(".", 2)[2]: data for file, data in files.items()}  # "planetoid/ind.NAME.PART"
    neighbours = restricted_unpickle(part["graph"])
    nodes = len(neighbours)
    test_nodes = np.array(part["test.index"].split(), dtype=np.int64)
    known, tested = _csr(restricted_unpickle(part["allx"])), _csr(restricted_unpickle(part["tx"]))
    row_to_node = np.concatenate([np.arange(known.shape[0]), test_nodes])

    stacked = sp.vstack([known, tested]).tocoo()
    features = sp.csr_matrix((stacked.data, (row_to_node[stacked.row], stacked.col)), shape=(nodes, known.shape[1]))
    labels = np.zeros(nodes, dtype=np.int64)
    labels[row_to_node] = np.concatenate([restricted_unpickle(part[k]) for k in ("ally", "ty")]).argmax(axis=1)

    ends = np.fromiter((end for ends in neighbours.values() for end in ends), dtype=np.int64)
    starts = np.repeat(
        np.fromiter(neighbours, dtype=np.int64),
        np.fromiter(map(len, neighbours.values()), dtype=np.int64),
    )
    return _raw(np.stack([starts, ends]), features, labels)


def amazon(files: Mapping[str, bytes]) -> RawGraph:
    """Computers and Photo: npz with the adjacency and the features as pickled SciPy matrices.

    The adjacency is directed; direction and Photo's one self-loop are dropped, as the published edge counts require.
    """
    (data,) = files.values()
    members = zipfile.ZipFile(io.BytesIO(data))
    adjacency = _csr(_read_member(members, "adj_matrix").item()).tocoo()
    features = _csr(_read_member(members, "node_attr").item())
    return _raw(np.stack([adjacency.row, adjacency.col]), features, _read_member(members, "node_label"))


def heterophilous(files: Mapping[str, bytes]) -> RawGraph:
    """Actor, Chameleon, Squirrel, Cornell, Texas and the filtered two: npz of plain arrays, edges given once."""
    (data,) = files.values()
    arrays = _open_npz(data)
    return _raw(arrays["edges"].T, sp.csr_matrix(arrays["node_features"]), arrays["node_labels"])


READERS: dict[str, Reader] = {
    "packaged": packaged,
    "planetoid": planetoid,
    "amazon": amazon,
    "heterophilous": heterophilous,
}


def restricted_unpickle(data: bytes) -> Any:
    """Unpickle `data`, admitting only arrays, SciPy CSR matrices and the dictionary of lists of a Planetoid graph.

    >>> restricted_unpickle(pickle.dumps(print))
    Traceback (most recent call last):
    codesgc.errors.InputError: pickle asks for 'builtins.print': expected only NumPy arrays and SciPy matrices; ...
    """
    return _RestrictedUnpickler(io.BytesIO(data), encoding="latin1").load()  # Python 2 strings hold array bytes


class _RestrictedUnpickler(pickle.Unpickler):
    # The names as old pickles write them, with what they are called today. The function that starts an empty array is
    # private to NumPy and has moved once, so it is taken from where any array names it.
    ADMITTED: Mapping[tuple[str, str], Any] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("scipy.sparse.csr", "csr_matrix"): sp.csr_matrix,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
    }

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return self.ADMITTED[module_name, global_name]
        except KeyError:
            raise InputError(
                f"pickle asks for '{module_name}.{global_name}': expected only NumPy arrays and SciPy matrices; "
                "this is not a published file, delete it"
            ) from None


def _read_member(members: zipfile.ZipFile, name: str) -> Any:
    """One array of an npz; `np.load` would need leave to unpickle anything."""
    with members.open(f"{name}.npy") as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        content = member.read()
    if dtype.hasobject:
        return restricted_unpickle(content)
    return np.frombuffer(content, dtype).reshape(shape)


def _open_npz(data: bytes) -> Mapping[str, NDArray[Any]]:
    arrays: Mapping[str, NDArray[Any]] = np.load(io.BytesIO(data), allow_pickle=False)
    return arrays


def _csr(unpickled: Any) -> Any:
    # Unpickling fills in attributes unchecked, as an old SciPy had them; the constructor checks and completes them.
    return sp.csr_matrix((unpickled.data, unpickled.indices, unpickled.indptr), shape=unpickled.shape)


def _raw(edges: NDArray[Any], features: Any, labels: NDArray[Any]) -> RawGraph:
    """Drop self-loops and direction, merge duplicates, settle types."""
    nodes = features.shape[0]
    low, high = edges.min(axis=0).astype(np.int64), edges.max(axis=0).astype(np.int64)
    keys = np.unique((low * nodes + high)[low != high])
    return RawGraph(np.stack(np.divmod(keys, nodes)), features.astype(np.float32), labels.astype(np.int64))
