"""The engine's operators as torch sees them: schemas, fake tensors, tracing, compilation, and the direct way in."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from codesgc import DECOMPOSITIONS, Graph, SpectralConv, build_model
from codesgc.engine import CSR, ops

KEYS, RATE = torch.tensor([11, 22]), torch.tensor([0.5, 0.2], dtype=torch.float64)
MASKS = [(None, None), (KEYS, RATE)]


def normal(*shape: int, seed: int = 0, grad: bool = True) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.requires_grad_(grad)


def path_graph(nodes: int = 5) -> Graph:
    return Graph([range(nodes - 1), range(1, nodes)], x=torch.eye(nodes), to_undirected=True)


def matrices() -> tuple[CSR, CSR]:
    """S of a path with an isolated node behind it, and sparse features of its nodes."""
    S = SpectralConv(1, 1, 1).matrix(Graph([[0, 1, 2], [1, 2, 3]], num_nodes=5, to_undirected=True)).t
    features = normal(5, 3, grad=False) * (normal(5, 3, seed=1, grad=False) > 0)
    return S.to(torch.float64), CSR.from_tensor(features)


def calls(S: int, X: int, masks: tuple[Tensor | None, Tensor | None]) -> dict[str, tuple[object, ...]]:
    """Arguments of every operator, for two replicates; the gradients' operators are reached through the others."""
    h, m = normal(2, 5, 4), normal(2, 4, 4, seed=1)
    x, a = normal(2, 5, 2, 3), normal(2, 4, 3, 2, seed=2)
    labels, nodes = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([[0, 2], [1, 4]])
    found: dict[str, tuple[object, ...]] = {
        "affine": (normal(2, 5, 3), normal(2, 3, 4, seed=3), normal(2, 4, seed=4), *masks),
        "features": (X, normal(2, 3, 4), normal(2, 4, seed=5), KEYS + 7, RATE, *masks),
        "filter": (S, h, m, *masks),
        "synthesise": (S, x, a, *masks),
        "analyse": (S, x, a, *masks),
        "synthesise_features": (S, X, a, *masks),
        "core": (S, normal(2, 5, 3), normal(2, 3, 2, 3), normal(2, 2, 3), normal(2, 4, 3), KEYS + 7, RATE, *masks),
    }
    if masks[0] is None:
        found["affine"] = (normal(1, 5, 3), *found["affine"][1:])  # signals that all replicates share
        found["core"] = (S, normal(1, 5, 3), normal(2, 3, 2, 3), None, normal(2, 4, 3), None, None, *masks)
    else:
        found["dropout"] = (normal(2, 9), KEYS, RATE)
        found["cross_entropy"] = (normal(2, 5, 4), labels, nodes)
    return found


CASES = [(masks, name) for masks in range(2) for name in calls(0, 0, MASKS[masks])]


@pytest.mark.parametrize(("masks", "name"), CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch's own tracing
def test_operators_pass_torchs_own_checks(masks: int, name: str) -> None:
    """Schema, registration of the gradient, fake tensors against real ones, tracing with dynamic shapes."""
    S, X = matrices()
    operator = getattr(torch.ops.codesgc, name).default
    checks = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if name == "cross_entropy":  # its second output, the gradient, has none
        checks.remove("test_aot_dispatch_dynamic")
    torch.library.opcheck(operator, calls(S.handle, X.handle, MASKS[masks])[name], test_utils=checks)


@pytest.mark.parametrize(("masks", "name"), [case for case in CASES if case[1] != "cross_entropy"])
def test_first_and_second_gradients_of_operators(masks: int, name: str) -> None:
    S, X = matrices()
    arguments = calls(S.handle, X.handle, MASKS[masks])[name]
    wanted = [i for i, value in enumerate(arguments) if isinstance(value, Tensor) and value.requires_grad]

    def function(*values: Tensor) -> Tensor:
        filled = list(arguments)
        for i, value in zip(wanted, values, strict=True):
            filled[i] = value
        return getattr(ops, name)(*filled)

    inputs = tuple(arguments[i] for i in wanted)
    assert gradcheck(function, inputs) and gradgradcheck(function, inputs)
    with ops.called_directly():
        assert gradcheck(function, inputs) and gradgradcheck(function, inputs)


@pytest.mark.parametrize(("masks", "name"), CASES)
def test_operators_called_directly_have_the_same_bits(masks: int, name: str) -> None:
    S, X = matrices()
    arguments = calls(S.handle, X.handle, MASKS[masks])[name]
    wanted = [value for value in arguments if isinstance(value, Tensor) and value.requires_grad]

    def results() -> list[Tensor]:
        out = getattr(ops, name)(*arguments)
        first = out[0] if isinstance(out, tuple) else out
        return [first, *torch.autograd.grad(first.square().sum(), wanted)]

    dispatched = results()
    with ops.called_directly():
        direct = results()
        with torch.no_grad():
            out = getattr(ops, name)(*arguments)
    assert all(torch.equal(p, q) for p, q in zip(dispatched, direct, strict=True))
    assert torch.equal(out[0] if isinstance(out, tuple) else out, dispatched[0])


def test_a_dropout_of_a_product_is_the_dropout_after_it() -> None:
    S, X = matrices()
    plain, masked = (calls(S.handle, X.handle, masks) for masks in MASKS)
    for name in ("affine", "filter", "synthesise", "analyse", "features", "core"):
        whole = getattr(ops, name)(*masked[name][:-2], None, None)
        expected = ops.dropout(whole.flatten(1), KEYS, RATE).reshape(whole.shape)
        assert torch.equal(getattr(ops, name)(*masked[name]), expected), name
        assert not torch.equal(whole, expected)
    assert plain.keys() < masked.keys()


# of dynamo itself, which looks at every tensor's gradient
UNASKED = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


@UNASKED
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("training", [True, False])
def test_layers_compile(decomposition: str, training: bool) -> None:
    graph = path_graph()
    conv = SpectralConv(5, 3, 3, decomposition=decomposition).train(training)
    S, x = conv.matrix(graph), torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(conv, backend="aot_eager")
    expected, found = conv(x, S), compiled(x, S)
    torch.testing.assert_close(found, expected)
    parameters = [p for p in conv.parameters() if p.requires_grad]
    expected_grads = torch.autograd.grad(expected.square().sum(), parameters, allow_unused=True)
    for grad, wanted in zip(
        torch.autograd.grad(found.square().sum(), parameters, allow_unused=True), expected_grads, strict=True
    ):
        assert (grad is None) == (wanted is None)
        if grad is not None:
            torch.testing.assert_close(grad, wanted)


@UNASKED
def test_a_model_compiles_with_dropout() -> None:
    """The same masks, step by step."""
    graph = path_graph()
    model, twin = (build_model("H-CP", 5, 2, order=3, hidden=6, rank=4, dropout=0.5) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    S = model.operator(graph)
    compiled = torch.compile(twin, backend="aot_eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(graph.x, S), model(graph.x, S))


@UNASKED
def test_a_compiled_layer_takes_one_graph_after_another() -> None:
    """Handles of matrices are numbers, and torch makes a symbol of a number that changes."""
    conv = SpectralConv(5, 3, 2)
    compiled = torch.compile(conv, backend="aot_eager")
    for nodes in (5, 5, 6, 7):
        x, S = torch.ones(nodes, 5), conv.matrix(path_graph(nodes))
        torch.testing.assert_close(compiled(x, S), conv(x, S))
