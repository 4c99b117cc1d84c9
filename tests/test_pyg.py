"""PyTorch Geometric's layers with the same weights."""

import warnings

import pytest
import torch
from oracles import TOLERANCE, edges_of, normal, random_adjacency, randomise
from torch import Tensor

from codesgc import MATRICES, SpectralConv

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # torch_geometric uses torch.jit.script when it is imported
    from torch_geometric.nn import APPNP, ChebConv, GCNConv, SGConv, SSGConv

NODES, I, J = 10, 4, 3


def graph(weighted: bool, loops: int = 0) -> tuple[Tensor, Tensor | None]:
    """With an isolated node."""
    edge_index, weight = edges_of(random_adjacency(NODES, 6, isolated=1, loops=loops, weighted=weighted))
    return edge_index, weight if weighted else None


def conv(
    decomposition: str, matrix: object = "gcn", order: int = 4, basis: str = "monomial", **options: object
) -> SpectralConv:
    return randomise(SpectralConv(I, J, order, decomposition=decomposition, matrix=matrix, basis=basis, **options))


def take_weights(layer: torch.nn.Module, linear: torch.nn.Module) -> None:
    """PyG's Linear computes x W^T."""
    with torch.no_grad():
        linear.weight.copy_(layer.decomposition.W.T)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("order", [0, 1, 2, 5])
@pytest.mark.parametrize("lambda_max", [2.0, 1.6])
def test_chebnet_is_chebconv(weighted: bool, order: int, lambda_max: float) -> None:
    ours = conv("full", MATRICES["scaled_laplacian"](lambda_max=lambda_max), order, "chebyshev")
    theirs = ChebConv(I, J, order + 1).double()
    with torch.no_grad():
        for k, linear in enumerate(theirs.lins):
            linear.weight.copy_(ours.decomposition.W[k].T)
        theirs.bias.copy_(ours.decomposition.b_W)
    x, (edge_index, weight) = normal(NODES, I), graph(weighted)
    expected = theirs(x, edge_index, weight, lambda_max=torch.tensor(lambda_max, dtype=torch.float64))
    torch.testing.assert_close(ours(x, edge_index, weight), expected, **TOLERANCE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("order", [1, 2, 10])
def test_appnp_is_appnp(weighted: bool, order: int) -> None:
    """PyG's is the propagation alone, after the linear layer with its bias."""
    ours = conv("appnp", order=order, alpha=0.15)
    d = ours.decomposition
    x, (edge_index, weight) = normal(NODES, I), graph(weighted)
    expected = APPNP(order, 0.15)(x @ d.W + d.b_W, edge_index, weight)
    torch.testing.assert_close(ours(x, edge_index, weight), expected, **TOLERANCE)


@pytest.mark.parametrize("weighted", [False, True])
def test_gcn_is_gcnconv(weighted: bool) -> None:
    ours, theirs = conv("gcn", order=1), GCNConv(I, J).double()
    take_weights(ours, theirs.lin)
    with torch.no_grad():
        theirs.bias.copy_(ours.decomposition.b_W)
    x, edges = normal(NODES, I), graph(weighted)
    torch.testing.assert_close(ours(x, *edges), theirs(x, *edges), **TOLERANCE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("order", [1, 3])
def test_sgc_is_sgconv(weighted: bool, order: int) -> None:
    ours, theirs = conv("sgc", order=order), SGConv(I, J, order).double()
    take_weights(ours, theirs.lin)
    with torch.no_grad():
        theirs.lin.bias.copy_(ours.decomposition.b_W)
    x, edges = normal(NODES, I), graph(weighted)
    torch.testing.assert_close(ours(x, *edges), theirs(x, *edges), **TOLERANCE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("order", [1, 4])
def test_s2gc_is_ssgconv(weighted: bool, order: int) -> None:
    ours, theirs = conv("s2gc", order=order, alpha=0.1), SSGConv(I, J, 0.1, order).double()
    take_weights(ours, theirs.lin)
    with torch.no_grad():
        theirs.lin.bias.copy_(ours.decomposition.b_W)
    x, edges = normal(NODES, I), graph(weighted)
    torch.testing.assert_close(ours(x, *edges), theirs(x, *edges), **TOLERANCE)


def test_gradients_are_those_of_chebconv() -> None:
    ours = conv("full", MATRICES["scaled_laplacian"](lambda_max=2.0), 3, "chebyshev")
    theirs = ChebConv(I, J, 4).double()
    with torch.no_grad():
        for k, linear in enumerate(theirs.lins):
            linear.weight.copy_(ours.decomposition.W[k].T)
        theirs.bias.copy_(ours.decomposition.b_W)
    x, (edge_index, _) = normal(NODES, I).requires_grad_(), graph(False)
    (own,) = torch.autograd.grad(ours(x, edge_index).square().sum(), x)
    (other,) = torch.autograd.grad(theirs(x, edge_index).square().sum(), x)
    torch.testing.assert_close(own, other, **TOLERANCE)
