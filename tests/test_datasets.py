"""Every registered graph is the paper's; pickles are refused unless they are known and harmless."""

import hashlib
import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import codesgc.datasets.readers as readers
from codesgc.datasets import DATASETS, DownloadError, load_dataset
from codesgc.datasets.download import fetch
from codesgc.datasets.registry import FILES, File, planetoid_files
from codesgc.errors import InputError

# nodes, undirected edges, features, classes of the paper's dataset table (PubMed's classes corrected from 5), then the
# nonzero features and isolated nodes counted with other code
PAPER = {
    "cora": (2708, 5278, 1433, 7, 49216, 0),
    "citeseer": (3327, 4552, 3703, 6, 105165, 48),
    "pubmed": (19717, 44324, 500, 3, 988031, 0),
    "computers": (13752, 245861, 767, 10, 3675081, 281),
    "photo": (7650, 119081, 745, 8, 1979909, 115),
    "chameleon": (2277, 31371, 2325, 5, 29157, 0),
    "squirrel": (5201, 198353, 2089, 5, 93477, 0),
    "actor": (7600, 26659, 932, 5, 40977, 0),
    "texas": (183, 279, 1703, 5, 15266, 0),
    "cornell": (183, 277, 1703, 5, 17240, 0),
    "chameleon_filtered": (890, 8854, 2325, 5, 9903, 0),
    "squirrel_filtered": (2223, 46998, 2089, 5, 32481, 0),
}


def no_network(monkeypatch) -> None:
    monkeypatch.setenv("CODESGC_MIRROR", "http://127.0.0.1:9")  # the discard port, where nothing answers
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module", params=DATASETS)
def loaded(request):
    return request.param, load_dataset(request.param)


def test_graph_has_the_statistics_of_the_paper(loaded):
    name, graph = loaded
    found = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    assert (*found, len(graph.x.values()), graph.num_isolated) == PAPER[name]
    entry = DATASETS[name]
    assert found == (entry.nodes, entry.edges, entry.features, entry.classes)


def test_edges_are_symmetric_and_unique_without_loops_or_weights(loaded):
    _, graph = loaded
    start, end = graph.edge_index.numpy()
    forward, backward = start * graph.num_nodes + end, end * graph.num_nodes + start
    assert len(np.unique(forward)) == len(forward)
    assert set(forward) == set(backward)
    assert not (start == end).any()
    assert graph.edge_weight is None or bool((graph.edge_weight == 1).all())


def test_features_are_sparse_and_finite_and_every_class_occurs(loaded):
    name, graph = loaded
    assert graph.x.layout == torch.sparse_csr
    assert graph.x.dtype == torch.float32
    assert bool(torch.isfinite(graph.x.values()).all()) and bool((graph.x.values() != 0).all())
    assert graph.y.dtype == torch.int64
    assert len(graph.y) == graph.num_nodes
    assert graph.y.unique().tolist() == list(range(DATASETS[name].classes))
    assert graph.name == name


def test_embedded_cora_is_the_planetoid_graph_in_the_same_order():
    embedded = readers.packaged({})
    published = readers.planetoid({file: fetch(file) for file in planetoid_files("cora")})
    np.testing.assert_array_equal(embedded.edges, published.edges)
    np.testing.assert_array_equal(embedded.labels, published.labels)
    assert embedded.features.shape == published.features.shape
    assert (embedded.features != published.features).nnz == 0


def test_cora_never_looks_into_a_folder(tmp_path, monkeypatch):
    no_network(monkeypatch)
    assert load_dataset("cora", folder=tmp_path / "absent").num_nodes == 2708
    assert not (tmp_path / "absent").exists()


def test_rows_of_planetoid_test_nodes_are_put_back_in_order():
    graph = load_dataset("citeseer")
    rows, labels = (readers.restricted_unpickle(fetch(f"planetoid/ind.citeseer.{part}")) for part in ("tx", "ty"))
    nodes = [int(line) for line in fetch("planetoid/ind.citeseer.test.index").split()]
    features = graph.x.to_dense().numpy()
    np.testing.assert_array_equal(features[nodes], rows.toarray())
    assert graph.y[nodes].tolist() == labels.argmax(axis=1).tolist()


def test_citeseer_nodes_without_a_row_have_no_features_and_class_zero():
    graph = load_dataset("citeseer")
    listed = {int(line) for line in fetch("planetoid/ind.citeseer.test.index").split()}
    absent = sorted(set(range(2312, 3327)) - listed)
    assert len(absent) == 15
    assert int(graph.x.to_dense()[absent].count_nonzero()) == 0
    assert graph.y[absent].tolist() == [0] * 15


@pytest.mark.parametrize("spelling", ["Chameleon-Filtered", "CHAMELEON_FILTERED"])
def test_case_and_hyphens_in_a_name_do_not_matter(spelling):
    assert load_dataset(spelling).name == "chameleon_filtered"


@pytest.mark.parametrize("name", ["squirel", "", None])
def test_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(InputError, match=r"dataset .* is unknown: expected one of actor, .*texas"):
        load_dataset(name)


def test_loading_from_a_complete_folder_writes_nothing(tmp_path, monkeypatch):
    (tmp_path / "heterophilous").mkdir()
    file = "heterophilous/texas.npz"
    (tmp_path / file).write_bytes(fetch(file))
    no_network(monkeypatch)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert load_dataset("texas", folder=str(tmp_path)).num_nodes == 183
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


class Attack:
    """Pickles to a call that makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def plant(folder: Path, file: str, content: bytes) -> Path:
    place = folder / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


def register(monkeypatch, file: str, content: bytes) -> None:
    monkeypatch.setitem(FILES, file, File(len(content), hashlib.sha256(content).hexdigest()))


def citeseer_with(attack: bytes, folder: Path) -> str:
    for file in planetoid_files("citeseer"):
        plant(folder, file, fetch(file))
    attacked = "planetoid/ind.citeseer.graph"
    plant(folder, attacked, attack)
    return attacked


def test_pickle_with_unknown_checksum_is_never_unpickled(tmp_path, monkeypatch):
    citeseer_with(pickle.dumps(Attack(tmp_path / "mark")), tmp_path)
    no_network(monkeypatch)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setattr(readers, "restricted_unpickle", lambda data: pytest.fail("unpickled before the check"))
    with pytest.raises(DownloadError, match="is damaged"):
        load_dataset("citeseer", folder=tmp_path)
    assert not (tmp_path / "mark").exists()


def test_pickle_that_calls_functions_is_refused_even_with_a_registered_checksum(tmp_path, monkeypatch):
    attack = pickle.dumps(Attack(tmp_path / "mark"))
    register(monkeypatch, citeseer_with(attack, tmp_path), attack)
    with pytest.raises(InputError, match=r"pickle asks for '\w+\.mkdir': expected only NumPy arrays"):
        load_dataset("citeseer", folder=tmp_path)
    assert not (tmp_path / "mark").exists()


def test_npz_member_that_calls_functions_is_refused_even_with_a_registered_checksum(tmp_path, monkeypatch):
    file = "amazon/amazon_photo.npz"
    place = plant(tmp_path, file, b"")
    np.savez(place, adj_matrix=np.array(Attack(tmp_path / "mark"), dtype=object))
    register(monkeypatch, file, place.read_bytes())
    with pytest.raises(InputError, match="pickle asks for"):
        load_dataset("photo", folder=tmp_path)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["builtins eval", "__builtin__ getattr", "numpy load", "scipy.sparse load_npz"])
def test_restricted_unpickler_refuses_other_names(name):
    module, attribute = name.split()
    with pytest.raises(InputError, match=f"'{module}.{attribute}'"):
        readers.restricted_unpickle(f"c{module}\n{attribute}\n.".encode())


def test_plain_npz_with_objects_is_refused(tmp_path, monkeypatch):
    file = "heterophilous/texas.npz"
    place = plant(tmp_path, file, b"")
    np.savez(place, edges=np.array(Attack(tmp_path / "mark"), dtype=object))
    register(monkeypatch, file, place.read_bytes())
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_dataset("texas", folder=tmp_path)
    assert not (tmp_path / "mark").exists()


def test_names_can_be_listed_without_torch_or_numpy():
    package = Path(readers.__file__).parents[1]
    # A stand-in for the package above, which may import what it likes.
    script = (
        "import sys, types\n"
        "top = types.ModuleType('codesgc')\n"
        f"top.__path__ = [{str(package)!r}]\n"
        "sys.modules['codesgc'] = top\n"
        "from codesgc.datasets import DATASETS, load_dataset\n"
        "print(len(DATASETS), [heavy for heavy in ('torch', 'numpy', 'scipy', 'pooch') if heavy in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "12 []\n"


@pytest.fixture(scope="module")
def embed_cora():
    script = Path(__file__).parents[1] / "tools" / "embed_cora.py"
    spec = importlib.util.spec_from_file_location("embed_cora", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_embedding_follows_the_order_of_the_target(embed_cora):
    content = b"30 1 0 1 Theory\n10 0 1 0 Case_Based\n20 0 1 0 Case_Based\n40 0 1 1 Theory\n"
    cites = b"30 10\n10 30\n20 40\n30 40\n40 40\n"
    corpus = embed_cora.parse(content, cites)
    assert corpus.edges == [(0, 1), (0, 3), (2, 3)]
    assert corpus.labels == [0, 5, 5, 0]
    # 10 and 20 differ only in their neighbours
    for papers in ([20, 30, 40, 10], [10, 40, 30, 20]):
        target = embed_cora.reorder(corpus, papers)
        assert embed_cora.match(corpus, target) == papers
    assert target.edges == [(0, 2), (1, 2), (1, 3)]
    arrays = embed_cora.to_arrays(target, 3)
    assert arrays["indptr"].tolist() == [0, 1, 3, 5, 6]
    assert arrays["indices"].tolist() == [1, 1, 2, 0, 2, 1]


def test_embedding_refuses_another_graph(embed_cora):
    ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]
    corpus = embed_cora.Corpus(papers=[1, 2, 3, 4, 5, 6], words=[[0]] * 6, labels=[0] * 6, edges=sorted(ring))
    two_triangles = [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]  # where every paper looks the same as in the ring
    for edges in (ring[:-1], two_triangles):
        with pytest.raises(SystemExit, match="do not match one to one"):
            embed_cora.match(corpus, corpus._replace(edges=edges))


def test_embedding_the_same_arrays_gives_the_same_bytes(embed_cora, tmp_path, monkeypatch):
    with np.load(embed_cora.TARGET) as stored:
        arrays = dict(stored)
    packed = embed_cora.pack(arrays)
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert embed_cora.pack(arrays) == packed
    (tmp_path / "again.npz").write_bytes(packed)
    with np.load(tmp_path / "again.npz") as again:
        assert list(again) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(again[name], array)
            assert again[name].dtype == array.dtype
    assert embed_cora.TARGET.stat().st_size < 100_000
