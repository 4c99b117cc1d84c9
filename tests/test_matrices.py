"""Graph matrices against their dense definitions, their spectra, and what they refuse."""

import pytest
import torch
from oracles import MATRIX_ORACLES, TOLERANCE, edges_of, normal, random_adjacency
from torch import Tensor

from codesgc import MATRICES, Graph, InputError, SpectralConv, SymmetricMatrix
from codesgc.engine import Operator
from codesgc.matrices import Matrix, extreme_eigenvalues, make_matrix

NORMALISED = [name for name in MATRICES if name != "custom"]

GRAPHS = {
    "weighted, isolated nodes, self-loops": random_adjacency(9, 1, isolated=2),
    "unweighted": random_adjacency(9, 2, isolated=0, loops=0, weighted=False),
    "one edge": random_adjacency(2, 0, isolated=0, loops=0),
    "bipartite": torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]).double(),
    "no edges": torch.zeros(4, 4, dtype=torch.float64),
}


def operator(name: str, A: Tensor) -> Operator:
    return MATRICES[name]()(*edges_of(A), num_nodes=len(A), dtype=torch.float64)


def test_every_matrix_has_an_oracle() -> None:
    assert set(MATRIX_ORACLES) == set(MATRICES)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", MATRICES)
def test_matrix_matches_its_definition(name: str, graph: str) -> None:
    A = GRAPHS[graph]
    torch.testing.assert_close(operator(name, A).to_dense(), MATRIX_ORACLES[name](A), **TOLERANCE)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", MATRICES)
def test_what_propagates_has_its_spectrum_within_one(name: str, graph: str) -> None:
    t = operator(name, GRAPHS[graph]).t.to_dense()
    torch.testing.assert_close(t, t.T, rtol=1e-15, atol=0)  # the engine's gradients rely on it
    assert torch.linalg.eigvalsh(t).abs().max() <= 1 + 1e-9


@pytest.mark.parametrize("name", NORMALISED)
def test_edges_without_weights_weigh_one(name: str) -> None:
    edge_index, weight = edges_of(GRAPHS["unweighted"])
    matrix = MATRICES[name]()
    assert torch.equal(matrix(edge_index).to_dense(), matrix(edge_index, weight).to_dense())


def test_repeated_edges_add_up_and_edges_of_weight_0_are_none() -> None:
    A = random_adjacency(6, 3)
    edge_index, weight = edges_of(A)
    twice = torch.cat([edge_index, edge_index, torch.tensor([[0, 5], [5, 0]])], 1)
    weights = torch.cat([weight * 0.25, weight * 0.75, torch.zeros(2, dtype=torch.float64)])
    for name in MATRICES:
        S = MATRICES[name]()(twice, weights, num_nodes=6, dtype=torch.float64)
        torch.testing.assert_close(S.to_dense(), MATRIX_ORACLES[name](A), **TOLERANCE)


@pytest.mark.parametrize("name", MATRICES)
def test_a_graph_gives_the_matrix_of_its_edges(name: str) -> None:
    A = random_adjacency(7, 5)
    edge_index, weight = edges_of(A)
    graph = Graph(edge_index, edge_weight=weight, num_nodes=7)
    assert torch.equal(
        MATRICES[name]()(graph, dtype=torch.float64).to_dense(),
        MATRICES[name]()(edge_index, weight, 7, dtype=torch.float64).to_dense(),
    )


def test_isolated_node_gets_the_response_at_its_diagonal() -> None:
    """P(S) multiplies the signal of an isolated node by P(shift)."""
    A = random_adjacency(6, 0, isolated=1)
    x = normal(6, 1)
    for name in NORMALISED:
        conv = SpectralConv(1, 1, 3, basis="legendre", matrix=name, decomposition="full", bias=False).double()
        diagonal = MATRIX_ORACLES[name](A)[5, 5:]
        response = conv.basis.evaluate(diagonal, 3)[:, 0] @ conv.coefficients()[0, 0]
        out = conv(x, *edges_of(A))
        torch.testing.assert_close(out[5, 0], response * x[5, 0], **TOLERANCE)


def test_the_dtype_of_the_signals_is_that_of_the_matrix() -> None:
    edge_index, _ = edges_of(GRAPHS["unweighted"])
    assert MATRICES["sym"]()(edge_index).dtype == torch.get_default_dtype()
    assert MATRICES["sym"]()(edge_index, dtype=torch.float64).dtype == torch.float64
    S = MATRICES["sym"]()(edge_index, dtype=torch.float64)
    assert MATRICES["sym"]()(S, dtype=torch.float32).dtype == torch.float32


def test_single_precision_is_rounded_once() -> None:
    """Normalised in float64: the float32 matrix is the nearest one."""
    A = random_adjacency(9, 1)
    single = MATRICES["sym"]()(*edges_of(A), 9, torch.float32).to_dense()
    assert torch.equal(single, operator("sym", A).to_dense().float())


# --- spectra that are estimated


@pytest.mark.parametrize("nodes", [5, 60, 300])
def test_lambda_max_is_estimated(nodes: int) -> None:
    """300 nodes are more than the Lanczos steps, so this one is an estimate indeed."""
    A = random_adjacency(nodes, nodes)
    if nodes == 300:
        A = A * (normal(300, 300).add(normal(300, 300).T) > 1.8)  # sparse, so that the spectrum is wide
    L = MATRIX_ORACLES["laplacian"](A)
    largest = float(torch.linalg.eigvalsh(L)[-1])
    S = operator("scaled_laplacian", A)
    torch.testing.assert_close(2 / -S.scale, largest, rtol=1e-3 if nodes == 300 else 1e-9, atol=0)
    eigenvalues = torch.linalg.eigvalsh(S.to_dense())
    assert eigenvalues[0] == pytest.approx(-1, abs=1e-9) and eigenvalues[-1] <= 1 + 1e-3


def test_lambda_max_may_be_given() -> None:
    A = random_adjacency(7, 5)
    S = make_matrix(MATRICES["scaled_laplacian"](lambda_max=1.7))(*edges_of(A), 7, torch.float64)
    expected = 2 / 1.7 * MATRIX_ORACLES["laplacian"](A) - torch.eye(7)
    torch.testing.assert_close(S.to_dense(), expected, **TOLERANCE)


def test_lambda_max_of_the_graph_of_self_loops() -> None:
    """L = 0, so that 2 L / lambda_max has no value: this must be said, or S be -I."""
    loops = torch.arange(3).expand(2, -1)
    try:
        S = MATRICES["scaled_laplacian"]()(loops)
    except InputError as error:
        assert "lambda_max" in str(error)
    else:
        assert torch.equal(S.to_dense(), -torch.eye(3))


@pytest.mark.parametrize("shift", [-30.0, 0.0, 2.0])
@pytest.mark.parametrize("nodes", [4, 40, 200])
def test_the_estimated_spectrum_of_a_matrix_of_ones_own_holds_its_eigenvalues(nodes: int, shift: float) -> None:
    noise = normal(nodes, nodes, seed=nodes)
    A = noise + noise.T + shift * torch.eye(nodes)
    S = SymmetricMatrix()(*edges_of(A), nodes, torch.float64)
    torch.testing.assert_close(S.to_dense(), A, rtol=1e-10, atol=1e-9)
    assert torch.linalg.eigvalsh(S.t.to_dense()).abs().max() <= 1 + 1e-9


@pytest.mark.parametrize("nodes", [300, 1500])
def test_an_estimate_that_has_not_converged_holds_the_eigenvalues(nodes: int) -> None:
    """A long path's eigenvalues cos(k pi / (N+1)) crowd at both ends, where Lanczos is slow."""
    steps = torch.arange(nodes - 1)
    edge_index = torch.stack([torch.cat([steps, steps + 1]), torch.cat([steps + 1, steps])])
    S = SymmetricMatrix()(edge_index, torch.full((2 * nodes - 2,), 0.5))
    greatest = torch.cos(torch.tensor(torch.pi / (nodes + 1), dtype=torch.float64)).item()
    assert S.shift - S.scale <= -greatest and greatest <= S.shift + S.scale
    assert S.scale < 1.1  # and is not far off


def test_the_estimate_does_not_overlook_symmetric_eigenvectors() -> None:
    """On a ring every eigenvector but two is double, and the extreme ones alternate in sign."""
    nodes = torch.arange(12)
    A = torch.zeros(12, 12, dtype=torch.float64)
    A[nodes, (nodes + 1) % 12] = A[(nodes + 1) % 12, nodes] = 0.5
    least, greatest, _ = extreme_eigenvalues(operator("custom", A).t)
    S = operator("custom", A)
    bounds = S.scale * torch.tensor([least, greatest]) + S.shift
    torch.testing.assert_close(bounds, torch.tensor([-1.0, 1.0]), rtol=0, atol=1e-6)


def test_the_spectrum_may_be_given() -> None:
    A = random_adjacency(7, 5)
    S = SymmetricMatrix(spectrum=(-4.0, 10.0))(*edges_of(A), 7, torch.float64)
    assert (S.scale, S.shift) == (7.0, 3.0)
    torch.testing.assert_close(S.to_dense(), A, **TOLERANCE)


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_a_multiple_of_the_identity_is_a_matrix(value: float) -> None:
    A = value * torch.eye(4, dtype=torch.float64)
    edge_index, weight = torch.arange(4).expand(2, -1), A.diagonal()
    conv = SpectralConv(2, 2, 3, basis="monomial", matrix=SymmetricMatrix(), decomposition="full", bias=False).double()
    x = normal(4, 2)
    expected = torch.einsum("k,ni,ijk->nj", value ** torch.arange(4.0).double(), x, conv.coefficients())
    torch.testing.assert_close(conv(x, edge_index, weight), expected, rtol=1e-6, atol=1e-6)


# --- no graph is remembered, and operators are checked


def test_a_layer_forgets_the_graph_it_has_seen() -> None:
    conv = SpectralConv(3, 2, 4, matrix="scaled_laplacian").double()
    first, second = random_adjacency(8, 1), random_adjacency(8, 2)
    x = normal(8, 3)
    a, b, again = conv(x, *edges_of(first)), conv(x, *edges_of(second)), conv(x, *edges_of(first))
    assert torch.equal(a, again) and not torch.allclose(a, b)
    fresh = SpectralConv(3, 2, 4, matrix="scaled_laplacian").double()
    fresh.load_state_dict(conv.state_dict())
    assert torch.equal(fresh(x, *edges_of(second)), b)


def test_an_operator_in_place_of_the_edges_gives_the_same() -> None:
    conv = SpectralConv(3, 2, 4).double()
    A, x = random_adjacency(8, 1), normal(8, 3)
    S = conv.matrix(*edges_of(A), num_nodes=8, dtype=torch.float64)
    assert torch.equal(conv(x, S), conv(x, *edges_of(A)))


def test_an_operator_of_another_matrix_is_refused() -> None:
    S = operator("laplacian", random_adjacency(8, 1))
    with pytest.raises(InputError, match="operator is of matrix 'laplacian': this layer expected 'sym'"):
        SpectralConv(3, 2, 4)(normal(8, 3), S)


def test_an_operator_or_graph_of_another_size_is_refused() -> None:
    A = random_adjacency(8, 1)
    with pytest.raises(InputError, match="operator has 8 nodes: x has 7 rows; expected the same"):
        SpectralConv(3, 2, 4)(normal(7, 3), operator("sym", A))
    with pytest.raises(InputError, match="graph has 8 nodes: x has 7 rows; expected the same"):
        SpectralConv(3, 2, 0)(normal(7, 3), Graph(edges_of(A)[0], num_nodes=8))


@pytest.mark.parametrize("given", ["graph", "operator"])
def test_weights_beside_a_graph_or_operator_are_refused(given: str) -> None:
    """They would be ignored."""
    A = random_adjacency(8, 1)
    edge_index, weight = edges_of(A)
    edges = Graph(edge_index, edge_weight=weight, num_nodes=8) if given == "graph" else operator("sym", A)
    with pytest.raises(InputError, match="edge_weight"):
        SpectralConv(3, 2, 4)(normal(8, 3), edges, weight * 2)


# --- errors


@pytest.mark.parametrize("name", MATRICES)
def test_directed_edges_are_refused(name: str) -> None:
    matrix = MATRICES[name]()
    with pytest.raises(InputError, match="edge_index is directed: expected every edge in both directions"):
        matrix(torch.tensor([[0, 1, 1], [1, 0, 2]]))


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_directions_with_different_weights_are_refused_whatever_the_unit(unit: float) -> None:
    with pytest.raises(InputError, match=r"edge_index is directed: expected .* with one weight"):
        MATRICES["sym"]()(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0]) * unit)


def test_weights_that_differ_by_rounding_are_one() -> None:
    weights = torch.tensor([0.1 + 0.2, 0.3], dtype=torch.float64)
    assert weights[0] != weights[1]
    MATRICES["sym"]()(torch.tensor([[0, 1], [1, 0]]), weights)


@pytest.mark.parametrize("name", NORMALISED)
def test_negative_weights_are_refused(name: str) -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    with pytest.raises(InputError, match=f"2 negative values: matrix '{name}' expected weights >= 0"):
        MATRICES[name]()(edges, torch.tensor([3.0, 3.0, -1.0, -1.0, 2.0]))
    with pytest.raises(InputError, match=f"node 2 has degree .* matrix '{name}'"):
        MATRICES[name]()(edges, torch.tensor([3.0, 3.0, -2.0, -2.0, 0.5]))


def test_negative_weights_are_allowed_in_a_matrix_of_ones_own() -> None:
    A = random_adjacency(6, 0)
    A[0, 1] = A[1, 0] = -1.5
    torch.testing.assert_close(operator("custom", A).to_dense(), A, **TOLERANCE)


def test_weights_with_gradients_are_refused() -> None:
    weights = torch.ones(2, requires_grad=True)
    with pytest.raises(InputError, match=r"edge_weight requires grad: .* pass its \.detach"):
        MATRICES["sym"]()(torch.tensor([[0, 1], [1, 0]]), weights)


def test_unknown_matrix_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"matrix 'laplacean' is unknown: .* did you mean 'laplacian'"):
        SpectralConv(3, 2, 4, matrix="laplacean")


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_lambda_max_must_be_positive(value: float) -> None:
    with pytest.raises(InputError, match=r"lambda_max .* expected a positive number, or None"):
        MATRICES["scaled_laplacian"](lambda_max=value)


@pytest.mark.parametrize("spectrum", [(1.0, -1.0), (float("nan"), 1.0)])
def test_a_spectrum_is_least_and_greatest(spectrum: tuple[float, float]) -> None:
    with pytest.raises(InputError, match=r"spectrum .* expected \(least, greatest\)"):
        SymmetricMatrix(spectrum)


def test_a_name_can_be_registered_once() -> None:
    with pytest.raises(ValueError, match="matrix name 'sym' is taken by Sym"):

        class Another(Matrix, name="sym"):
            pass
