"""The spectral density: against eigenvalues that numpy computes, and moments of matrices that are known."""

import math

import numpy as np
import pytest
import torch

from codesgc import MATRICES, Graph, InputError, SymmetricMatrix, spectral_density
from codesgc.spectrum import chebyshev_moments, jackson


def random_graph(nodes: int, edges: int, seed: int) -> Graph:
    pairs = np.random.default_rng(seed).integers(nodes, size=(2, edges))
    return Graph(pairs[:, pairs[0] != pairs[1]], num_nodes=nodes, to_undirected=True, duplicates="first")


def eigenvalues(graph: Graph, matrix: str) -> np.ndarray:
    return np.linalg.eigvalsh(MATRICES[matrix]()(graph, dtype=torch.float64).to_dense().numpy())


@pytest.mark.parametrize("moments", [1, 2, 3, 12, 13])
@pytest.mark.parametrize("matrix", ["sym", "gcn"])
def test_unit_vectors_give_the_exact_moments(matrix, moments):
    graph = random_graph(40, 70, 0)
    S = MATRICES[matrix]()(graph, dtype=torch.float64)
    t = (eigenvalues(graph, matrix) - S.shift) / S.scale
    expected = [np.cos(k * np.arccos(t.clip(-1, 1))).mean() for k in range(moments)]
    np.testing.assert_allclose(chebyshev_moments(S, moments, probes=None), expected, atol=1e-12)


def test_random_signs_estimate_the_moments():
    graph = random_graph(2000, 6000, 1)
    S = MATRICES["sym"]()(graph, dtype=torch.float64)
    exact = chebyshev_moments(S, 40, probes=None)
    estimate = chebyshev_moments(S, 40, probes=16, seed=3)
    assert estimate[0] == 1.0
    # the standard deviation is at most 2 / sqrt(N R) = 0.011
    assert (estimate - exact).abs().max() < 5 * 2 / math.sqrt(2000 * 16)
    assert (estimate - exact).abs().max() > 0
    assert torch.equal(estimate, chebyshev_moments(S, 40, probes=16, seed=3))
    assert not torch.equal(estimate, chebyshev_moments(S, 40, probes=16, seed=4))


@pytest.mark.parametrize("matrix", [name for name in MATRICES if name != "custom"])
@pytest.mark.parametrize("seed", [0, 1])
def test_share_of_eigenvalues_is_that_of_eigvalsh(matrix, seed):
    graph = random_graph(300, 500, seed)
    found = eigenvalues(graph, matrix)
    rho = spectral_density(graph, matrix, moments=400)
    low, high = rho.grid().min().item(), rho.grid().max().item()
    points = np.linspace(low, high, 41)
    # a step of the true function is smoothed over pi / moments of half the interval
    width = 3 * math.pi / 400 * (high - low) / 2
    below = np.searchsorted(found, points - width) / len(found)
    above = np.searchsorted(found, points + width) / len(found)
    share = rho.share_below(torch.from_numpy(points)).numpy()
    assert (share >= below - 0.03).all() and (share <= above + 0.03).all()
    assert np.abs(share - np.searchsorted(found, points) / len(found)).mean() < 0.02


def test_random_probes_give_the_histogram_of_eigvalsh():
    graph = random_graph(1500, 6000, 2)
    edges = np.linspace(-1, 1, 21)
    expected = np.histogram(eigenvalues(graph, "sym"), edges)[0] / 1500
    share = spectral_density(graph, probes=16).share_below(torch.from_numpy(edges)).diff().numpy()
    np.testing.assert_allclose(share, expected, atol=0.01)
    assert expected.max() > 0.08  # so that the tolerance tells this spectrum from another


def test_density_is_the_derivative_of_the_share_and_never_negative():
    rho = spectral_density(random_graph(200, 500, 3), "laplacian", moments=60)
    x = torch.linspace(0.01, 1.99, 4001, dtype=torch.float64)
    density = rho.density(x)
    assert (density >= 0).all()
    middle = (density[1:] + density[:-1]) / 2 * x.diff()
    torch.testing.assert_close(middle.cumsum(0), rho.share_below(x[1:]) - rho.share_below(x[:1]), atol=1e-4, rtol=0)


def test_it_counts_everything_between_the_ends_and_nothing_outside():
    for matrix in ("sym", "laplacian", "scaled_laplacian"):
        rho = spectral_density(random_graph(50, 80, 4), matrix)
        ends = torch.tensor([-9.0, 9.0], dtype=torch.float64)
        torch.testing.assert_close(rho.share_below(ends), torch.tensor([0.0, 1.0], dtype=torch.float64))
        assert rho.density(ends).tolist() == [0.0, 0.0]


def test_isolated_nodes_are_a_peak_at_the_shift():
    graph = Graph([[0, 1], [1, 0]], num_nodes=100)
    rho = spectral_density(graph, "laplacian")
    share = rho.share_below(torch.tensor([0.9, 1.1]))
    assert share.diff().item() == pytest.approx(0.98, abs=2e-3)


def test_a_matrix_of_ones_own_and_an_operator():
    dense = torch.diag(torch.tensor([5.0, 5.0, 5.0, -1.0], dtype=torch.float64))
    edges = torch.arange(4).expand(2, -1)
    S = SymmetricMatrix()(edges, dense.diagonal(), dtype=torch.float64)
    rho = spectral_density(S)
    assert rho.share_below(torch.tensor([2.0])).item() == pytest.approx(0.25, abs=0.01)


def test_jackson_damping_starts_at_one_and_falls():
    g = jackson(50)
    assert g[0] == pytest.approx(1.0)
    assert (g.diff() < 0).all() and (g > 0).all()
    k, n = 7, 51  # the formula as Weisse et al. (2006), equation 71, print it
    expected = ((n - k) * math.cos(math.pi * k / n) + math.sin(math.pi * k / n) / math.tan(math.pi / n)) / n
    assert g[k].item() == pytest.approx(expected)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"matrix": "simm"}, "did you mean 'sym'"),
        ({"moments": 0}, "moments 0: expected a whole number >= 1"),
        ({"probes": 0}, "probes 0: expected a whole number >= 1"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(InputError, match=message):
        spectral_density(random_graph(10, 20, 0), **options)


def test_a_graph_without_nodes_has_no_spectrum():
    with pytest.raises(InputError, match="has no nodes"):
        spectral_density(Graph(torch.zeros(2, 0, dtype=torch.int64), num_nodes=0))
