"""Every model of the zoo against its row of the paper's Table 1, written out densely."""

from itertools import pairwise

import pytest
import torch
from oracles import (
    ALGORITHMS,
    DECOMPOSITION_OPTIONS,
    MATRIX_ORACLES,
    W_ORACLES,
    edges_of,
    equation_6,
    normal,
    random_adjacency,
    randomise,
    sparse_features,
    terms,
)
from torch import Tensor

from codesgc import DECOMPOSITIONS, MODELS, Config, Graph, InputError, SpectralConv, SpectralModel, build_model
from codesgc.engine import CSR
from codesgc.models import rates

# Table 1 of the paper (and its section on OptBasisGNN, SGC and S2GC): architecture, S, basis, decomposition. The last
# three are keys of the oracles, which hold the formulas.
TABLE_1 = {
    "ChebNet": ("multi-layer", "scaled_laplacian", "chebyshev", "full"),
    "GCN": ("multi-layer", "gcn", "monomial", "gcn"),
    "SGC": ("linear", "gcn", "monomial", "sgc"),
    "S2GC": ("linear", "gcn", "monomial", "s2gc"),
    "APPNP": ("hybrid", "gcn", "monomial", "appnp"),
    "GPR-GNN": ("hybrid", "gcn", "monomial", "gpr"),
    "BernNet": ("hybrid", "half_laplacian", "bernstein", "nonnegative"),
    "ChebNetII": ("hybrid", "shifted_laplacian", "chebyshev", "interpolated"),
    "JacobiConv": ("linear", "sym", "jacobi", "per_output_bounded"),
    "FavardGNN": ("hybrid", "sym", "favard", "per_input"),
    "OptBasisGNN": ("hybrid", "sym", "optbasis", "per_input"),
    **{
        f"{letter}-{name}": (architecture, "sym", "jacobi", name.lower())
        for letter, architecture in (("L", "linear"), ("H", "hybrid"))
        for name in ("CP", "Tucker", "Tucker2", "Tucker1")
    },
}
NODES, FEATURES, CLASSES = 10, 6, 3


def small_model(name: str, **changes: object) -> SpectralModel:
    """All parameters at random; no two sizes the same."""
    config = MODELS[name]
    options = DECOMPOSITION_OPTIONS.get(config.decomposition, {})
    if config.basis == "jacobi":
        options = {**options, "a": 0.75, "b": -0.25}
    order = min(config.order, 4)
    return randomise(
        build_model(name, FEATURES, CLASSES, **{"hidden": 5, "order": order, **options, **changes}), seed=3
    )


def layers_written_out(model: SpectralModel, x: Tensor, name: str, S: Tensor) -> list[tuple[SpectralConv, Tensor]]:
    """Each convolution with its input signals, dense, everything before it by the paper's algorithms."""
    architecture, _, basis, decomposition = TABLE_1[name]
    if architecture == "hybrid":
        x = (x @ model.encoder.W + model.encoder.b_W).clamp(min=0)
    steps = []
    for number, conv in enumerate(model.convs):
        x = x if number == 0 else x.clamp(min=0)
        steps.append((conv, x))
        x = written_out(conv, x, basis, decomposition, S)
    assert len(steps) == (2 if architecture == "multi-layer" else 1)
    return [*steps, (conv, x)]


def written_out(conv: SpectralConv, x: Tensor, basis: str, decomposition: str, S: Tensor) -> Tensor:
    def propagate(k: int, H: Tensor) -> Tensor:
        return terms(conv.basis, basis, S, H, conv.order)[k]

    return ALGORITHMS[decomposition](conv.decomposition, x, propagate)


def tolerance(name: str) -> dict[str, float]:
    """Powers of S times a signal, from which OptBasis's oracle starts, are ill-conditioned."""
    return {"rtol": 1e-7, "atol": 1e-7} if name == "OptBasisGNN" else {"rtol": 1e-10, "atol": 1e-10}


def test_every_model_is_a_row_of_the_table() -> None:
    assert set(TABLE_1) == set(MODELS)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_model_is_its_row_of_the_table(name: str, sparse: bool) -> None:
    """Weighted graph with isolated nodes and self-loops; biases included."""
    A = random_adjacency(NODES, 7, isolated=2)
    S = MATRIX_ORACLES[TABLE_1[name][1]](A)
    model, x = small_model(name).eval(), sparse_features(NODES, FEATURES, seed=2)
    with torch.no_grad():
        out = model(CSR.from_tensor(x) if sparse else x, *edges_of(A))
        expected = layers_written_out(model, x, name, S)[-1][1]
    torch.testing.assert_close(out, expected, **tolerance(name))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_every_convolution_is_equation_6_with_its_expanded_coefficients(name: str, bias: bool) -> None:
    A = random_adjacency(NODES, 7, isolated=2)
    _, matrix, basis, decomposition = TABLE_1[name]
    S, model = MATRIX_ORACLES[matrix](A), small_model(name, bias=bias).eval()
    with torch.no_grad():
        for conv, x in layers_written_out(model, sparse_features(NODES, FEATURES, seed=2), name, S)[:-1]:
            W, last = conv.decomposition.expand_affine()
            torch.testing.assert_close(conv.coefficients(), W_ORACLES[decomposition](conv.decomposition))
            expected = equation_6(terms(conv.basis, basis, S, x, conv.order), W[1:])
            if W[0].any():
                ones = torch.ones(NODES, 1, dtype=torch.float64)
                expected += equation_6(terms(conv.basis, basis, S, ones, conv.order), W[:1])
            out = conv(x, *edges_of(A))
            torch.testing.assert_close(out, expected if last is None else expected + last, **tolerance(name))
            assert bias or (last is None and not W[0].any())


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_those_that_were_asked_for(name: str) -> None:
    model = small_model(name)
    widths = {"linear": [6, 3], "hybrid": [5, 3], "multi-layer": [6, 5, 3]}[model.config.architecture]
    assert [(c.in_channels, c.out_channels) for c in model.convs] == list(pairwise(widths))
    assert (model.encoder is not None) == (model.config.architecture == "hybrid")


def test_the_papers_sizes_are_the_defaults() -> None:
    for name in ("L-CP", "H-CP", "L-Tucker", "H-Tucker2", "L-Tucker1", "JacobiConv", "APPNP", "BernNet"):
        assert MODELS[name].order == 10
    d = build_model("L-CP", 50, 7).convs[0].decomposition
    assert (d.C.shape, d.P.shape, d.M.shape) == ((50, 32), (7, 32), (11, 32))
    d = build_model("H-Tucker", 50, 7, rank=8).convs[0].decomposition
    assert (d.C.shape, d.G.shape, d.P.shape, d.M.shape) == ((64, 32), (32, 32, 8), (7, 32), (11, 8))
    assert d.b_P.shape == (7,)  # the paper's Q entries are a slip
    assert build_model("GCN", 50, 7).convs[0].order == 1


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("architecture", ["linear", "hybrid", "multi-layer"])
def test_every_decomposition_has_every_architecture(decomposition: str, architecture: str) -> None:
    A, x = random_adjacency(NODES, 7), normal(NODES, FEATURES)
    config = Config(architecture=architecture, decomposition=decomposition, hidden=5, order=2, layers=3)
    model = randomise(build_model(config, FEATURES, CLASSES)).eval()
    assert len(model.convs) == (3 if architecture == "multi-layer" else 1)
    out = x if model.encoder is None else (x @ model.encoder.W + model.encoder.b_W).relu()
    for number, conv in enumerate(model.convs):
        out = conv(out if number == 0 else out.relu(), *edges_of(A))
    torch.testing.assert_close(model(x, *edges_of(A)), out)
    assert out.shape == (NODES, CLASSES)


# --- replicates


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_of_a_replicated_model_has_a_replicate_axis(name: str) -> None:
    single, many = small_model(name), small_model(name, replicates=4)
    for kind in ("named_parameters", "named_buffers"):
        alone = dict(getattr(single, kind)())
        for tensor_name, tensor in getattr(many, kind)():
            assert tensor.shape == (4, *alone[tensor_name].shape), tensor_name


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_replicates_give_the_outputs_of_single_models(name: str, training: bool) -> None:
    """In training each has the masks of its own seeds, at its own step and rate."""
    A, dense = random_adjacency(NODES, 7), sparse_features(NODES, FEATURES)
    singles = []
    for b in range(3):
        options = {"a": 0.5 * b, "b": 0.5 - 0.25 * b} if MODELS[name].basis == "jacobi" else {}
        singles.append(randomise(small_model(name, dropout=[0.2, 0.6, 0.0][b], **options), seed=b))
    many = small_model(name, replicates=3, dropout=0.5)
    with torch.no_grad():
        for kind in ("parameters", "buffers"):
            for target, *sources in zip(getattr(many, kind)(), *(getattr(s, kind)() for s in singles), strict=True):
                target.copy_(torch.stack(sources))
    for x in (dense, CSR.from_tensor(dense)):
        out = many.train(training)(x, *edges_of(A))
        for b, single in enumerate(singles):
            torch.testing.assert_close(out[b], single.train(training)(x, *edges_of(A)), **tolerance(name))


# --- dropout, groups and rates


@pytest.mark.parametrize("name", MODELS)
def test_every_place_of_dropout_acts(name: str) -> None:
    A, x = random_adjacency(NODES, 7), normal(NODES, FEATURES)
    places = {*DECOMPOSITIONS[MODELS[name].decomposition].dropouts}
    places |= {"features"} if MODELS[name].architecture == "hybrid" else set()
    assert set(MODELS[name].dropout) <= places
    for place in places:
        model = small_model(name, dropout={place: 0.5})
        assert not torch.equal(model(x, *edges_of(A)), model(x, *edges_of(A))), place


@pytest.mark.parametrize("name", MODELS)
def test_groups_hold_every_parameter_once(name: str) -> None:
    model = small_model(name)
    grouped = [id(p) for parameters in model.groups().values() for p in parameters]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


def test_a_bias_is_in_the_group_of_its_weight() -> None:
    """The paper's groups: {C, b_C}, {P, b_P}, M, {G, b_G} and the bottom layer."""
    model = small_model("H-Tucker")
    d, groups = model.convs[0].decomposition, model.groups()
    expected = {
        "C": [d.C, d.b_C],
        "G": [d.G, d.b_G],
        "M": [d.M],
        "P": [d.P, d.b_P],
        "encoder": [model.encoder.W, model.encoder.b_W],
    }
    assert groups.keys() == expected.keys()
    for name, parameters in expected.items():
        assert [id(p) for p in groups[name]] == [id(p) for p in parameters]


def test_rates_are_those_of_the_group_or_the_default() -> None:
    config = Config(lr={"default": 0.05, "C": 0.001}, weight_decay={"P": 0.5})
    assert rates(config, "C") == (0.001, 0.0) and rates(config, "P") == (0.05, 0.5)
    assert rates(Config(lr={"C": 0.0}), "C") == (0.0, 0.0)  # a legal 0 stays 0


def test_reset_is_a_function_of_the_generator_alone() -> None:
    A, x, outs = random_adjacency(NODES, 7), normal(NODES, FEATURES), []
    for seed in (5, 5, 6):
        model = small_model("H-CP")
        torch.rand(3)
        model.reset_parameters(torch.Generator().manual_seed(seed))
        outs.append(model(x, *edges_of(A)))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])


def test_an_operator_or_a_graph_replaces_the_edges() -> None:
    A, x, model = random_adjacency(NODES, 7), normal(NODES, FEATURES), small_model("H-CP").eval()
    edge_index, weight = edges_of(A)
    graph = Graph(edge_index, edge_weight=weight, num_nodes=NODES)
    out = model(x, edge_index, weight)
    assert torch.equal(model(x, graph), out)
    assert torch.equal(model(x, model.operator(graph, torch.float64)), out)


# --- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout": {"Y": 0.5}}, "dropout of L-CP: 'Y' is unknown: expected one of C, Z, input"),
        ({"dropout": {"features": 0.5}}, "dropout of L-CP: 'features' is unknown"),
        ({"lr": {"G": 0.5}}, "lr of L-CP: 'G' is unknown: expected one of C, M, P"),
        ({"weight_decay": {"encoder": 0.5}}, "weight_decay of L-CP: 'encoder' is unknown"),
        ({"basis": "jakobi"}, "basis 'jakobi' is unknown: .* did you mean 'jacobi'"),
        ({"decomposition": "cq"}, "decomposition 'cq' is unknown: .* did you mean 'cp'"),
        ({"matrix": "simm"}, "matrix 'simm' is unknown: .* did you mean 'sym'"),
        ({"ordr": 3}, "option of L-CP: 'ordr' is unknown: .* did you mean 'order'"),
        ({"alpha": 0.1}, "option of L-CP: 'alpha' is unknown: expected one of"),
        ({"architecture": "deep"}, "architecture 'deep' is unknown: expected one of hybrid, linear, multi-layer"),
        ({"order": 2.5}, "order 2.5: expected a whole number"),
        ({"dropout": 1.5}, "dropout.default 1.5: expected a number >= 0 and <= 1"),
    ],
)
def test_wrong_choices_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_model("L-CP", 4, 2, **changes)


def test_unknown_model_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"model 'GPRGNN' is unknown: .* did you mean 'GPR-GNN'"):
        build_model("GPRGNN", 4, 2)
    assert build_model("gpr-gnn", 4, 2).config.model == "GPR-GNN"


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.ones(2, 5), InputError, r"x has shape \(2, 5\): expected \(nodes, 4\)"),
        (torch.ones(4), InputError, r"x has shape \(4,\): expected \(nodes, 4\)"),
        (torch.ones(2, 4).long(), TypeError, "x has dtype torch.int64: expected float32 or float64"),
        ([[1.0] * 4] * 2, TypeError, "x is a list: expected a tensor"),
    ],
)
@pytest.mark.parametrize("name", ["L-CP", "H-CP", "ChebNet"])
def test_features_are_checked(name: str, x: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_model(name, 4, 2)(x, torch.tensor([[0, 1], [1, 0]]))


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("name", ["L-CP", "H-CP", "ChebNet"])
def test_sparse_tensors_are_features(name: str, layout: str) -> None:
    A, x, model = random_adjacency(NODES, 7), sparse_features(NODES, FEATURES), small_model(name).eval()
    sparse = x.to_sparse_coo() if layout == "coo" else x.to_sparse_csr()
    torch.testing.assert_close(model(sparse, *edges_of(A)), model(x, *edges_of(A)))
