"""The native products with a graph matrix against dense float64 formulas; the bits of a replicate against itself."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from codesgc import _native

DTYPES = {"float": torch.float32, "double": torch.float64}
GRAPHS = {"one node": (1, 0.0), "no edges": (40, 0.0), "few": (7, 0.4), "some": (61, 0.1), "many": (150, 0.08)}
ORDERS = (0, 1, 2, 3, 10)
#         B  Q   I   J: sizes below, at and above a vector of 16 floats, or of 8 doubles
MIXES = [
    (1, 1, 1, 1),
    (3, 5, 7, 1),
    (2, 32, 16, 1),
    (1, 1, 33, 7),
    (3, 1, 17, 3),
    (2, 2, 20, 20),
    (2, 3, 5, 40),
    (3, 4, 9, 5),
    (1, 1, 64, 64),
    (2, 19, 4, 2),
]
#         B  P   Q   R
CORES = [
    (1, 1, 1, 1),
    (3, 3, 1, 7),
    (3, 3, 7, 5),
    (2, 32, 32, 16),
    (3, 5, 33, 3),
    (1, 17, 20, 70),
    (4, 9, 10, 9),
]
THREADS = (1, 2, 3)


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return DTYPES[request.param]


def graph(name: str, dtype: torch.dtype) -> tuple[object, Tensor]:
    """A random symmetric matrix with its spectrum in [-1, 1], for the kernels and dense."""
    nodes, density = GRAPHS[name]
    random = torch.Generator().manual_seed(nodes)
    dense = torch.randn(nodes, nodes, generator=random, dtype=torch.float64)
    dense = dense * (torch.rand(nodes, nodes, generator=random) < density)
    dense = dense + dense.T
    dense = (dense / dense.abs().sum(1).max().clamp(min=1e-9)).to(dtype)
    rows, columns = dense.nonzero().T
    indptr = torch.cat([torch.zeros(1), torch.bincount(rows, minlength=nodes).cumsum(0)]).int()
    kind = _native.CsrFloat if dtype == torch.float32 else _native.CsrDouble
    return kind(indptr, columns.int(), dense[rows, columns], nodes), dense.double()


def terms(S: Tensor, x: Tensor, order: int) -> Tensor:
    """T_0(S) x, ..., T_order(S) x: x (B, N, ...) -> (B, K+1, N, ...)."""
    polynomials = [torch.eye(len(S), dtype=torch.float64), S]
    for _ in range(order - 1):
        polynomials.append(2 * S @ polynomials[-1] - polynomials[-2])
    return torch.einsum("knm,bm...->bkn...", torch.stack(polynomials[: order + 1]), x.double())


def randn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def unset(like: Tensor) -> Tensor:
    return torch.full_like(like, float("nan"))


def assert_near(actual: Tensor, expected: Tensor) -> None:
    """To rounding: sums of up to some hundred products, relative to the largest entry."""
    tolerance = 2e-5 if actual.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(
        actual.double(), expected, rtol=0, atol=tolerance * max(1.0, expected.abs().max().item())
    )


def filtered(S: object, h: Tensor, m: Tensor, dy: Tensor, threads: int) -> tuple[Tensor, Tensor, Tensor]:
    out, dh, dm = unset(h), unset(h), unset(m)
    _native.filter(S, h, m, None, None, out, threads)
    _native.filter_backward(S, dy, h, m, None, None, dh, dm, threads)
    return out, dh, dm


def mixed(name: str, S: object, x: Tensor, a: Tensor, dy: Tensor, threads: int) -> tuple[Tensor, Tensor, Tensor]:
    out, dx, da = unset(dy), unset(x), unset(a)
    getattr(_native, name)(S, x, a, out, threads)
    getattr(_native, f"{name}_backward")(S, dy, x, a, dx, da, threads)
    return out, dx, da


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", GRAPHS)
def test_filter_and_its_gradients_are_the_dense_formulas(name: str, order: int, dtype: torch.dtype) -> None:
    S, dense = graph(name, dtype)
    for batch, columns in ((1, 1), (3, 7), (1, 33), (5, 16), (2, 32), (3, 50)):
        h, dy = randn(batch, len(dense), columns, dtype=dtype), randn(batch, len(dense), columns, dtype=dtype).flip(1)
        m = randn(batch, order + 1, columns, dtype=dtype)
        out, dh, dm = filtered(S, h, m, dy, threads=2)
        assert_near(out, torch.einsum("bknc,bkc->bnc", terms(dense, h, order), m.double()))
        assert_near(dh, torch.einsum("bknc,bkc->bnc", terms(dense, dy, order), m.double()))
        assert_near(dm, torch.einsum("bknc,bnc->bkc", terms(dense, dy, order), h.double()))


@pytest.mark.parametrize("columns", [1, 3, 16, 20, 32, 45, 70])
def test_a_filter_drops_what_goes_out_and_what_comes_back(columns: int, dtype: torch.dtype) -> None:
    """The mask of element e = n C + c of each replicate, whatever the tiles: the same bits as dropout on its own."""
    S, dense = graph("many", dtype)
    keys, thresholds = torch.arange(3) * 12345 + 1, torch.tensor([1 << 15, 0, 60_000], dtype=torch.int32)
    h, dy = (randn(3, len(dense), columns, dtype=dtype) for _ in range(2))
    m = randn(3, 5, columns, dtype=dtype)
    out, _, _ = filtered(S, h, m, dy, threads=1)
    for whole in (out, dy):
        _native.dropout(whole.view(3, -1), keys, thresholds, whole.view(3, -1))
    y = torch.einsum("bknc,bkc->bnc", terms(dense, h, 4), m.double())
    assert_near(out[1], y[1])  # nothing dropped
    dropped, dh, dm = unset(out), unset(h), unset(m)
    _native.filter(S, h, m, keys, thresholds, dropped, 2)
    assert torch.equal(dropped, out) and (columns * len(dense) < 32 or not out[0].all())
    _, expected_h, expected_m = filtered(S, h, m, dy, threads=1)
    _native.filter_backward(S, randn(3, len(dense), columns, dtype=dtype), h, m, keys, thresholds, dh, dm, 2)
    assert torch.equal(dh, expected_h) and torch.equal(dm, expected_m)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("side", ["synthesise", "analyse"])
def test_mixing_and_its_gradients_are_the_dense_formulas(side: str, name: str, order: int, dtype: torch.dtype) -> None:
    S, dense = graph(name, dtype)
    for batch, groups, inputs, outputs in MIXES:
        x = randn(batch, len(dense), groups, inputs, dtype=dtype)
        dy = randn(batch, len(dense), groups, outputs, dtype=dtype)
        a = randn(batch, order + 1, inputs, outputs, dtype=dtype)
        out, dx, da = mixed(side, S, x, a, dy, threads=2)
        forward, back = terms(dense, x, order), terms(dense, dy, order)
        assert_near(out, torch.einsum("bknqi,bkij->bnqj", forward, a.double()))
        assert_near(dx, torch.einsum("bknqj,bkij->bnqi", back, a.double()))
        assert_near(da, torch.einsum("bknqi,bnqj->bkij", forward, dy.double()))


def assert_same_bits_alone(run: Callable[..., tuple[Tensor, ...]], S: object, *arguments: Tensor) -> None:
    together = run(S, *arguments, threads=1)
    for threads in THREADS[1:]:
        assert all(torch.equal(t, r) for t, r in zip(together, run(S, *arguments, threads=threads), strict=True))
    for b in range(len(arguments[0])):
        for threads in THREADS:
            alone = run(S, *(t[b : b + 1] for t in arguments), threads=threads)
            assert all(torch.equal(t[b : b + 1], r) for t, r in zip(together, alone, strict=True))


@pytest.mark.parametrize("columns", [1, 7, 16, 33, 40])
def test_filter_gives_a_replicate_the_same_bits_in_any_company(columns: int, dtype: torch.dtype) -> None:
    S, dense = graph("many", dtype)
    h, dy = (randn(5, len(dense), columns, dtype=dtype) for _ in range(2))
    assert_same_bits_alone(filtered, S, h, randn(5, 101, columns, dtype=dtype), dy)


@pytest.mark.parametrize("side", ["synthesise", "analyse"])
@pytest.mark.parametrize(("groups", "inputs", "outputs"), [mix[1:] for mix in MIXES])
def test_mixing_gives_a_replicate_the_same_bits_in_any_company(
    side: str, groups: int, inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    def run(S: object, x: Tensor, a: Tensor, dy: Tensor, threads: int) -> tuple[Tensor, ...]:
        return mixed(side, S, x, a, dy, threads)

    S, dense = graph("many", dtype)
    x, dy = (randn(5, len(dense), groups, width, dtype=dtype) for width in (inputs, outputs))
    assert_same_bits_alone(run, S, x, randn(5, 31, inputs, outputs, dtype=dtype), dy)


Masks = tuple[Tensor | None, Tensor | None]


def masks(batch: int, key: int) -> Masks:
    """Rates from 0 to 1."""
    return torch.arange(batch) * 12345 + key, (torch.arange(batch) % 3 * 32768).flip(0).int()


def core_factors(S: Tensor, batch: int, P: int, Q: int, R: int, order: int, dtype: torch.dtype) -> list[Tensor]:
    """t, G, bias, a and dz."""
    shapes = ((batch, len(S), P), (batch, P, Q, R), (batch, Q, R), (batch, order + 1, R), (batch, len(S), Q))
    return [randn(*shape, dtype=dtype) for shape in shapes]


def cored(
    S: object, t: Tensor, G: Tensor, bias: Tensor | None, a: Tensor, dz: Tensor, *drops: Tensor | None, threads: int
) -> tuple[Tensor, ...]:
    z, like = unset(dz), G if bias is None else bias
    dt, dG, dbias, da = (unset(x) for x in (dz.new_empty(len(dz), *t.shape[1:]), G, like, a))
    _native.core(S, t, G, bias, a, *drops, z, threads)
    _native.core_backward(S, dz, t, G, bias, a, *drops, dt, dG, None if bias is None else dbias, da, threads)
    return (z, dt, dG, da) if bias is None else (z, dt, dG, dbias, da)


def in_parts(
    S: object, t: Tensor, G: Tensor, bias: Tensor | None, a: Tensor, dz: Tensor, *drops: Tensor | None
) -> tuple[Tensor, ...]:
    """The same by a dense product, dropouts, and a synthesis."""
    batch, P, Q, R = G.shape
    w, t = G.view(batch, P, Q * R), t.expand(batch, *t.shape[1:]).contiguous()
    H, z = dz.new_empty(*dz.shape[:2], Q * R), unset(dz)
    _native.matmul(t, w, None if bias is None else bias.view(batch, -1), *drops[:2], H)
    wide = *dz.shape, R
    _native.synthesise(S, H.view(wide), a[..., None].contiguous(), z.view(*dz.shape, 1))
    y = dz.clone()
    if drops[2] is not None:
        for whole in (z, y):
            _native.dropout(whole.view(batch, -1), *drops[2:], whole.view(batch, -1))
    dH, da, dt, dw, dbias = unset(H), unset(a), unset(t), unset(w), G.new_empty(batch, Q * R)
    columns = y.view(*dz.shape, 1), H.view(wide), a[..., None].contiguous()
    _native.synthesise_backward(S, *columns, dH.view(wide), da.view(*a.shape, 1))
    _native.matmul_backward(t, w, dH, *drops[:2], dt, dw, dbias)
    gradients = dt, dw.view(G.shape), dbias.view(batch, Q, R), da
    return (z, *gradients) if bias is not None else (z, dt, dw.view(G.shape), da)


@pytest.mark.parametrize("order", (0, 1, 5, 12))
@pytest.mark.parametrize("name", GRAPHS)
def test_the_core_and_its_gradients_are_those_of_its_parts(name: str, order: int, dtype: torch.dtype) -> None:
    """With the masks of the parts, which are tested against dense formulas."""
    S, dense = graph(name, dtype)
    for batch, P, Q, R in CORES:
        t, G, bias, a, dz = core_factors(dense, batch, P, Q, R, order, dtype)
        dropped = masks(batch, 1), masks(batch, 2 << 40)
        for given in (
            (t, G, bias, a, dz, None, None, None, None),
            (t[:1].contiguous(), G, None, a, dz, *dropped[0], None, None),
            (t, G, bias, a, dz, *dropped[0], *dropped[1]),
        ):
            expected = in_parts(S, *given)
            for found, wanted in zip(cored(S, *given, threads=2), expected, strict=True):
                assert_near(found, wanted.double())


@pytest.mark.parametrize(("P", "Q", "R"), [sizes[1:] for sizes in CORES])
def test_the_core_gives_a_replicate_the_same_bits_in_any_company(P: int, Q: int, R: int, dtype: torch.dtype) -> None:
    S, dense = graph("many", dtype)
    factors = core_factors(dense, 5, P, Q, R, 10, dtype)
    assert_same_bits_alone(cored, S, *factors, *masks(5, 3), *masks(5, 4))


@pytest.mark.parametrize("Q", [3, 20])
def test_gradients_of_the_core_that_are_not_asked_for_change_nothing(Q: int, dtype: torch.dtype) -> None:
    S, dense = graph("many", dtype)
    t, G, bias, a, dz = core_factors(dense, 2, 5, Q, 7, 10, dtype)
    given = S, dz, t, G, bias, a, *masks(2, 1), None, None
    _, *expected = cored(S, t, G, bias, a, dz, *masks(2, 1), None, None, threads=1)
    for threads in THREADS:
        for asked in range(4):
            only = [unset(gradient) if at == asked else None for at, gradient in enumerate(expected)]
            _native.core_backward(*given, *only, threads)
            assert torch.equal(only[asked], expected[asked])
    _native.core_backward(*given, None, None, None, None)


def test_what_does_not_fit_into_the_core_is_refused() -> None:
    S, dense = graph("few", torch.float32)
    t, G, bias, a, dz = core_factors(dense, 2, 3, 5, 4, 6, torch.float32)
    keys, thresholds = masks(2, 1)
    none = None, None, None, None
    for at, wrong, message in (
        (0, torch.zeros(2, 8, 3), "t has 8 entries on axis 1: expected 7"),
        (0, torch.zeros(2, 7, 4), "t has 4 entries on axis 2: expected 3"),
        (0, torch.zeros(3, 7, 3), "t has 3 entries on axis 0: expected 2"),
        (1, torch.zeros(2, 3, 0, 4), "G has no entries"),
        (2, torch.zeros(2, 5, 3), "bias has 3 entries on axis 2: expected 4"),
        (3, torch.zeros(2, 0, 4), "a has 0 entries on axis 1: expected K \\+ 1"),
        (3, torch.zeros(2, 7, 5), "a has 5 entries on axis 2: expected 4"),
        (4, torch.zeros(2, 7, 6), "(out|dz) has 6 entries on axis 2: expected 5"),
    ):
        given = [t, G, bias, a, dz]
        given[at] = wrong
        with pytest.raises(ValueError, match=message):
            _native.core(S, *given[:4], *none, given[4])
        with pytest.raises(ValueError, match=message):
            _native.core_backward(S, given[4], *given[:4], *none, None, None, None, None)
    for at, wrong, message in (
        (0, torch.zeros(1, 7, 3), "dt has 1 entries on axis 0: expected 2"),
        (1, torch.zeros(2, 3, 4, 5), "dG has 4 entries on axis 2: expected 5"),
        (2, torch.zeros(2, 5, 3), "dbias has 3 entries on axis 2: expected 4"),
        (3, torch.zeros(2, 6, 4), "da has 6 entries on axis 1: expected 7"),
    ):
        asked: list[Tensor | None] = [None] * 4
        asked[at] = wrong
        with pytest.raises(ValueError, match=message):
            _native.core_backward(S, dz, t, G, bias, a, *none, *asked)
        asked[at] = (t, G, bias, a)[at].double()
        with pytest.raises(TypeError):
            _native.core_backward(S, dz, t, G, bias, a, *none, *asked)
    for drops, message in (
        ((keys[:1], thresholds, None, None), "keys has 1"),
        ((keys, None, None, None), "None"),
        ((None, None, None, thresholds), "None"),
        ((keys, thresholds + 65537, None, None), "threshold 98305"),
        ((None, None, keys, thresholds - 1), "-1"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.core(S, t, G, bias, a, *drops, dz)
    with pytest.raises(ValueError, match="threads 0"):
        _native.core(S, t, G, bias, a, *none, dz, 0)
    for given in ((t.mT.contiguous().mT, G, bias, a), (t, G, bias, a.double()), (t, G.flatten(2), bias, a)):
        with pytest.raises(TypeError):
            _native.core(S, *given, *none, dz)


def test_gradients_that_are_not_asked_for_change_nothing(dtype: torch.dtype) -> None:
    S, dense = graph("some", dtype)
    h, dy, m = (randn(2, n, 21, dtype=dtype) for n in (len(dense), len(dense), 6))
    _, dh, dm = filtered(S, h, m, dy, threads=1)
    only_h, only_m = unset(dh), unset(dm)
    _native.filter_backward(S, dy, h, m, None, None, only_h, None)
    _native.filter_backward(S, dy, h, m, None, None, None, only_m)
    assert torch.equal(only_h, dh) and torch.equal(only_m, dm)
    for side in ("synthesise", "analyse"):
        x, a = randn(2, len(dense), 3, 7, dtype=dtype), randn(2, 6, 7, 20, dtype=dtype)
        dy = randn(2, len(dense), 3, 20, dtype=dtype)
        _, dx, da = mixed(side, S, x, a, dy, threads=1)
        only_x, only_a = unset(dx), unset(da)
        getattr(_native, f"{side}_backward")(S, dy, x, a, only_x, None)
        getattr(_native, f"{side}_backward")(S, dy, x, a, None, only_a)
        assert torch.equal(only_x, dx) and torch.equal(only_a, da)


def test_shapes_that_do_not_fit_are_refused_with_their_names() -> None:
    S, _ = graph("few", torch.float32)
    h, m = torch.zeros(2, 7, 3), torch.zeros(2, 4, 3)
    for wrong, message in (
        ((torch.zeros(2, 8, 3), m, h), "h has 8 entries on axis 1: expected 7"),
        ((h, torch.zeros(3, 4, 3), h), "m has 3 entries on axis 0: expected 2"),
        ((h, torch.zeros(2, 0, 3), h), "m has 0 entries on axis 1: expected K \\+ 1"),
        ((h, m, torch.zeros(2, 7, 4)), "out has 4 entries on axis 2: expected 3"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.filter(S, *wrong[:2], None, None, wrong[2])
    with pytest.raises(ValueError, match="threads 0: expected a whole number >= 1"):
        _native.filter(S, h, m, None, None, torch.zeros(2, 7, 3), 0)
    keys, thresholds = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int32)
    for masks, message in (
        ((keys[:1], thresholds), "keys has 1"),
        ((keys, None), "None"),
        ((keys, thresholds - 1), "-1"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.filter(S, h, m, *masks, torch.zeros(2, 7, 3))
        with pytest.raises(ValueError, match=message):
            _native.filter_backward(S, h, h, m, *masks, None, None)
    for wrong in ((h.double(), m, h), (h, m, h.double()), (h, m, h.mT.contiguous().mT)):  # never written to a copy
        with pytest.raises(TypeError):
            _native.filter(S, *wrong[:2], None, None, wrong[2])
    with pytest.raises(TypeError):
        _native.filter_backward(S, h, h, m, None, None, h.double(), None)
    x, a, out = torch.zeros(2, 7, 5, 3), torch.zeros(2, 4, 3, 6), torch.zeros(2, 7, 5, 6)
    for side in (_native.synthesise, _native.analyse):
        with pytest.raises(ValueError, match="a has 3 entries on axis 2: expected 4"):
            side(S, torch.zeros(2, 7, 5, 4), a, out)
        with pytest.raises(ValueError, match="out has 4 entries on axis 2: expected 5"):
            side(S, x, a, torch.zeros(2, 7, 4, 6))
    for back in (_native.synthesise_backward, _native.analyse_backward):
        with pytest.raises(ValueError, match="da has 5 entries on axis 1: expected 4"):
            back(S, out, x, a, None, torch.zeros(2, 5, 3, 6))
        with pytest.raises(ValueError, match="dy has 6 entries on axis 1: expected 7"):
            back(S, torch.zeros(2, 6, 5, 6), x, a, None, None)
