"""Graph: its canonical form against a dictionary of edges, its errors, and its way in and out of other formats."""

import copy
import pickle
import tempfile
import warnings
import zipfile
from pathlib import Path

import hypothesis.extra.numpy as hnp
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codesgc.errors import InputError
from codesgc.graph import Graph, check_edges, check_positive_degrees, csr_tensor

PAIR = [[0, 1], [1, 0]]
INF, NAN = float("inf"), float("nan")
COO = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (2, 2), check_invariants=True)
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Sparse CSC tensor")
    CSC = torch.ones(2, 2).to_sparse_csc()


def weights_of(graph: Graph) -> torch.Tensor:
    return torch.ones(graph.edge_index.size(1)) if graph.edge_weight is None else graph.edge_weight


def edges_of(graph: Graph) -> dict[tuple[int, int], float]:
    """Every stored column with its weight."""
    columns = [tuple(column) for column in graph.edge_index.T.tolist()]
    assert columns == sorted(set(columns)), "columns must be unique and sorted by row, then column"
    return dict(zip(columns, weights_of(graph).tolist(), strict=True))


def adjacency_of(graph: Graph) -> sp.coo_array:
    """Zero weights stay stored."""
    row, column = graph.edge_index.numpy()
    return sp.coo_array((weights_of(graph).numpy(), (row, column)), shape=(graph.num_nodes, graph.num_nodes))


# Multiples of 1/4 add up exactly, so that oracles may compare without a tolerance.
WEIGHTS = st.integers(-8, 8).map(lambda k: k / 4)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 12) -> Graph:
    """Graphs with isolated nodes, self-loops, zero and negative weights; features dense, sparse or none."""
    n = draw(st.integers(1, max_nodes))
    nodes = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(nodes, nodes).map(sorted), unique_by=tuple, max_size=20))
    weight = draw(st.none() | st.lists(WEIGHTS, min_size=len(pairs), max_size=len(pairs)))
    x = None
    if draw(st.booleans()):
        dtype = draw(st.sampled_from([np.float32, np.float64]))
        shape = (n, draw(st.integers(0, 4)))
        x = draw(hnp.arrays(dtype, shape, elements=st.sampled_from([0.0, 0.0, 1.0, 2.0, 0.5])))
        x = sp.csr_array(x) if draw(st.booleans()) else x
    y = draw(st.none() | st.lists(st.integers(-1, 4), min_size=n, max_size=n))
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Graph(edges, x, y, edge_weight=weight, num_nodes=n, to_undirected=True)


# --- the canonical form


def canonical(columns, weight, to_undirected, duplicates):
    """The oracle: what Graph should store, or None where it should raise."""
    edges: dict[tuple[int, int], float] = {}
    for column, w in zip(columns, [1.0] * len(columns) if weight is None else weight, strict=True):
        if column in edges and duplicates == "error":
            return None
        edges[column] = w if column not in edges else edges[column] + (w if duplicates == "sum" else 0.0)
    for (i, j), w in list(edges.items()):
        if edges.get((j, i), w if to_undirected else None) != w:
            return None
        edges[j, i] = w
    return edges


COLUMNS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8)


@settings(max_examples=400)
@given(st.data(), COLUMNS, st.booleans(), st.booleans(), st.sampled_from(["error", "sum", "first"]))
def test_stored_edges_are_those_of_the_oracle(data, columns, mirror, to_undirected, duplicates):
    if mirror:  # otherwise nearly every example would be refused
        columns = columns + [(j, i) for i, j in columns if i != j]
    weight = data.draw(st.none() | st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=len(columns), max_size=8 * 2))
    weight = None if weight is None else weight[: len(columns)]
    edges = np.array(columns, dtype=np.int64).reshape(-1, 2).T
    expected = canonical(columns, weight, to_undirected, duplicates)
    options = {"num_nodes": 5, "to_undirected": to_undirected, "duplicates": duplicates}
    if expected is None:
        with pytest.raises(InputError):
            Graph(edges, edge_weight=weight, **options)
        return
    graph = Graph(edges, edge_weight=weight, **options)
    assert edges_of(graph) == expected
    assert graph.num_edges == len({frozenset(column) for column in expected})
    assert graph.has_self_loops == any(i == j for i, j in expected)
    assert graph.num_isolated == 5 - len({i for i, _ in expected})


@given(graphs(), st.randoms(use_true_random=False))
def test_order_of_edges_is_irrelevant(graph, random):
    order = list(range(graph.edge_index.size(1)))
    random.shuffle(order)
    weight = None if graph.edge_weight is None else graph.edge_weight[order]
    again = Graph(graph.edge_index[:, order], graph.x, graph.y, edge_weight=weight, num_nodes=graph.num_nodes)
    assert again == graph
    assert hash(again) == hash(graph)


@given(graphs(), st.randoms(use_true_random=False))
def test_relabelled_nodes_permute_the_adjacency(graph, random):
    new = list(range(graph.num_nodes))
    random.shuffle(new)
    edges = torch.tensor(new)[graph.edge_index]
    moved = Graph(edges, edge_weight=graph.edge_weight, num_nodes=graph.num_nodes)
    assert edges_of(moved) == {(new[i], new[j]): w for (i, j), w in edges_of(graph).items()}
    assert (moved.num_edges, moved.num_isolated) == (graph.num_edges, graph.num_isolated)


def test_one_node_and_no_edges():
    graph = Graph([[], []], num_nodes=1)
    assert graph.edge_index.dtype == torch.int64
    assert (tuple(graph.edge_index.shape), graph.num_edges, graph.num_isolated) == ((2, 0), 0, 1)
    assert not graph.has_self_loops


def test_number_of_nodes_comes_from_x_then_y_then_the_edges():
    assert Graph(PAIR, x=np.ones((5, 2))).num_nodes == 5
    assert Graph(PAIR, y=[0, 1, 0]).num_nodes == 3
    assert Graph(PAIR).num_nodes == 2
    assert Graph(PAIR, num_nodes=4).num_nodes == 4


def test_weights_that_differ_by_rounding_become_one_weight():
    a, b = 0.1 + 0.2, 0.3
    assert a != b
    graph = Graph(PAIR, edge_weight=torch.tensor([a, b], dtype=torch.float64))
    assert graph.edge_weight[0] == graph.edge_weight[1] == a / 2 + b / 2


def test_weights_are_stored_as_float32_or_float64():
    for dtype in (torch.int8, torch.float16, torch.float32):
        assert Graph(PAIR, edge_weight=torch.full((2,), 2, dtype=dtype)).edge_weight.dtype == torch.float32
    assert Graph(PAIR, edge_weight=np.ones(2)).edge_weight.dtype == torch.float64


def test_sums_of_duplicates_do_not_depend_on_their_order():
    weight = torch.tensor([0.1, 0.2, 0.3, 0.3, 0.2, 0.1], dtype=torch.float64)
    graph = Graph([[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]], edge_weight=weight, duplicates="sum")
    assert graph.edge_weight[0] == graph.edge_weight[1] == pytest.approx(0.6)


def test_unweighted_duplicates_add_up_to_their_number():
    assert Graph([[0, 0, 1, 1], [1, 1, 0, 0]], duplicates="sum").edge_weight.tolist() == [2.0, 2.0]
    assert Graph([[0, 0, 1, 1], [1, 1, 0, 0]], duplicates="first").edge_weight is None


def test_gradient_reaches_the_weights_given():
    weight = torch.tensor([3.0, 5.0], requires_grad=True)
    graph = Graph([[1, 0], [2, 1]], edge_weight=weight, to_undirected=True)
    (graph.edge_weight * torch.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()  # (0,1), (1,0), (1,2), (2,1)
    assert weight.grad.tolist() == [1100.0, 11.0]


# --- features and labels


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (np.ones((2, 3)), torch.float64),
        (np.ones((2, 3), dtype=np.float32), torch.float32),
        (np.ones((2, 3), dtype=">f8"), torch.float64),
        (np.ones((2, 3), dtype=np.int8), torch.float32),
        (torch.ones(2, 3, dtype=torch.bool), torch.float32),
        (torch.ones(2, 3, dtype=torch.float16), torch.float32),
        ([[1.0] * 3] * 2, torch.float32),
        (sp.csr_array(np.ones((2, 3))), torch.float64),
        (sp.coo_array(np.ones((2, 3), dtype=bool)), torch.float32),
        (torch.ones(2, 3, dtype=torch.int64).to_sparse(), torch.float32),
        (np.ones((2, 6))[:, ::-2], torch.float64),
    ],
)
def test_features_keep_float64_and_become_float32_otherwise(given, stored):
    graph = Graph(PAIR, x=given)
    assert graph.x.dtype == stored
    assert torch.equal(graph.dense_features(), torch.ones(2, 3, dtype=stored))


def sparse_forms(entries, shape):
    index, values = np.array([e[:2] for e in entries]).T, np.array([e[2] for e in entries], dtype=np.float32)
    coo = sp.coo_array((values, index), shape=shape)
    torch_coo = torch.sparse_coo_tensor(torch.tensor(index), torch.tensor(values), shape, check_invariants=True)
    crow, col, val = (torch.from_numpy(part) for part in (coo.tocsr().indptr, coo.tocsr().indices, coo.tocsr().data))
    return {"scipy coo": coo, "scipy csc": coo.tocsc(), "coo": torch_coo, "csr": csr_tensor(crow, col, val, shape)}


@pytest.mark.parametrize("form", ["scipy coo", "scipy csc", "coo", "csr"])
def test_sparse_features_are_stored_in_one_canonical_form(form):
    # unsorted; (0, 1) twice; a stored zero; (1, 1) adds up to zero
    entries = [(2, 0, 5.0), (0, 1, 1.0), (0, 1, 2.0), (1, 1, 4.0), (1, 1, -4.0), (0, 2, 0.0), (0, 0, 7.0)]
    x = Graph([[], []], x=sparse_forms(entries, (3, 3))[form]).x
    assert x.layout == torch.sparse_csr
    assert x.crow_indices().dtype == x.col_indices().dtype == torch.int64
    assert (x.crow_indices().tolist(), x.col_indices().tolist()) == ([0, 2, 2, 3], [0, 1, 0])
    assert x.values().tolist() == [7.0, 3.0, 5.0]


@pytest.mark.parametrize("convert", [torch.tensor, sp.csr_array], ids=["dense", "sparse"])
def test_row_normalised_divides_rows_by_their_sums_and_leaves_rows_of_zeros(convert):
    given = np.array([[1.0, 3.0], [0.0, 0.0], [2.0, -2.0], [3e38, 3e38]], dtype=np.float32)
    graph = Graph([[], []], x=convert(given), y=[0, 1, -1, 0], name="rows")
    normal = graph.row_normalised()
    expected = torch.tensor([[0.25, 0.75], [0.0, 0.0], [2.0, -2.0], [0.5, 0.5]])
    assert torch.equal(normal.dense_features(), expected)
    assert normal.x.dtype == torch.float32
    assert normal.x.layout == graph.x.layout
    assert normal.name == "rows"
    assert torch.equal(normal.y, graph.y)
    assert torch.equal(graph.dense_features(), torch.tensor(given)), "the graph itself must not change"


def test_labels_count_classes_and_mark_nodes_without_one():
    graph = Graph([[], []], y=np.array([2, -1, 0], dtype=np.int8))
    assert graph.y.dtype == torch.int64
    assert graph.num_classes == 3
    assert graph.labelled.tolist() == [True, False, True]
    bare = Graph(PAIR)
    assert (bare.num_classes, bare.num_features, bare.labelled.tolist()) == (0, 0, [False, False])


def test_graph_shares_no_memory_with_what_it_was_made_from():
    edges, x, y, weight = torch.tensor(PAIR), torch.ones(2, 2), torch.tensor([0, 1]), torch.ones(2)
    graph = Graph(edges, x, y, edge_weight=weight)
    before = copy.deepcopy(graph)
    for tensor in (edges, x, y, weight):
        tensor.zero_()
    assert graph == before


@pytest.mark.parametrize("x", [np.eye(2), sp.csr_array(np.eye(2))], ids=["dense", "sparse"])
def test_copies_are_equal_and_apart(x):
    graph = Graph(PAIR, x=x, y=[0, 1], edge_weight=[2, 2], name="pair")
    again = copy.deepcopy(graph)
    assert pickle.loads(pickle.dumps(graph)) == again == graph
    assert again.name == "pair"
    again.y.zero_()
    again.edge_weight.zero_()
    assert (graph.y.tolist(), graph.edge_weight.tolist()) == ([0, 1], [2.0, 2.0])


def test_read_only_arrays_are_accepted():
    x = np.ones((2, 2))
    x.setflags(write=False)
    assert Graph(PAIR, x=x).x.sum() == 4


def test_fields_are_read_only():
    with pytest.raises(AttributeError):
        Graph(PAIR).num_nodes = 3


@pytest.mark.parametrize("x", [np.eye(2), sp.csr_array(np.eye(2))], ids=["dense", "sparse"])
def test_to_changes_the_dtype_of_features_and_weights(x):
    graph = Graph(PAIR, x=x, y=[0, 1], edge_weight=torch.tensor([2.0, 2.0]), name="pair")
    single = graph.to(dtype=torch.float32)
    assert (single.x.dtype, single.edge_weight.dtype, single.y.dtype) == (torch.float32, torch.float32, torch.int64)
    assert single.to("cpu", torch.float64) == Graph(PAIR, x=x, y=[0, 1], edge_weight=np.array([2.0, 2.0]))
    assert single.name == "pair"
    with pytest.raises(InputError, match=r"dtype is torch.float16: expected torch.float32 or torch.float64"):
        graph.to(dtype=torch.float16)
    with pytest.raises(TypeError, match=r"pass dtype=torch.float32"):
        graph.to(torch.float32)
    with pytest.raises(InputError, match="NaN or infinite"):
        Graph([[], []], x=np.array([[1e300]])).to(dtype=torch.float32)


@pytest.mark.parametrize(
    ("change", "equal"),
    [
        ({}, True),
        ({"name": "other"}, True),
        ({"edge_weight": [1, 1]}, True),
        ({"edge_weight": [2, 2]}, False),
        ({"x": np.eye(2)}, False),  # float64
        ({"x": [[1.0, 0.0], [0.0, 2.0]]}, False),
        ({"x": sp.csr_array(np.eye(2, dtype=np.float32))}, False),
        ({"y": [0, 0]}, False),
        ({"y": None}, False),
        ({"edge_index": [[0, 1, 0], [1, 0, 0]]}, False),
        ({"num_nodes": 3, "x": None, "y": None}, False),
    ],
)
def test_graphs_are_equal_if_what_they_hold_is(change, equal):
    base = {"edge_index": PAIR, "x": [[1.0, 0.0], [0.0, 1.0]], "y": [0, 1]}
    assert (Graph(**(base | change)) == Graph(**base)) is equal
    assert Graph(**base) != "a graph"


def test_an_isolated_node_more_makes_another_graph():
    assert Graph(PAIR, num_nodes=3) != Graph(PAIR)


def test_repr_tells_what_the_graph_holds():
    graph = Graph([[0], [0]], x=sp.csr_array(np.eye(4)), y=[0] * 4, edge_weight=[2], name="g")
    assert repr(graph) == "Graph('g', 4 nodes, 1 edge, weighted, 4 features (sparse, 25.0% nonzero), 1 class)"


# --- errors

ERRORS = {
    "edges transposed": ([[0, 1], [1, 0], [1, 2]], {}, r"shape \(3, 2\): expected \(2, E\).*pass edge_index\.T"),
    "edges flat": ([0, 1], {}, r"edge_index has shape \(2,\): expected \(2, E\)"),
    "edges deep": (np.zeros((2, 2, 2), int), {}, r"edge_index has shape \(2, 2, 2\)"),
    "edges ragged": ([[0, 1], [1]], {}, r"edge_index is no array of numbers .* rows of equal length"),
    "edges of floats": (torch.ones(2, 1), {}, r"dtype torch.float32: expected integers.*edge_index\.long\(\)"),
    "edges of bools": (torch.ones(2, 1) > 0, {}, r"edge_index has dtype torch.bool: expected integers"),
    "edges of strings": ([["a"], ["b"]], {}, r"edge_index is no array of numbers"),
    "edges sparse": (COO, {}, r"edge_index is a sparse tensor: expected a dense one"),
    "empty floats": (torch.zeros(2, 0), {"num_nodes": 1}, r"dtype torch.float32: expected integers"),
    "negative index": ([[0, -2], [1, 0]], {}, r"names node -2 in column 1: expected indices from 0"),
    "index too large": (
        [[0, 3, 1], [1, 0, 0]],
        {"num_nodes": 3},
        r"node 3 in column 1: .* num_nodes = 3; pass num_nodes=4",
    ),
    "huge index": ([[2**40], [2**40]], {}, r"has 1099511627777 nodes: expected at most 2147483647; renumber"),
    "nothing at all": ([[], []], {}, r"the graph has no nodes.*pass num_nodes"),
    "no rows": ([[], []], {"x": np.zeros((0, 3))}, r"the graph has no nodes"),
    "negative count": ([[], []], {"num_nodes": -1}, r"num_nodes is -1: expected the number of nodes"),
    "directed": (
        [[0, 2, 1], [1, 1, 0]],
        {},
        r"holds 1 edge without the reverse, for example 2 -> 1.*to_undirected=True",
    ),
    "all directed": ([[0, 2], [1, 1]], {}, r"holds 2 edges without the reverse"),
    "unequal weights": (PAIR, {"edge_weight": [2, 3]}, r"directions of 1 edge, .* 2\.0 on 0 -> 1 and 3\.0 on 1 -> 0"),
    "unequal weights, completed": (
        PAIR,
        {"edge_weight": [2, 3], "to_undirected": True},
        r"expected one weight per undir",
    ),
    "opposite weights": (PAIR, {"edge_weight": [3e38, -3e38]}, r"different values on the two directions"),
    "duplicate": (
        [[0, 1, 0, 0, 0], [1, 0, 0, 1, 1]],
        {},
        r"holds 2 duplicates, for example 0 -> 1: .*duplicates='sum'.*duplicates='first'",
    ),
    "duplicate, completed": ([[0, 0], [1, 1]], {"to_undirected": True}, r"holds 1 duplicate, for example 0 -> 1"),
    "duplicates misspelt": (PAIR, {"duplicates": "summ"}, r"duplicates 'summ' is unknown.*did you mean 'sum'"),
    "weight too short": (PAIR, {"edge_weight": [1.0]}, r"edge_weight has shape \(1,\): expected \(2,\)"),
    "weight a column": (
        PAIR,
        {"edge_weight": np.ones((2, 1))},
        r"shape \(2, 1\): expected \(2,\).*edge_weight\.squeeze\(1\)",
    ),
    "weight a matrix": (PAIR, {"edge_weight": COO}, r"edge_weight has shape \(2, 2\): expected \(2,\)"),
    "weight NaN": (
        PAIR,
        {"edge_weight": [1.0, NAN]},
        r"edge_weight holds 1 value that is NaN.*first nan at edge_weight\[1\]",
    ),
    "weight infinite": (
        PAIR,
        {"edge_weight": [INF, INF]},
        r"edge_weight holds 2 values that are NaN or infinite, first inf",
    ),
    "weight overflows as a sum": (
        [[0, 0], [0, 0]],
        {"edge_weight": [3e38, 3e38], "duplicates": "sum"},
        r"edge_weight holds 1 value that is NaN or infinite.*those of duplicates add up",
    ),
    "weight complex": (PAIR, {"edge_weight": [1j, 1j]}, r"edge_weight has dtype torch.complex128: expected real"),
    "weight elsewhere": (
        PAIR,
        {"edge_weight": torch.ones(2, device="meta")},
        r"edge_weight is on meta and edge_index on cpu",
    ),
    "x NaN": (
        PAIR,
        {"x": [[0.0, 1.0], [NAN, 0.0]]},
        r"x holds 1 value that is NaN.*first nan at x\[1, 0\].*nan_to_num",
    ),
    "x infinite, sparse": (
        PAIR,
        {"x": sp.csr_array([[0, INF], [INF, 0]])},
        r"x holds 2 values that are NaN or infinite",
    ),
    "x overflows float32": (PAIR, {"x": [[1e300], [0.0]]}, r"x holds 1 value that is NaN or infinite, first inf"),
    "x overflows as a sum": (
        PAIR,
        {"x": sp.coo_array(([1e308, 1e308], ([0, 0], [0, 0])), shape=(2, 1))},
        r"entries stored twice add up to more than the dtype holds",
    ),
    "x flat": (PAIR, {"x": [0.0, 1.0]}, r"x has shape \(2,\): expected \(N, F\).*x\[:, None\]"),
    "x deep": (PAIR, {"x": np.zeros((2, 2, 2))}, r"x has shape \(2, 2, 2\): expected \(N, F\)"),
    "x sparse and flat": (PAIR, {"x": torch.ones(2).to_sparse()}, r"x has shape \(2,\): expected \(N, F\)"),
    "x hybrid": (PAIR, {"x": torch.ones(2, 2).to_sparse(1)}, r"x is a hybrid sparse tensor.*x\.to_dense\(\)"),
    "x complex": (PAIR, {"x": np.ones((2, 1), complex)}, r"x has dtype torch.complex128: expected real numbers"),
    "x objects": (PAIR, {"x": np.full((2, 1), None)}, r"x is no array of numbers"),
    "x too short": (PAIR, {"x": np.ones((2, 1)), "num_nodes": 3}, r"x has 2 rows: expected 3 to match num_nodes = 3"),
    "x too few for the edges": ([[0, 2], [2, 0]], {"x": np.ones((2, 1))}, r"names node 2 .* num_nodes = 2"),
    "x sparse, too long": (PAIR, {"x": sp.eye_array(3), "num_nodes": 2}, r"x has 3 rows: expected 2"),
    "x too wide": (PAIR, {"x": sp.coo_array((2**31, 2**40))}, r"expected fewer than 2\*\*63 entries"),
    "x elsewhere": (PAIR, {"x": torch.ones(2, 1, device="meta")}, r"x is on meta and edge_index on cpu: .*graph\.to"),
    "x in columns": (PAIR, {"x": CSC}, r"x has layout torch.sparse_csc.*to_sparse_csr\(\)"),
    "y too short": (PAIR, {"y": [0], "x": np.ones((2, 1))}, r"y has 1 row: expected 2 to match the 2 rows of x"),
    "y against num_nodes": (PAIR, {"y": [0, 1], "num_nodes": 4}, r"y has 2 rows: expected 4 to match num_nodes = 4"),
    "y of floats": (PAIR, {"y": [0.0, 1.0]}, r"y has dtype torch.float32: expected integers.*y\.long\(\)"),
    "y of bools": (PAIR, {"y": [False, True]}, r"y has dtype torch.bool: expected integers"),
    "y one-hot": (PAIR, {"y": [[0, 1], [1, 0]]}, r"y has shape \(2, 2\): expected \(N,\).*y\.argmax\(1\)"),
    "y a column": (PAIR, {"y": [[0], [1]]}, r"y has shape \(2, 1\): expected \(N,\).*y\.squeeze\(1\)"),
    "y elsewhere": (PAIR, {"y": torch.ones(2, device="meta")}, r"y is on meta and edge_index on cpu"),
    "y below -1": (PAIR, {"y": [0, -2]}, r"y has label -2 at node 1: expected classes from 0, or -1"),
}


@pytest.mark.parametrize(("edges", "options", "message"), ERRORS.values(), ids=ERRORS)
def test_bad_value_is_named_with_what_was_expected_and_a_fix(edges, options, message):
    with pytest.raises(InputError, match=message):
        Graph(edges, **options)


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        (None, {}, r"edge_index is NoneType: expected a tensor, a NumPy array or nested lists"),
        ("01", {}, r"edge_index is str"),
        (PAIR, {"x": "01"}, r"x is str: expected a tensor"),
        (PAIR, {"y": {0: 1}}, r"y is dict: expected a tensor"),
        (PAIR, {"edge_weight": 1.0}, r"edge_weight is float"),
        (PAIR, {"num_nodes": 2.0}, r"num_nodes is 2\.0: expected an integer"),
        (PAIR, {"num_nodes": True}, r"num_nodes is True: expected an integer"),
        (PAIR, {"name": 3}, r"name is 3: expected a string"),
    ],
)
def test_bad_type_raises_a_type_error(edges, options, message):
    with pytest.raises(TypeError, match=message):
        Graph(edges, **options)


@pytest.mark.parametrize("column", [7, -1])
def test_sparse_features_outside_their_shape_are_refused(column):
    # torch and SciPy build these without looking; followed blindly they read memory that is not theirs
    index, values = torch.tensor([[0, 1], [0, column]]), torch.ones(2)
    outside = [
        torch.sparse_coo_tensor(index, values, (2, 2), check_invariants=False),
        csr_tensor(torch.tensor([0, 1, 2]), index[1], values, (2, 2)),
        csr_tensor(torch.tensor([0, 9, 2]), index[0], values, (2, 2)),
        sp.csr_array((values.numpy(), index[1].numpy(), np.array([0, 1, 2])), shape=(2, 2)),
        sp.csr_array((values.numpy(), index[0].numpy(), np.array([0, 9, 2])), shape=(2, 2)),
    ]
    for x in outside:
        with pytest.raises(InputError, match=r"outside its shape|not a valid CSR|no valid sparse"):
            Graph(PAIR, x=x)


def test_features_are_asked_for_where_there_are_none():
    for call in (Graph(PAIR).dense_features, Graph(PAIR).row_normalised):
        with pytest.raises(InputError, match=r"the graph has no features: expected x of shape \(N, F\)"):
            call()


NUMBERS = st.one_of(
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(),
    hnp.boolean_dtypes(),
    hnp.unicode_string_dtypes(),
    hnp.datetime64_dtypes(),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
SMALL = hnp.arrays(st.sampled_from([np.int64, np.int8, np.uint64, np.float64]), SHAPES, elements=st.integers(0, 5))
ANYTHING = st.one_of(
    SMALL,
    hnp.arrays(np.int64, st.tuples(st.just(2), st.integers(0, 6)), elements=st.integers(-1, 4)),
    hnp.arrays(NUMBERS, SHAPES),
    st.recursive(st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)),
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(ANYTHING, st.none() | ANYTHING, st.none() | ANYTHING, st.none() | ANYTHING, st.data())
def test_any_input_makes_a_valid_graph_or_one_of_two_errors(edges, x, y, weight, data):
    duplicates = data.draw(st.sampled_from(["error", "sum", "first"]))
    try:
        graph = Graph(edges, x, y, edge_weight=weight, to_undirected=data.draw(st.booleans()), duplicates=duplicates)
    except (InputError, TypeError):
        return
    stored = edges_of(graph)
    assert all(stored[j, i] == w for (i, j), w in stored.items())
    assert all(0 <= i < graph.num_nodes for i, _ in stored)
    assert Graph(graph.edge_index, graph.x, graph.y, edge_weight=graph.edge_weight, num_nodes=graph.num_nodes) == graph


# --- the functions for layers


def test_check_edges_neither_sorts_nor_merges():
    edges = np.array([[3, 0, 3], [1, 2, 1]], dtype=np.int32)
    checked, weight, nodes = check_edges(edges, torch.tensor([1.0, -2.0, 0.5], dtype=torch.float16))
    assert checked.dtype == torch.int64
    assert checked.tolist() == edges.tolist()
    assert (weight.dtype, weight.tolist(), nodes) == (torch.float16, [1.0, -2.0, 0.5], 4)
    assert check_edges(edges, [1, 2, 3], num_nodes=9)[1].dtype == torch.float32
    assert check_edges(edges, num_nodes=9)[1:] == (None, 9)


def test_check_edges_raises_as_the_graph_does():
    with pytest.raises(InputError, match=r"edge_index has shape \(1, 2\)"):
        check_edges([[0, 1]])
    with pytest.raises(InputError, match=r"edge_weight is on meta and edge_index on cpu"):
        check_edges(PAIR, torch.ones(2, device="meta"))
    with pytest.raises(InputError, match=r"the graph has no nodes"):
        check_edges([[], []])


def test_negative_degree_is_refused_and_zero_is_not():
    check_positive_degrees(torch.tensor([0.0, 2.0]), "gcn")
    with pytest.raises(InputError, match=r"node 2 has degree -1\.5: matrix 'gcn' .* matrix=.custom"):
        check_positive_degrees(torch.tensor([0.0, 2.0, -1.5, -3.0]), "gcn")
    with pytest.raises(InputError, match=r"node 0 has degree nan"):
        check_positive_degrees(torch.tensor([NAN]), "gcn")


# --- other libraries


@given(graphs())
def test_scipy_adjacency_gives_the_graph_back(graph):
    for layout in ("tocoo", "tocsr", "tocsc"):
        assert Graph.from_scipy(getattr(adjacency_of(graph), layout)(), graph.x, graph.y) == graph


def test_scipy_entries_stored_twice_add_up():
    twice = sp.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(3, 3))
    as_csr = sp.csr_array(([1.0, 2.0, 3.0], [1, 1, 0], [0, 2, 3, 3]), shape=(3, 3))
    for adjacency in (twice, as_csr):
        graph = Graph.from_scipy(adjacency)
        assert edges_of(graph) == {(0, 1): 3.0, (1, 0): 3.0}
        assert graph.num_isolated == 1
    assert as_csr.nnz == 3, "the matrix given must not change"


def test_adjacency_of_ones_is_unweighted():
    assert Graph.from_scipy(np.ones((2, 2), dtype=bool)).edge_weight is None


@pytest.mark.parametrize(
    ("adjacency", "error", "message"),
    [
        (sp.coo_array((2, 3)), InputError, r"adjacency has shape \(2, 3\): expected \(N, N\)"),
        (np.ones(3), InputError, r"adjacency has shape \(3,\): expected \(N, N\)"),
        ([[0]], TypeError, r"adjacency is list: expected a SciPy sparse matrix or a NumPy array"),
        (sp.csr_array([[0.0, NAN], [NAN, 0.0]]), InputError, r"edge_weight holds 2 values that are NaN"),
        (sp.csr_array([[0, 1], [0, 0]]), InputError, r"1 edge without the reverse"),
        (np.array([["a"]]), InputError, r"adjacency cannot be read"),
        (sp.csr_array((0, 0)), InputError, r"the graph has no nodes"),
        (sp.csr_array((np.ones(1), np.array([9]), np.array([0, 1]))), InputError, r"adjacency has shape \(1, 10\)"),
        (sp.csr_array((np.ones(1), [9], [0, 1]), shape=(1, 1)), InputError, r"adjacency is no valid sparse matrix"),
    ],
)
def test_bad_adjacency_is_refused(adjacency, error, message):
    with pytest.raises(error, match=message):
        Graph.from_scipy(adjacency)


@given(graphs())
def test_networkx_gives_the_graph_back(graph):
    for kind in (nx.Graph, nx.DiGraph):
        g = kind()
        g.add_nodes_from(range(graph.num_nodes))
        g.add_edges_from(graph.edge_index.T.tolist())
        if graph.edge_weight is not None:
            nx.set_edge_attributes(g, edges_of(graph), "weight")
        assert Graph.from_networkx(g, x=graph.x, y=graph.y) == graph


def test_networkx_nodes_are_numbered_in_their_order():
    g = nx.Graph()
    g.add_nodes_from("cab")
    g.add_edge("a", "c", weight=2.0, length=5)
    g.add_edge("b", "b")
    assert edges_of(Graph.from_networkx(g)) == {(0, 1): 2.0, (1, 0): 2.0, (2, 2): 1.0}
    assert edges_of(Graph.from_networkx(g, weight="length"))[0, 1] == 5.0
    assert Graph.from_networkx(g, weight=None).edge_weight is None


def test_networkx_direction_and_parallel_edges_go_through_the_checks():
    with pytest.raises(InputError, match="without the reverse, for example 0 -> 1"):
        Graph.from_networkx(nx.DiGraph([(0, 1)]))
    assert Graph.from_networkx(nx.DiGraph([(0, 1)]), to_undirected=True).num_edges == 1
    parallel = nx.MultiGraph([(0, 1), (0, 1), (1, 1)])
    with pytest.raises(InputError, match="duplicates='sum'"):
        Graph.from_networkx(parallel)
    assert edges_of(Graph.from_networkx(parallel, duplicates="sum")) == {(0, 1): 2.0, (1, 0): 2.0, (1, 1): 1.0}


def test_networkx_refuses_what_is_no_graph_or_no_weight():
    with pytest.raises(TypeError, match="g is dict: expected a networkx graph"):
        Graph.from_networkx({0: [1]})
    with pytest.raises(InputError, match="edge_weight is no array of numbers"):
        Graph.from_networkx(nx.Graph([(0, 1, {"weight": "heavy"})]))


@pytest.fixture(scope="module")
def pyg():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch_geometric's import uses what torch has deprecated
        import torch_geometric

        return torch_geometric


def test_pyg_data_gives_edges_weights_features_and_labels(pyg):
    edges, weight = torch.tensor([[1, 2], [0, 2]]), torch.tensor([3.0, 4.0])
    data = pyg.data.Data(x=torch.eye(4), edge_index=edges, y=torch.tensor([0, 1, 0, 1]))
    expected = Graph(edges, torch.eye(4), [0, 1, 0, 1], to_undirected=True)
    assert Graph.from_pyg(data, to_undirected=True) == expected
    data.edge_attr = weight[:, None]
    weighted = Graph(edges, torch.eye(4), [0, 1, 0, 1], edge_weight=weight, to_undirected=True)
    assert Graph.from_pyg(data, to_undirected=True) == weighted
    data.edge_attr = torch.ones(2, 3)
    assert Graph.from_pyg(data, to_undirected=True) == expected
    data.edge_weight = weight
    assert Graph.from_pyg(data, to_undirected=True) == weighted
    assert Graph.from_pyg(data, to_undirected=True, y=None).y is None


def test_pyg_edge_index_subclass_and_isolated_nodes(pyg):
    edges = pyg.EdgeIndex(torch.tensor(PAIR))
    assert Graph.from_pyg(pyg.data.Data(edge_index=edges, num_nodes=5)) == Graph(PAIR, num_nodes=5)
    assert type(check_edges(edges)[0]) is torch.Tensor


def test_pyg_without_edges_says_what_is_there(pyg):
    with pytest.raises(InputError, match=r"data has no edge_index, only 'x'"):
        Graph.from_pyg(pyg.data.Data(x=torch.eye(2)))
    with pytest.raises(InputError, match=r"data has no edge_index, only nothing"):
        Graph.from_pyg(3)


# --- files


@settings(max_examples=60)
@given(graphs(), st.none() | st.text(st.characters(codec="ascii", exclude_characters="\0")))
def test_saved_graph_is_read_back_as_it_was(graph, name):
    graph = Graph(
        graph.edge_index, graph.x, graph.y, edge_weight=graph.edge_weight, num_nodes=graph.num_nodes, name=name
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.npz")
        graph.save(path)
        assert [file.name for file in Path(folder).iterdir()] == ["graph.npz"], "nothing temporary may stay"
        again = Graph.from_npz(path)
    assert again == graph
    assert again.name == name
    assert (again.edge_weight is None) == (graph.edge_weight is None)


def npz(tmp_path, **arrays):
    path = tmp_path / "given.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("key", "edges"),
    [
        ("edge_index", [[0, 1, 0], [1, 2, 2]]),
        ("edge_index", [[0, 1], [1, 2], [0, 2]]),
        ("edges", [[0, 1], [1, 2], [0, 2]]),
        ("edges", [[0, 1, 0], [1, 2, 2]]),
    ],
)
def test_npz_edges_are_read_either_way_round(tmp_path, key, edges):
    graph = Graph.from_npz(npz(tmp_path, **{key: np.array(edges)}), to_undirected=True)
    assert graph == Graph([[0, 1, 0], [1, 2, 2]], to_undirected=True)


def test_npz_of_two_edges_is_read_as_its_key_says(tmp_path):
    square = np.array([[0, 1], [2, 3]])
    by_column = Graph.from_npz(npz(tmp_path, edge_index=square), to_undirected=True)
    assert set(edges_of(by_column)) == {(0, 2), (2, 0), (1, 3), (3, 1)}
    by_row = Graph.from_npz(npz(tmp_path, edges=square), to_undirected=True)
    assert set(edges_of(by_row)) == {(0, 1), (1, 0), (2, 3), (3, 2)}


def test_npz_with_other_names_and_sparse_parts(tmp_path):
    labels = np.array([0, 1, 0])
    x = sp.csr_array(np.eye(3))
    dense = npz(tmp_path, edge_index=np.array(PAIR), node_features=np.eye(3), node_labels=labels, junk=np.full(1, None))
    assert Graph.from_npz(dense, name="named") == Graph(PAIR, np.eye(3), labels)
    parts = {"x_indptr": x.indptr, "x_indices": x.indices, "x_values": x.data, "x_shape": np.array(x.shape)}
    sparse = npz(tmp_path, edge_index=np.array(PAIR), y=labels, num_nodes=np.array(3), **parts)
    assert Graph.from_npz(sparse) == Graph(PAIR, x, labels)


E_ = np.array(PAIR)
PARTS = {
    "x_indptr": np.array([0, 1, 2]),
    "x_indices": np.array([0, 1]),
    "x_values": np.ones(2),
    "x_shape": np.array([2, 2]),
}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.eye(2), "y": np.zeros(2)}, r"given\.npz holds 'x', 'y': expected 'edge_index' \(2, E\) or 'edges'"),
        ({"train": np.eye(2)}, r"given\.npz holds 'train': expected 'edge_index' or 'edges'"),
        ({}, r"given\.npz (is not an \.npz file|holds nothing)"),
        ({"edge_index": E_, "edges": E_}, r"holds both 'edge_index' and 'edges'"),
        ({"edge_index": E_, "y": E_[0], "node_labels": E_[0]}, r"holds both 'y' and 'node_labels'"),
        ({"edge_index": E_, "x": np.full((2, 1), None)}, r"holds pickled Python objects, which may run code"),
        ({"edge_index": np.array([[None], [None]])}, r"holds pickled Python objects"),
        ({"edge_index": E_ * 1.0}, r"given\.npz: edge_index has dtype torch.float64: expected integers"),
        ({"edge_index": E_[0]}, r"given\.npz: edge_index has shape \(2,\)"),
        ({"edge_index": E_, "x": np.eye(3), "y": E_[0]}, r"given\.npz: y has 2 rows: expected 3"),
        ({"edge_index": E_, "x_indptr": PARTS["x_indptr"]}, r"lacks 'x_indices', 'x_values', 'x_shape': expected all"),
        ({"edge_index": E_, "x": np.eye(2)} | PARTS, r"holds features twice"),
        ({"edge_index": E_} | PARTS | {"x_shape": np.array(2)}, r"do not form a CSR matrix"),
        (
            {"edge_index": E_} | PARTS | {"x_shape": np.array([2, 1])},
            r"x is no valid sparse matrix|not form a CSR matrix",
        ),
        ({"edge_index": E_} | PARTS | {"x_indptr": np.array([0, 9, 2])}, r"x is no valid sparse|not form a CSR matrix"),
    ],
)
def test_bad_npz_is_refused(tmp_path, arrays, message):
    with pytest.raises(InputError, match=message):
        Graph.from_npz(npz(tmp_path, **arrays))


def test_missing_file_folder_single_array_and_text_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.npz cannot be read \(No such file or directory\): .*check the path"):
        Graph.from_npz(tmp_path / "none.npz")
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        Graph.from_npz(tmp_path)
    np.save(tmp_path / "single.npy", E_)
    (tmp_path / "text.npz").write_text("0 1\n1 0\n")
    for name in ("single.npy", "text.npz"):
        with pytest.raises(InputError, match=r"is not an \.npz file, or cut short"):
            Graph.from_npz(str(tmp_path / name))
    with pytest.raises(TypeError, match="path is 3: expected a string"):
        Graph.from_npz(3)


def read_bytes(content: bytes) -> Graph | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fuzz.npz")
        path.write_bytes(content)
        try:
            return Graph.from_npz(path)
        except InputError:
            return None


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "graph.npz"
    graph = Graph(PAIR, x=sp.csr_array(np.eye(2)), y=[0, 1], edge_weight=[2.0, 2.0], name="saved")
    graph.save(path)
    return graph, path.read_bytes()


def test_file_cut_short_anywhere_is_refused(saved):
    graph, content = saved
    assert read_bytes(content) == graph
    for length in range(0, len(content), 7):
        assert read_bytes(content[:length]) is None


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused(content, zip_start):
    assert read_bytes(b"PK\x03\x04" * zip_start + content) is None


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_file_is_refused_or_harmless(saved, data):
    graph, content = saved
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    again = read_bytes(bytes(damaged))  # a byte in the date of an entry changes nothing; one in a name drops an array
    assert again is None or again.num_nodes == graph.num_nodes


def test_save_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "graph.npz"
    Graph(PAIR).save(path)

    def full(stream, **arrays):
        stream.write(b"half of a file")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(InputError, match=r"graph\.npz cannot be written \(No space left on device\)"):
        Graph([[0], [0]]).save(path)
    assert Graph.from_npz(path) == Graph(PAIR)
    assert [file.name for file in tmp_path.iterdir()] == ["graph.npz"]


def test_save_into_a_missing_folder_says_so(tmp_path):
    with pytest.raises(InputError, match=r"cannot be written .*: expected a path in an existing folder"):
        Graph(PAIR).save(tmp_path / "none" / "graph.npz")


def test_save_writes_to_the_very_path_given(tmp_path):
    Graph(PAIR).save(tmp_path / "graph.bin")
    assert Graph.from_npz(tmp_path / "graph.bin") == Graph(PAIR)


# --- what a review found


@pytest.mark.parametrize("place", [(0, 700000), (7, 0), (-1, 0)])
def test_entries_of_a_coo_matrix_outside_its_shape_are_refused(place):
    """SciPy's own conversion writes there."""
    matrix = sp.coo_matrix(np.eye(2))
    matrix.row, matrix.col = np.array([0, place[0]], dtype=np.int32), np.array([0, place[1]], dtype=np.int32)
    for make in (Graph.from_scipy, lambda x: Graph([[0, 1], [1, 0]], x=x)):
        with pytest.raises(InputError, match=r"outside its shape \(2, 2\)"):
            make(matrix)


def test_sums_of_small_integers_do_not_wrap_around():
    matrix = sp.coo_array((np.array([200, 200, 144, 0], dtype=np.uint8), ([0, 0, 1, 1], [1, 1, 0, 1])), shape=(2, 2))
    with pytest.raises(InputError, match="different values"):
        Graph.from_scipy(matrix)
    matrix = sp.coo_array((np.full(4, 200, dtype=np.uint8), ([0, 0, 1, 1], [1, 1, 0, 0])), shape=(2, 2))
    assert Graph.from_scipy(matrix).edge_weight.tolist() == [400.0, 400.0]


def test_missing_values_of_a_masked_array_are_refused():
    masked = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[1, 0], [0, 0]])
    with pytest.raises(InputError, match=r"x is a masked array with missing values.*x\.filled"):
        Graph([[0, 1], [1, 0]], x=masked)
    assert Graph([[0, 1], [1, 0]], x=np.ma.array(np.ones((2, 2)))).num_features == 2


@pytest.mark.parametrize(
    ("key", "values"), [("x_indices", [0.5, 1.0]), ("x_values", ["a", "b"]), ("x_indptr", [0.0, 1.0, 2.0])]
)
def test_parts_of_sparse_features_of_another_type_are_refused(tmp_path, key, values):
    parts = {"x_indptr": [0, 1, 2], "x_indices": [0, 1], "x_values": [1.0, 1.0], "x_shape": [2, 2], key: values}
    np.savez(tmp_path / "g.npz", edges=[[0, 1], [1, 0]], **parts)
    with pytest.raises(InputError, match=f"'{key}' has dtype .*: expected (integers|numbers); save it again"):
        Graph.from_npz(tmp_path / "g.npz")


def test_a_zip_of_other_things_is_no_graph(tmp_path):
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("edges", b"no array")
    with pytest.raises(InputError, match="'edges' is no array: expected a file made by"):
        Graph.from_npz(tmp_path / "g.npz")


def test_a_class_is_no_networkx_graph():
    with pytest.raises(TypeError, match="expected a networkx graph"):
        Graph.from_networkx(nx.Graph)
