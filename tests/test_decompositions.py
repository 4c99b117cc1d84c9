"""Every factorisation of W against einsum, and every order of computation against the paper's equations, dense."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from oracles import (
    ALGORITHMS,
    BASIS_CASES,
    BASIS_OPTIONS,
    DECOMPOSITION_OPTIONS,
    MATRIX_ORACLES,
    PER_CHANNEL,
    SHARED_ALPHA,
    TOLERANCE,
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
from torch.autograd import gradcheck

from codesgc import BASES, DECOMPOSITIONS, InputError, SpectralConv
from codesgc.bases import Favard
from codesgc.decompositions import Decomposition, make_decomposition
from codesgc.engine import CSR

ORDER, NODES = 3, 9
SIZES = {"I < J": (3, 5), "I > J": (5, 2)}


def make_conv(decomposition: str, basis: str, I: int, J: int, order: int = ORDER, **rest: object) -> SpectralConv:
    """With parameters drawn at random, in float64; `scaled_laplacian` has both a scale and a shift."""
    if basis == "favard, channels":
        chosen = {"basis": Favard(order, I, replicates=rest.get("replicates"))}
    else:
        chosen = {"basis": basis, "basis_options": BASIS_OPTIONS.get(basis, {})}
    options = {"matrix": "scaled_laplacian", **chosen, **DECOMPOSITION_OPTIONS.get(decomposition, {}), **rest}
    return randomise(SpectralConv(I, J, order, decomposition=decomposition, **options))


def admitted(decomposition: str, basis: str, bias: bool) -> bool:
    """A basis of its own for every channel leaves no place for a bias before the propagation."""
    early = decomposition not in ("full", "per_input", "gcn", "sgc", "s2gc")
    return not (basis in PER_CHANNEL and bias and early)


def graph() -> tuple[Tensor, Tensor]:
    A = random_adjacency(NODES, 4)
    return A, MATRIX_ORACLES["scaled_laplacian"](A)


def outputs_of_routes(conv: SpectralConv, x: Tensor, A: Tensor) -> Iterator[tuple[str, Tensor]]:
    op = conv.basis.on(conv.matrix(*edges_of(A), NODES, torch.float64), conv.order)
    for kind, signals in (("dense", x), ("sparse", CSR.from_tensor(x))):
        for route in conv.decomposition.all_routes(signals, op):
            yield f"{route.name}, {kind} x", route.run()


# --- the definition of W


def test_every_decomposition_has_oracles() -> None:
    assert set(W_ORACLES) == set(DECOMPOSITIONS) == set(ALGORITHMS)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_expansion_matches_the_formula(name: str, bias: bool, order: int, sizes: str) -> None:
    I, J = SIZES[sizes]
    d = make_conv(name, "monomial", I, J, order, bias=bias).decomposition
    assert d.expand().shape == (I, J, order + 1)
    torch.testing.assert_close(d.expand(), W_ORACLES[name](d), **TOLERANCE)
    W, last = d.expand_affine()
    assert W.shape == (I + 1, J, order + 1)
    assert torch.equal(W[1:], d.expand())
    if not bias:
        assert not W[0].any() and last is None


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_only_learnable_factors_are_parameters(name: str) -> None:
    """The paper's Table 1 and Algorithms 1 and 2, last column and parameters; names are those of learning rates."""
    d = make_decomposition(name, 3, 5, ORDER, **DECOMPOSITION_OPTIONS.get(name, {}))
    factors = {
        "full": "W",
        "cp": "C M P",
        "tucker": "C G M P",
        "tucker2": "G M P",
        "tucker2_cm": "C G M",
        "tucker2_cp": "C G P",
        "tucker1": "G M",
        "tucker1_p": "G P",
        "tucker1_c": "C G",
        "gpr": "W alpha_k",
        "nonnegative": "W theta",
        "interpolated": "W gamma",
        "per_output": "W beta",
        "per_output_bounded": "W beta eta",
        "per_input": "W alpha",
        **dict.fromkeys(("gcn", "sgc", "s2gc", "appnp"), "W"),
    }[name].split()
    with_biases = {*factors, *(f"b_{f}" for f in factors if f in ("C", "G", "P", "W"))}
    assert {n for n, _ in d.named_parameters()} == with_biases
    assert sorted(n for names in d.groups.values() for n in names) == sorted(with_biases)
    for group, names in d.groups.items():  # a bias is with its weight
        assert all(n.removeprefix("b_") in names for n in names), group


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_factors_start_in_the_bounds_of_their_fan_in(name: str) -> None:
    d = make_decomposition(name, 30, 20, ORDER, **DECOMPOSITION_OPTIONS.get(name, {}))
    fan_in = {"C": 30, "W": 30}
    if hasattr(d, "G"):
        fan_in |= {"G": d.G.shape[0], "P": d.G.shape[1], "M": ORDER + 1}
    elif name == "cp":
        fan_in |= {"M": ORDER + 1, "P": 4}
    for n, parameter in d.named_parameters():
        factor = n.removeprefix("b_")
        if factor in fan_in and parameter.numel():
            bound = fan_in[factor] ** -0.5
            assert parameter.abs().max() <= bound, n
            if parameter.numel() > 50:
                assert parameter.abs().max() > 0.9 * bound and parameter.mean().abs() < 0.3 * bound, n


def test_coefficients_start_where_the_papers_start() -> None:
    def start(name: str, of: str, **options: object) -> Tensor:
        return getattr(make_decomposition(name, 3, 2, 4, **options), of).detach()

    assert torch.equal(start("nonnegative", "theta"), torch.ones(5))
    assert torch.equal(start("interpolated", "gamma"), torch.ones(5))
    assert torch.equal(start("per_output_bounded", "beta"), torch.ones(5, 2))
    assert torch.equal(start("per_output_bounded", "eta", gamma=2.0), torch.full((4,), 0.5))
    assert torch.equal(start("per_output_bounded", "eta", gamma=0.25), torch.ones(4))
    expected = torch.tensor([0.2, 0.2 * 0.8, 0.2 * 0.8**2, 0.2 * 0.8**3, 0.8**4])
    torch.testing.assert_close(start("gpr", "alpha_k", alpha=0.2), expected)
    assert torch.equal(start("per_input", "alpha"), torch.tensor([[1.0] * 3] + [[0.0] * 3] * 4))


@pytest.mark.parametrize("name", SHARED_ALPHA)
def test_an_alpha_of_zero_is_zero(name: str) -> None:
    """`alpha or 0.1` would make it 0.1."""
    if name in ("s2gc", "appnp", "gpr"):
        d = make_decomposition(name, 3, 2, 4, alpha=0.0)
        expected = {"s2gc": [0.0, 0.25, 0.25, 0.25, 0.25]}.get(name, [0.0, 0.0, 0.0, 0.0, 1.0])
        assert d.alpha().tolist() == expected
        assert make_decomposition(name, 3, 2, 4, alpha=1.0).alpha().tolist() == [1.0, 0, 0, 0, 0]


def test_chebnet2_coefficients_interpolate_the_values_at_the_nodes() -> None:
    d = randomise(make_decomposition("interpolated", 3, 2, 4))
    nodes = torch.cos(torch.pi * (torch.arange(5, dtype=torch.float64) + 0.5) / 5)
    values = d.alpha() @ BASES["chebyshev"]().evaluate(nodes, 4)
    torch.testing.assert_close(values, d.gamma, **TOLERANCE)


# --- the product, in every order of computation


@pytest.mark.parametrize("basis", BASIS_CASES)
@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_every_route_is_equation_6(name: str, basis: str) -> None:
    """With the expanded W on dense P_k(S); a bias is the constant signal's coefficients."""
    A, S = graph()
    for bias, (I, J) in product((False, True), SIZES.values()):
        if not admitted(name, basis, bias):
            continue
        conv, x = make_conv(name, basis, I, J, bias=bias), sparse_features(NODES, I)
        with torch.no_grad():
            P = terms(conv.basis, conv.basis.name, S, x, ORDER)
            expected = equation_6(P, W_ORACLES[name](conv.decomposition))
            W, last = conv.decomposition.expand_affine()
            if W[0].any():
                ones = terms(conv.basis, conv.basis.name, S, torch.ones(NODES, 1, dtype=torch.float64), ORDER)
                expected = expected + equation_6(ones, W[:1])
            expected = expected if last is None else expected + last
            outputs = dict(outputs_of_routes(conv, x, A))
            for route, output in outputs.items():
                torch.testing.assert_close(output, expected, **TOLERANCE, msg=lambda m, r=route: f"{r}: {m}")
            assert len(outputs) >= 4
            torch.testing.assert_close(conv.eval()(x, *edges_of(A)), expected, **TOLERANCE)


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_every_route_is_the_papers_algorithm(name: str) -> None:
    """Algorithms 1 and 2 and equations 9, 11 and 30 as they are written, biases included: no W is ever expanded."""
    A, S = graph()
    for bias, (I, J), basis in product((False, True), SIZES.values(), ("jacobi", "monomial")):
        conv, x = make_conv(name, basis, I, J, bias=bias), sparse_features(NODES, I)

        def propagate(k: int, H: Tensor, conv: SpectralConv = conv) -> Tensor:
            return terms(conv.basis, conv.basis.name, S, H, ORDER)[k]

        with torch.no_grad():
            expected = ALGORITHMS[name](conv.decomposition, x, propagate)
            for route, output in outputs_of_routes(conv, x, A):
                torch.testing.assert_close(output, expected, **TOLERANCE, msg=lambda m, r=route: f"{r}: {m}")


@pytest.mark.parametrize("name", [name for name in DECOMPOSITIONS if name != "gcn"])
def test_order_0_is_a_linear_layer(name: str) -> None:
    A, _ = graph()
    conv, x = make_conv(name, "chebyshev", 3, 2, 0), sparse_features(NODES, 3)
    W, last = conv.decomposition.expand_affine()
    expected = x @ W[1:, :, 0] + W[0, :, 0] + (0 if last is None else last)
    for route, output in outputs_of_routes(conv, x, A):
        torch.testing.assert_close(output, expected, **TOLERANCE, msg=lambda m, r=route: f"{r}: {m}")


@pytest.mark.parametrize("basis", PER_CHANNEL)
@pytest.mark.parametrize("name", [name for name in DECOMPOSITIONS if not admitted(name, "optbasis", bias=True)])
def test_bases_of_every_channel_refuse_a_bias_before_the_propagation(name: str, basis: str) -> None:
    A, _ = graph()
    with pytest.raises(InputError, match=r"basis of its own for every input channel: .* pass bias=False"):
        make_conv(name, basis, 3, 2)(normal(NODES, 3), *edges_of(A))


def test_bases_of_every_channel_refuse_dropout_between_the_factors_in_training_alone() -> None:
    A, _ = graph()
    conv = make_conv("cp", "favard, channels", 3, 2, bias=False, dropout={"Z": 0.5})
    with pytest.raises(InputError, match="no inner dropout"):
        conv(normal(NODES, 3), *edges_of(A))
    assert conv.eval()(normal(NODES, 3), *edges_of(A)).isfinite().all()


# --- gradients


@pytest.mark.parametrize("basis", BASIS_CASES)
@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_gradients_in_signals_and_all_parameters(name: str, basis: str) -> None:
    """Of every route, in one random direction of inputs and outputs; two replicates, who share the signals."""
    A = random_adjacency(5, 1)
    bias = admitted(name, basis, True)
    conv = make_conv(name, basis, 2, 3, 2, bias=bias, replicates=2)
    x = normal(5, 2).requires_grad_()
    S = conv.matrix(*edges_of(A), 5, torch.float64)
    count = len(conv.decomposition.all_routes(x, conv.basis.on(S, 2)))
    parameters = list(conv.parameters())
    for route in range(count):

        def forward(x: Tensor, *_: Tensor, route: int = route) -> Tensor:
            return conv.decomposition.all_routes(x, conv.basis.on(S, 2))[route].run()

        assert gradcheck(forward, (x, *parameters), fast_mode=True)


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_gradients_with_sparse_signals(name: str) -> None:
    A, x = random_adjacency(5, 1), CSR.from_tensor(sparse_features(5, 3))
    conv = make_conv(name, "favard", 3, 2, 2)
    S = conv.matrix(*edges_of(A), 5, torch.float64)
    for route in range(len(conv.decomposition.all_routes(x, conv.basis.on(S, 2)))):

        def forward(*_: Tensor, route: int = route) -> Tensor:
            return conv.decomposition.all_routes(x, conv.basis.on(S, 2))[route].run()

        assert gradcheck(forward, tuple(conv.parameters()), fast_mode=True)


# --- dropout's places


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_every_dropout_takes_part_in_training(name: str) -> None:
    """A place that drops everything leaves only what the biases behind it add: the same for each node, or zero."""
    A, x = random_adjacency(NODES, 4, isolated=0), normal(NODES, 3)
    for place in DECOMPOSITIONS[name].dropouts:
        conv = make_conv(name, "jacobi", 3, 5, bias=False, dropout={place: 1.0})
        assert not conv(x, *edges_of(A)).any(), place
        assert conv.eval()(x, *edges_of(A)).any()
        half = make_conv(name, "jacobi", 3, 5, bias=False, dropout={place: 0.5})
        assert not torch.equal(half(x, *edges_of(A)), half(x, *edges_of(A))), place


def test_dropout_of_cp_stands_where_algorithm_1_has_it() -> None:
    """H = dropout_C(X C + b), Z = dropout_Z(sum_k P_k(S) H diag(m_k)), with the masks that the modules draw."""
    A, S = graph()
    conv, x = make_conv("cp", "jacobi", 3, 5, dropout={"input": 0.3, "C": 0.4, "Z": 0.5}), normal(NODES, 3)
    d = conv.decomposition
    out = conv(x, *edges_of(A))
    for drop in d.drop.values():
        assert int(drop.step) == 1
        drop.step.zero_()
    H = d.drop["C"](d.drop["input"](x) @ d.C + d.b_C)
    V = terms(conv.basis, "jacobi", S, H.detach(), ORDER)
    Z = d.drop["Z"](torch.einsum("knr,kr->nr", V, d.M))
    torch.testing.assert_close(out, Z @ d.P.T + d.b_P, **TOLERANCE)


@pytest.mark.parametrize("name", ["tucker", "tucker2", "tucker1"])
def test_dropout_of_tucker_stands_where_algorithm_2_has_it(name: str) -> None:
    A, S = graph()
    places = [p for p in DECOMPOSITIONS[name].dropouts if p != "input"]
    conv, x = make_conv(name, "jacobi", 3, 5, dropout=dict.fromkeys(places, 0.4)), normal(NODES, 3)
    d = conv.decomposition
    out = conv(x, *edges_of(A))
    for drop in d.drop.values():
        drop.step.zero_()
    T = x if d.C is None else d.drop["C"](x @ d.C + d.b_C)
    _, Q, R = d.G.shape
    H = d.drop["G"](T @ d.G.flatten(1) + d.b_G.flatten())
    V = terms(conv.basis, "jacobi", S, H.detach(), ORDER).reshape(ORDER + 1, NODES, Q, R)
    Z = torch.einsum("knqr,kr->nq", V, d.M)
    expected = Z if d.P is None else d.drop["Z"](Z) @ d.P.T + d.b_P
    torch.testing.assert_close(out, expected, **TOLERANCE)


# --- errors


def test_unknown_names_give_the_nearest() -> None:
    with pytest.raises(InputError, match=r"decomposition 'tuker' is unknown: .* did you mean 'tucker'"):
        SpectralConv(3, 2, 4, decomposition="tuker")
    with pytest.raises(InputError, match=r"option of decomposition 'cp': 'rnak' is unknown: .* did you mean 'rank'"):
        SpectralConv(3, 2, 4, rnak=4)
    with pytest.raises(InputError, match="dropout of decomposition 'cp': 'Y' is unknown: expected one of C, Z, input"):
        SpectralConv(3, 2, 4, dropout={"Y": 0.5})


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "4"])
def test_sizes_are_positive_whole_numbers(value: object) -> None:
    for name in ("in_channels", "out_channels", "rank"):
        arguments = {"in_channels": 3, "out_channels": 2, "rank": 4, name: value}
        with pytest.raises(InputError, match=f"{name} .* expected a whole number >= 1"):
            SpectralConv(order=3, **arguments)


@pytest.mark.parametrize("value", [-1, 2.5, True, None])
def test_orders_are_whole_numbers_from_0(value: object) -> None:
    with pytest.raises(InputError, match=r"order .* expected a whole number >= 0"):
        SpectralConv(3, 2, value)


def test_gcn_has_a_first_power() -> None:
    with pytest.raises(InputError, match=r"order 0: decomposition 'gcn' .* expected order >= 1"):
        make_decomposition("gcn", 3, 2, 0)


def test_sizes_of_identities_are_those_of_their_modes() -> None:
    with pytest.raises(InputError, match="rank_in 4: 'tucker2' has the identity as C, so it is 3; leave it out"):
        make_decomposition("tucker2", 3, 2, 4, rank_in=4)
    assert make_decomposition("tucker2", 3, 2, 4, rank_in=3).G.shape == (3, 32, 32)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_restart_is_a_probability(alpha: float) -> None:
    with pytest.raises(InputError, match=r"a probability \(option alpha\) from 0 to 1"):
        make_decomposition("appnp", 3, 2, 4, alpha=alpha)


@pytest.mark.parametrize("gamma", [0.0, -1.0, float("nan")])
def test_the_bound_of_jacobiconv_is_positive(gamma: float) -> None:
    with pytest.raises(InputError, match=r"a number > 0 \(option gamma\)"):
        make_decomposition("per_output_bounded", 3, 2, 4, gamma=gamma)


def test_a_name_can_be_registered_once() -> None:
    with pytest.raises(ValueError, match="decomposition 'cp' is taken by CP"):

        class Another(Decomposition, name="cp"):
            pass


# --- penalties


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_penalties_are_those_of_the_whole_tensor(name: str) -> None:
    """ridge / 2 |W|^2 + smoothness / 2 sum_k |W_{k+1} - W_k|^2, one number a replicate, each with its own rates."""
    options = DECOMPOSITION_OPTIONS.get(name, {})
    ridge, smoothness = torch.tensor([0.0, 0.3]), torch.tensor([0.7, 0.0])
    parts = make_decomposition(name, 4, 3, 2, replicates=2, ridge=ridge, smoothness=smoothness, **options).double()
    W = parts.expand().detach()
    differences = W[..., 1:] - W[..., :-1]
    expected = torch.stack([0.7 / 2 * (differences[0] ** 2).sum(), 0.3 / 2 * (W[1] ** 2).sum()])
    torch.testing.assert_close(parts.penalty().detach(), expected, rtol=1e-6, atol=0)
    assert parts.penalised and not make_decomposition(name, 4, 3, 2, **options).penalised


@pytest.mark.parametrize("option", ["ridge", "smoothness"])
@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_penalties_are_not_negative(option: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{option} {value}: expected a number >= 0"):
        make_decomposition("cp", 4, 3, 2, **{option: value})
