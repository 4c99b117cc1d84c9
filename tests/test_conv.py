"""The convolution layer as a user has it: what it computes, its replicates, its memory, and what it refuses."""

import copy
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from oracles import (
    BASIS_CASES,
    BASIS_OPTIONS,
    DECOMPOSITION_OPTIONS,
    PER_CHANNEL,
    TOLERANCE,
    edges_of,
    normal,
    random_adjacency,
    randomise,
    saved_tensors,
    sparse_features,
)
from torch import Tensor, nn

from codesgc import DECOMPOSITIONS, MATRICES, Graph, InputError, SpectralConv
from codesgc.bases import Favard, OptBasis
from codesgc.engine import CSR

LATE = ("full", "per_input", "gcn", "sgc", "s2gc")  # no bias before the propagation


def make_conv(decomposition: str = "cp", basis: str = "jacobi", order: int = 3, **rest: object) -> SpectralConv:
    if basis == "favard, channels":
        chosen = {"basis": Favard(order, 4, replicates=rest.get("replicates"))}
    else:
        chosen = {"basis": basis, "basis_options": BASIS_OPTIONS.get(basis, {})}
    rest.setdefault("bias", basis not in PER_CHANNEL or decomposition in LATE)
    options = {**chosen, **DECOMPOSITION_OPTIONS.get(decomposition, {}), **rest}
    return randomise(SpectralConv(4, 3, order, decomposition=decomposition, **options))


# --- replicates


def slots_from(singles: list[nn.Module], replicated: nn.Module) -> nn.Module:
    """The replicated module with the singles' parameters and buffers in its slots."""
    with torch.no_grad():
        for kind in ("named_parameters", "named_buffers"):
            targets = dict(getattr(replicated, kind)())
            sources = [dict(getattr(single, kind)()) for single in singles]
            assert all(source.keys() == targets.keys() for source in sources)
            for name, target in targets.items():
                assert target.shape == (len(singles), *sources[0][name].shape), name
                for b, source in enumerate(sources):
                    target[b].copy_(source[name])
    return replicated


@pytest.mark.parametrize("basis", BASIS_CASES)
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_replicates_give_the_outputs_of_single_layers(decomposition: str, basis: str) -> None:
    A = random_adjacency(7, 3)
    singles = []
    for b in range(3):
        options = {"basis_options": {"a": 0.5 * b - 0.5, "b": 0.25 + b}} if basis == "jacobi" else {}
        singles.append(randomise(make_conv(decomposition, basis, **options), seed=b))
    together = slots_from(singles, make_conv(decomposition, basis, replicates=3))
    shared = sparse_features(7, 4)
    for x in (shared, CSR.from_tensor(shared), normal(3, 7, 4)):
        out = together(x, *edges_of(A))
        assert out.shape == (3, 7, 3)
        for b, single in enumerate(singles):
            own = x[b] if x is not shared and isinstance(x, Tensor) else x
            torch.testing.assert_close(out[b], single(own, *edges_of(A)), **TOLERANCE)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_replicates_in_training_have_the_masks_of_single_layers(decomposition: str, sparse: bool) -> None:
    """Each with its own rates, seeds and step; one of them drops nothing."""
    A, places = random_adjacency(7, 3), DECOMPOSITIONS[decomposition].dropouts
    rates = [0.0, 0.3, 0.7]
    singles = [
        randomise(make_conv(decomposition, dropout=dict.fromkeys(places, rate)), b) for b, rate in enumerate(rates)
    ]
    for single in singles[1:]:
        single(normal(7, 4), *edges_of(A))  # they are a step ahead of the first
    together = slots_from(singles, make_conv(decomposition, dropout=dict.fromkeys(places, 0.5), replicates=3))
    x = sparse_features(7, 4)
    x = CSR.from_tensor(x) if sparse else x
    for _ in range(2):
        out = together(x, *edges_of(A))
        for b, single in enumerate(singles):
            torch.testing.assert_close(out[b], single(x, *edges_of(A)), **TOLERANCE)
    assert not torch.allclose(out[1], singles[1].eval()(x, *edges_of(A)))


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_a_replicate_has_the_same_bits_whatever_its_neighbours_rates(decomposition: str) -> None:
    """The route is chosen by where dropout acts, not by how much."""
    A = random_adjacency(60, 3, isolated=2)
    S = make_conv().matrix(*edges_of(A), num_nodes=60, dtype=torch.float32)
    x, outs = normal(60, 4).float(), []
    for neighbour in (0.1, 0.5):
        rates = dict.fromkeys(DECOMPOSITIONS[decomposition].dropouts[1:], torch.tensor([0.3, neighbour]))
        conv = make_conv(decomposition, dropout=rates, replicates=2, order=8).float()
        conv.reset_parameters(torch.Generator().manual_seed(0))
        outs.append(conv(x, S)[0])
    assert torch.equal(*outs)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_a_replicate_has_the_same_bits_alone_and_among_others(decomposition: str, sparse: bool) -> None:
    """Values and gradients. MKL rounds by the batch's size and by where in memory a matrix begins: the odd sizes here
    put the replicates of a batch at addresses of every alignment."""
    A, x = random_adjacency(61, 3, isolated=2), sparse_features(61, 33).float()
    x, edges = CSR.from_tensor(x) if sparse else x, edges_of(A)
    many, one = (
        SpectralConv(33, 5, 4, decomposition=decomposition, basis="chebyshev", replicates=count) for count in (3, 1)
    )
    out = many(x, *edges)
    out.square().sum().backward()
    for b in range(3):
        with torch.no_grad():
            for target, source in zip(one.parameters(), many.parameters(), strict=True):
                target.copy_(source[b : b + 1])
        one.zero_grad()
        alone = one(x, *edges)
        alone.square().sum().backward()
        assert torch.equal(alone[0], out[b])
        for (name, p), q in zip(one.named_parameters(), many.parameters(), strict=True):
            assert torch.equal(p.grad[0], q.grad[b]), name


@pytest.mark.parametrize("basis", ["jacobi", "favard, channels"])
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_gradients_of_replicates_do_not_mix(decomposition: str, basis: str) -> None:
    A, x = random_adjacency(7, 3), sparse_features(7, 4)
    singles = [randomise(make_conv(decomposition, basis), seed=b) for b in range(2)]
    together = slots_from(singles, make_conv(decomposition, basis, replicates=2))
    together(x, *edges_of(A)).square().sum().backward()
    for b, single in enumerate(singles):
        single(x, *edges_of(A)).square().sum().backward()
        for (name, p), q in zip(single.named_parameters(), together.parameters(), strict=True):
            torch.testing.assert_close(q.grad[b], p.grad, rtol=1e-8, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}")


# --- memory


@pytest.mark.parametrize("decomposition", ["cp", "tucker", "tucker2", "tucker1", "full", "per_output", "per_input"])
def test_what_is_kept_for_the_backward_pass_does_not_grow_with_the_order(decomposition: str) -> None:
    """In no order of computation, nor in training with dropout in all places."""
    steps = torch.arange(100)
    edge_index = torch.stack([torch.cat([steps, steps + 1]), torch.cat([steps + 1, steps])])
    x = normal(101, 4).requires_grad_()
    kept: dict[int, list[tuple[int, int]]] = {}
    for order in (2, 12):
        conv = make_conv(decomposition, order=order)
        S = conv.matrix(edge_index, dtype=torch.float64)
        runs = [route.run for route in conv.decomposition.all_routes(x, conv.basis.on(S, order))]
        places = DECOMPOSITIONS[decomposition].dropouts
        masked = make_conv(decomposition, order=order, dropout=dict.fromkeys(places, 0.5))
        for run in [*runs, lambda masked=masked, S=S: masked(x, S)]:
            with saved_tensors(101) as tensors:
                out = run()
            distinct = {t.data_ptr(): t.numel() for t in tensors}
            kept.setdefault(order, []).append((len(distinct), sum(distinct.values())))
            del out
    assert kept[2] == kept[12]


# --- properties on small graphs


@st.composite
def adjacencies(draw: st.DrawFn, most: int = 12) -> Tensor:
    """Symmetric weights, many of them 0: isolated nodes and self-loops are common."""
    nodes = draw(st.integers(2, most))
    A = torch.zeros(nodes, nodes, dtype=torch.float64)
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1), st.floats(0.05, 4.0))
    for i, j, weight in draw(st.lists(pair, max_size=2 * nodes)):
        A[i, j] = A[j, i] = weight
    return A


CHOICES = {
    "decomposition": st.sampled_from(sorted(DECOMPOSITIONS)),
    "basis": st.sampled_from(["bernstein", "chebyshev", "favard", "jacobi", "monomial"]),
    "matrix": st.sampled_from(["sym", "gcn", "laplacian", "half_laplacian", "shifted_laplacian", "scaled_laplacian"]),
    "seed": st.integers(0, 10**6),
}
quick = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
LOOSE = {"rtol": 1e-8, "atol": 1e-8}  # polynomials of weights between 0.05 and 4 reach some hundreds


def layer(decomposition: str, basis: str, matrix: str, seed: int, bias: bool = True) -> SpectralConv:
    # lambda_max is given: an estimate depends on the whole graph, and there is none where L = 0
    chosen = MATRICES[matrix](lambda_max=1.9) if matrix == "scaled_laplacian" else matrix
    return randomise(make_conv(decomposition, basis, matrix=chosen, bias=bias), seed)


@quick
@given(A=adjacencies(), **CHOICES)
def test_linear_in_the_signals(A: Tensor, seed: int, **choices: str) -> None:
    conv, n = layer(seed=seed, bias=False, **choices), len(A)
    x, y = normal(n, 4, seed=seed), normal(n, 4, seed=seed + 1)
    edges = edges_of(A)
    torch.testing.assert_close(conv(2 * x - 3 * y, *edges), 2 * conv(x, *edges) - 3 * conv(y, *edges), **LOOSE)


@quick
@given(A=adjacencies(), **CHOICES)
def test_linear_in_the_coefficients(A: Tensor, seed: int, decomposition: str, **choices: str) -> None:
    """A full layer with the coefficients of the sum of two layers is their sum."""
    first, second = (layer(decomposition, seed=seed + i, bias=False, **choices) for i in range(2))
    both = layer("full", seed=seed, bias=False, **choices)
    if choices["basis"] == "favard":
        second.basis = both.basis = first.basis
    x, edges = normal(len(A), 4, seed=seed), edges_of(A)
    with torch.no_grad():
        both.decomposition.W.copy_((2 * first.coefficients() - second.coefficients()).permute(2, 0, 1))
    torch.testing.assert_close(both(x, *edges), 2 * first(x, *edges) - second(x, *edges), **LOOSE)


@quick
@given(A=adjacencies(), data=st.data(), **CHOICES)
def test_relabelling_nodes_relabels_outputs(A: Tensor, data: st.DataObject, seed: int, **choices: str) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(A)))))
    conv, x = layer(seed=seed, **choices), normal(len(A), 4, seed=seed)
    torch.testing.assert_close(conv(x[order], *edges_of(A[order][:, order])), conv(x, *edges_of(A))[order], **LOOSE)


@quick
@given(A=adjacencies(), data=st.data(), **CHOICES)
def test_the_order_of_edges_is_irrelevant(A: Tensor, data: st.DataObject, seed: int, **choices: str) -> None:
    """And so are edges of weight 0, and an edge in two halves."""
    edge_index, weight = edges_of(A)
    edge_index = torch.cat([edge_index, edge_index[:, :1].repeat(1, 2).view(2, -1), torch.tensor([[0, 1], [1, 0]])], 1)
    extra = edge_index.shape[1] - len(weight) - 2
    weight = torch.cat([weight, torch.zeros(extra + 2, dtype=torch.float64)])
    shuffled = torch.tensor(data.draw(st.permutations(range(edge_index.shape[1]))))
    conv, x = layer(seed=seed, **choices), normal(len(A), 4, seed=seed)
    out = conv(x, edge_index[:, shuffled], weight[shuffled])
    torch.testing.assert_close(out, conv(x, *edges_of(A)), **LOOSE)


@quick
@given(A=adjacencies(6), B=adjacencies(6), **CHOICES)
def test_a_disjoint_union_filters_as_its_parts_do(A: Tensor, B: Tensor, seed: int, **choices: str) -> None:
    conv, x = layer(seed=seed, **choices), normal(len(A) + len(B), 4, seed=seed)
    out = conv(x, *edges_of(torch.block_diag(A, B)))
    parts = [conv(x[: len(A)], *edges_of(A)), conv(x[len(A) :], *edges_of(B))]
    torch.testing.assert_close(out, torch.cat(parts), **LOOSE)


@quick
@given(A=adjacencies(), **CHOICES)
def test_order_0_is_a_linear_layer(A: Tensor, seed: int, decomposition: str, matrix: str, basis: str) -> None:
    if decomposition == "gcn":
        decomposition = "sgc"
    conv = randomise(make_conv(decomposition, basis, order=0), seed)
    x = normal(len(A), 4, seed=seed)
    weight, bias = conv(torch.cat([torch.eye(4), torch.zeros(1, 4)]).double(), torch.zeros(2, 0).long()).split([4, 1])
    torch.testing.assert_close(conv(x, *edges_of(A)), x @ (weight - bias) + bias, **LOOSE)


# --- kinds of signals


@pytest.mark.parametrize("kind", ["coo", "csr", "CSR"])
def test_sparse_signals_give_the_outputs_of_dense_ones(kind: str) -> None:
    A, x, conv = random_adjacency(7, 3), sparse_features(7, 4), make_conv()
    sparse = {"coo": Tensor.to_sparse_coo, "csr": Tensor.to_sparse_csr, "CSR": CSR.from_tensor}[kind](x)
    torch.testing.assert_close(conv(sparse, *edges_of(A)), conv(x, *edges_of(A)), **TOLERANCE)


def test_leading_axes_of_signals_are_batches() -> None:
    A, x, conv = random_adjacency(7, 3), normal(2, 5, 7, 4), make_conv()
    out = conv(x, *edges_of(A))
    assert out.shape == (2, 5, 7, 3)
    for i in range(2):
        for j in range(5):
            torch.testing.assert_close(out[i, j], conv(x[i, j], *edges_of(A)), **TOLERANCE)


def test_a_graph_without_edges_and_a_graph_of_one_node() -> None:
    conv = make_conv(matrix="laplacian")
    W, last = conv.decomposition.expand_affine()
    at_one = conv.basis.evaluate(torch.ones(1, dtype=torch.float64), 3)[:, 0]  # L = I
    for nodes in (1, 5):
        x = normal(nodes, 4)
        expected = torch.einsum("ni,ijk,k->nj", torch.cat([torch.ones(nodes, 1), x], 1), W, at_one) + last
        torch.testing.assert_close(conv(x, torch.zeros(2, 0, dtype=torch.int64)), expected, **TOLERANCE)


def test_optbasis_terms_have_the_coefficients_of_a_fitted_basis() -> None:
    """Once fitted, the basis is an ordinary one, and the layer gives the same."""
    A, x = random_adjacency(7, 3), normal(7, 4)
    conv = make_conv("full", "optbasis")
    S = conv.matrix(*edges_of(A), num_nodes=7, dtype=torch.float64)
    fixed = make_conv("full")
    fixed.basis = OptBasis(4).fit(S, x, 3)
    fixed.decomposition.load_state_dict(conv.decomposition.state_dict())
    torch.testing.assert_close(fixed(x, S), conv(x, S), rtol=1e-7, atol=1e-7)


# --- a good module


def test_layers_do_not_share_parameters() -> None:
    first, second = make_conv(), make_conv()
    assert not {p.data_ptr() for p in first.parameters()} & {p.data_ptr() for p in second.parameters()}


def test_reset_starts_again_from_the_generator_alone() -> None:
    outs, A, x = [], random_adjacency(7, 3), normal(7, 4)
    for seed in (1, 1, 2):
        conv = make_conv("tucker", "favard", dropout={"input": 0.5, "G": 0.5})
        conv.reset_parameters(torch.Generator().manual_seed(seed))
        torch.rand(7)
        outs.append(conv(x, *edges_of(A)))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])


def test_layers_can_be_copied_pickled_and_stored() -> None:
    A, x, conv = random_adjacency(7, 3), normal(7, 4), make_conv("tucker", dropout={"C": 0.5})
    conv(x, *edges_of(A))
    other = randomise(make_conv("tucker", dropout={"C": 0.5}), 9)
    other.load_state_dict(conv.state_dict())
    copies = [copy.deepcopy(conv), pickle.loads(pickle.dumps(conv)), other]
    out = conv(x, *edges_of(A))
    assert all(torch.equal(c(x, *edges_of(A)), out) for c in copies)


def test_explain_says_what_is_taken() -> None:
    A, x, conv = random_adjacency(60, 3), normal(60, 4), make_conv("cp", rank=64, dropout={"Z": 0.5})
    training, evaluation = conv.explain(x, *edges_of(A)), conv.eval().explain(x, *edges_of(A))

    def taken(text: str) -> str:
        (line,) = [line for line in text.splitlines() if line.startswith("->")]
        return line

    assert taken(training).startswith("->rank ") and not taken(evaluation).startswith("->rank ")
    assert int(conv.decomposition.drop["Z"].step) == 0  # explaining is no step


# --- errors


EDGES = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.ones(2, 5), InputError, r"x has shape \(2, 5\): expected \(nodes, 4\)"),
        (torch.ones(4), InputError, r"x has shape \(4,\): expected \(nodes, 4\)"),
        (torch.ones(2, 4).long(), TypeError, r"x has dtype torch.int64: expected float32 or float64; pass x.float\(\)"),
        ([[1.0] * 4] * 2, TypeError, "x is a list: expected a tensor, dense or sparse"),
        (torch.ones(1, 4), InputError, "edge_index names node 1 .* below num_nodes = 1"),
        (torch.ones(2, 4).to_sparse().requires_grad_(), InputError, "x is sparse and requires grad: .* x.detach"),
        (torch.ones(2, 2, 4).to_sparse(), InputError, r"x is sparse with shape \(2, 2, 4\): expected \(nodes, 4\)"),
    ],
)
def test_signals_are_checked(x: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SpectralConv(4, 3, 2)(x, EDGES)


@pytest.mark.parametrize(
    ("edge_index", "weight", "message"),
    [
        (EDGES.T.repeat(2, 1), None, r"edge_index has shape \(4, 2\): expected \(2, E\)"),
        (EDGES.float(), None, "edge_index has dtype torch.float32: expected integers"),
        (EDGES - 1, None, "edge_index names node -1"),
        (EDGES, torch.ones(2, 1), r"edge_weight has shape \(2, 1\): expected \(2,\), .* edge_weight.squeeze\(1\)"),
        (EDGES, torch.tensor([1.0, float("nan")]), "edge_weight"),
    ],
)
def test_edges_are_checked(edge_index: Tensor, weight: Tensor | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SpectralConv(4, 3, 2)(torch.ones(2, 4), edge_index, weight)


@pytest.mark.parametrize("rate", [-0.5, 1.5])
def test_dropout_rates_are_checked(rate: float) -> None:
    with pytest.raises(InputError, match=r"dropout rate .* expected numbers from 0 to 1"):
        SpectralConv(4, 3, 2, dropout={"C": rate})


def test_a_graph_is_taken_in_place_of_its_edges() -> None:
    A, x, conv = random_adjacency(7, 3), normal(7, 4), make_conv()
    edge_index, weight = edges_of(A)
    graph = Graph(edge_index, edge_weight=weight, num_nodes=7)
    assert torch.equal(conv(x, graph), conv(x, edge_index, weight))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"replicates": 0}, InputError, "replicates 0: expected a whole number >= 1"),
        ({"replicates": 1.5}, InputError, "replicates 1.5: expected a whole number >= 1"),
        ({"dropout": 0.5}, TypeError, "dropout is 0.5: expected rates by place"),
        ({"dropout": {"input": "a"}}, TypeError, "dropout rate 'a': expected numbers from 0 to 1"),
        ({"basis_options": ["a"]}, TypeError, r"basis_options is \['a'\]: expected options by name"),
        ({"basis": ["jacobi"]}, InputError, r"basis \['jacobi'\] is unknown"),
        ({"matrix": ["sym"]}, InputError, r"matrix \['sym'\] is unknown"),
        ({"decomposition": {}}, InputError, r"decomposition \{\} is unknown"),
        ({"ridge": "a"}, TypeError, "ridge 'a': expected a number >= 0"),
        ({"ridge": float("inf")}, InputError, "ridge inf: expected a number >= 0"),
        ({"ridge": [1.0, 2.0]}, InputError, r"ridge has shape \(2,\): expected one number"),
        ({"ridge": [1.0, 2.0], "replicates": 3}, InputError, r"ridge has shape \(2,\): .* one a replicate \(3,\)"),
    ],
)
def test_options_are_checked(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SpectralConv(4, 2, 3, **options)


def test_sizes_may_be_numpys() -> None:
    conv = SpectralConv(np.int64(4), 2, np.int64(3), rank=np.int64(5))
    assert conv.coefficients().shape == (4, 2, 4)
