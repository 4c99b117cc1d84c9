"""The engine's three products against dense polynomials, their gradients, and what they keep in memory."""

import gc

import pytest
import scipy.special
import torch
from oracles import TOLERANCE, normal, random_adjacency, saved_tensors, sparse_features
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from codesgc.engine import (
    CSR,
    Dropout,
    Filter,
    Operator,
    Route,
    analyse,
    cheapest,
    core,
    filter,
    linear,
    native,
    portable,
    synthesise,
    with_ones,
)
from codesgc.engine.linear import propagate

ORDERS = (0, 1, 2, 5)


def symmetric(nodes: int = 6, seed: int = 0) -> tuple[CSR, Tensor]:
    """A sparse symmetric matrix with its spectrum in [-1, 1], and the same dense."""
    A = random_adjacency(nodes, seed)
    A[0, 2] = A[2, 0] = -0.4  # the engine does not mind signs
    A = A / torch.linalg.eigvalsh(A).abs().max()
    return CSR.from_tensor(A), A


def chebyshev_matrices(A: Tensor, order: int) -> Tensor:
    """T_k(A), (K+1, N, N), from an eigendecomposition."""
    eigenvalues, U = torch.linalg.eigh(A)
    T = torch.stack([torch.from_numpy(scipy.special.eval_chebyt(k, eigenvalues.numpy())) for k in range(order + 1)])
    return torch.einsum("nm,km,lm->knl", U, T, U)


# --- values


@pytest.mark.parametrize("order", ORDERS)
def test_filter_is_the_sum_of_chebyshev_polynomials(order: int) -> None:
    S, A = symmetric()
    h, m = normal(2, 6, 3), normal(2, order + 1, 3, seed=1)
    expected = torch.einsum("knl,blc,bkc->bnc", chebyshev_matrices(A, order), h, m)
    torch.testing.assert_close(filter(S, h, m), expected, **TOLERANCE)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("product", [synthesise, analyse])
def test_mixed_products_are_the_sum_of_chebyshev_polynomials(product, order: int) -> None:
    S, A = symmetric()
    x, a = normal(2, 6, 2, 3), normal(2, order + 1, 3, 4, seed=1)
    expected = torch.einsum("knl,blqi,bkij->bnqj", chebyshev_matrices(A, order), x, a)
    torch.testing.assert_close(product(S, x, a), expected, **TOLERANCE)


@pytest.mark.parametrize("order", ORDERS)
def test_synthesise_of_sparse_features_equals_that_of_dense_ones(order: int) -> None:
    S, A = symmetric()
    x, a = sparse_features(6, 3), normal(2, order + 1, 3, 4, seed=1)
    expected = torch.einsum("knl,li,bkij->bnj", chebyshev_matrices(A, order), x, a)
    torch.testing.assert_close(synthesise(S, CSR.from_tensor(x), a)[:, :, 0], expected, **TOLERANCE)


def test_synthesise_of_sparse_features_with_values_for_every_replicate() -> None:
    S, A = symmetric()
    x, a = CSR.from_tensor(sparse_features(6, 3)), normal(2, 4, 3, 4, seed=1)
    x = x.with_values(normal(2, x.nnz, seed=2))
    expected = torch.einsum("knl,bli,bkij->bnj", chebyshev_matrices(A, 3), x.to_dense(), a)
    torch.testing.assert_close(synthesise(S, x, a)[:, :, 0], expected, **TOLERANCE)


def test_leading_axes_broadcast() -> None:
    S, A = symmetric()
    T = chebyshev_matrices(A, 2)
    h, m = normal(6, 3), normal(2, 4, 3, 3, seed=1)  # one signal, 2 x 4 filters
    torch.testing.assert_close(filter(S, h, m), torch.einsum("knl,lc,abkc->abnc", T, h, m), **TOLERANCE)
    x, a = normal(4, 6, 1, 3), normal(2, 1, 3, 3, 2, seed=1)
    expected = torch.einsum("knl,blqi,akij->abnqj", T, x, a[:, 0])
    torch.testing.assert_close(synthesise(S, x, a), expected, **TOLERANCE)
    torch.testing.assert_close(analyse(S, x, a), expected, **TOLERANCE)


@pytest.mark.parametrize("order", ORDERS)
def test_core_is_the_sum_of_chebyshev_polynomials(order: int) -> None:
    S, A = symmetric()
    t, G, b, a = normal(6, 3), normal(2, 3, 4, 5, seed=1), normal(2, 4, 5, seed=2), normal(2, order + 1, 5, seed=3)
    H = torch.einsum("lp,bpqr->blqr", t, G) + b[:, None]
    expected = torch.einsum("knl,blqr,bkr->bnq", chebyshev_matrices(A, order), H, a)
    torch.testing.assert_close(core(S, t, G, b, a), expected, **TOLERANCE)
    expected -= torch.einsum("knl,bqr,bkr->bnq", chebyshev_matrices(A, order), b, a)
    torch.testing.assert_close(core(S, t, G, None, a), expected, **TOLERANCE)


@pytest.mark.parametrize("replicates", [None, 3])
def test_core_drops_as_its_parts_do(replicates: int | None) -> None:
    """One model, whose dropouts may have a replicate axis."""
    S, _ = symmetric()
    t, G, b, a = normal(6, 3), normal(3, 4, 5, seed=1), normal(4, 5, seed=2), normal(4, 5, seed=3)
    drops = [Dropout(0.5, replicates=replicates) for _ in range(4)]
    for drop, twin in zip(drops[:2], drops[2:], strict=True):
        twin.load_state_dict(drop.state_dict())
    for _ in range(2):  # steps
        found = core(S, t, G, b, a, drops[0], drops[1])
        h = linear(t, G.flatten(-2), b.flatten(-2), drops[2]).unflatten(-1, (4, 5))
        torch.testing.assert_close(found, synthesise(S, h, a[..., None], drops[3])[..., 0], **TOLERANCE)
        assert found.shape == ((6, 4) if replicates is None else (3, 6, 4)) and not found.all()


@pytest.mark.skipif(native.kernels is None, reason="there are no kernels")
@pytest.mark.parametrize("sizes", [(1, 1, 1, 0), (3, 1, 7, 2), (3, 40, 2, 3), (20, 19, 33, 10)])
def test_core_of_the_kernels_is_the_portable_one(sizes: tuple[int, int, int, int]) -> None:
    (P, Q, R, K), (S, _) = sizes, symmetric(40)
    t, G, b, a = normal(1, 40, P), normal(3, P, Q, R, seed=1), normal(3, Q, R, seed=2), normal(3, K + 1, R, seed=3)
    dz, rate = normal(3, 40, Q, seed=4), torch.tensor([0.5, 0, 1], dtype=torch.float64)
    masks = (torch.tensor([5, 6, 7]), rate), (torch.tensor([8, 9, 10]), rate.flip(0))
    torch.testing.assert_close(native.core(S, t, G, b, a, *masks), portable.core(S, t, G, b, a, *masks), **TOLERANCE)
    gradients = [engine.core_backward(S, dz, t, G, b, a, *masks, (True,) * 4) for engine in (native, portable)]
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, **TOLERANCE)


def test_one_column_of_coefficients_serves_all_channels() -> None:
    S, A = symmetric()
    h, m = normal(6, 3), normal(3, 1, seed=1)
    expected = torch.einsum("knl,lc,k->nc", chebyshev_matrices(A, 2), h, m[:, 0])
    torch.testing.assert_close(filter(S, h, m), expected, **TOLERANCE)


def test_arguments_need_not_be_contiguous_and_are_not_changed() -> None:
    S, _ = symmetric()
    h, m, x, a = normal(3, 6).mT, normal(3, 4).mT, normal(3, 2, 6).permute(2, 1, 0), normal(2, 3, 4).permute(2, 1, 0)
    copies = [t.clone() for t in (h, m, x, a)]
    same = {"rtol": 0, "atol": 1e-14}  # the layout may change the order of a sum, not more
    torch.testing.assert_close(filter(S, h, m), filter(S, h.contiguous(), m.contiguous()), **same)
    for product in (synthesise, analyse):
        torch.testing.assert_close(product(S, x, a), product(S, x.contiguous(), a.contiguous()), **same)
    assert all(torch.equal(t, copy) for t, copy in zip((h, m, x, a), copies, strict=True))


def test_products_keep_the_dtype() -> None:
    S, _ = symmetric()
    S = S.to(torch.float32)
    assert filter(S, torch.ones(6, 2), torch.ones(3, 2)).dtype == torch.float32
    assert synthesise(S, torch.ones(6, 1, 2), torch.ones(3, 2, 2)).dtype == torch.float32


# --- gradients


def wanted(t: Tensor) -> Tensor:
    return t.requires_grad_()


@pytest.mark.parametrize("order", (0, 1, 3))
def test_gradients_of_filter(order: int) -> None:
    S, _ = symmetric(5)
    arguments = wanted(normal(2, 5, 2)), wanted(normal(2, order + 1, 2, seed=1))
    assert gradcheck(lambda h, m: filter(S, h, m), arguments)
    assert gradgradcheck(lambda h, m: filter(S, h, m), arguments)


@pytest.mark.parametrize("order", (0, 1, 3))
@pytest.mark.parametrize("product", [synthesise, analyse])
def test_gradients_of_mixed_products(product, order: int) -> None:
    S, _ = symmetric(5)
    arguments = wanted(normal(2, 5, 2, 2)), wanted(normal(2, order + 1, 2, 3, seed=1))
    assert gradcheck(lambda x, a: product(S, x, a), arguments)
    assert gradgradcheck(lambda x, a: product(S, x, a), arguments)


def test_gradients_through_broadcast_axes() -> None:
    S, _ = symmetric(5)
    assert gradcheck(lambda h, m: filter(S, h, m), (wanted(normal(5, 2)), wanted(normal(2, 3, 1, seed=1))))
    for product in (synthesise, analyse):
        arguments = wanted(normal(5, 1, 2)), wanted(normal(2, 3, 2, 3, seed=1))
        assert gradcheck(lambda x, a, product=product: product(S, x, a), arguments)


@pytest.mark.parametrize("replicates", (None, 2))
def test_gradients_of_coefficients_of_sparse_features(replicates: int | None) -> None:
    S, _ = symmetric(5)
    x = CSR.from_tensor(sparse_features(5, 3))
    if replicates:
        x = x.with_values(normal(replicates, x.nnz))
    a = wanted(normal(2, 3, 3, 2, seed=1))
    assert gradcheck(lambda a: synthesise(S, x, a), (a,))
    assert gradgradcheck(lambda a: synthesise(S, x, a), (a,))


def test_gradients_of_one_argument_alone() -> None:
    S, _ = symmetric(5)
    h, m, x, a = normal(5, 2), normal(3, 2, seed=1), normal(5, 1, 2), normal(3, 2, 3, seed=1)
    assert gradcheck(lambda h: filter(S, h, m), (wanted(h.clone()),))
    assert gradcheck(lambda m: filter(S, h, m), (wanted(m.clone()),))
    for product in (synthesise, analyse):
        assert gradcheck(lambda x, product=product: product(S, x, a), (wanted(x.clone()),))
        assert gradcheck(lambda a, product=product: product(S, x, a), (wanted(a.clone()),))


@pytest.mark.parametrize("batch", ((), (2,)))
def test_gradients_of_linear_and_propagate(batch: tuple[int, ...]) -> None:
    S, _ = symmetric(5)
    sparse = CSR.from_tensor(sparse_features(5, 3))
    x, W, b = wanted(normal(5, 3)), wanted(normal(*batch, 3, 2)), wanted(normal(*batch, 2))
    assert gradcheck(linear, (x, W, b)) and gradgradcheck(linear, (x, W, b))
    assert gradcheck(lambda W: linear(sparse, W), (W,)) and gradgradcheck(lambda W: linear(sparse, W), (W,))
    h = wanted(normal(*batch, 5, 2))
    assert gradcheck(lambda h: propagate(S, h), (h,)) and gradgradcheck(lambda h: propagate(S, h), (h,))


# --- memory: no term of the recurrence is stored


def long_path(nodes: int = 101) -> CSR:
    steps = torch.arange(nodes - 1)
    A = torch.zeros(nodes, nodes, dtype=torch.float64)
    A[steps, steps + 1] = A[steps + 1, steps] = 0.5
    return CSR.from_tensor(A)


def run_product(name: str, S: CSR, order: int) -> Tensor:
    if name == "filter":
        return filter(S, wanted(normal(101, 3)), wanted(normal(order + 1, 3)))
    product = {"synthesise": synthesise, "analyse": analyse}[name]
    return product(S, wanted(normal(101, 1, 3)), wanted(normal(order + 1, 3, 2)))


def live_rows(rows: int) -> int:
    """Tensors with that many rows that exist at all: also those kept outside of autograd's reach."""
    gc.collect()
    return sum(issubclass(type(o), Tensor) and rows in o.shape for o in gc.get_objects())


@pytest.mark.parametrize("product", ["filter", "synthesise", "analyse"])
def test_what_a_product_keeps_does_not_grow_with_the_order(product: str) -> None:
    S, counts = long_path(), []
    run_product(product, S, 2)  # S makes and keeps a torch matrix when it is first used
    for order in (2, 12):
        before = live_rows(101)
        with saved_tensors(101) as kept:
            out = run_product(product, S, order)
        saved = len(kept)
        kept.clear()
        counts.append((saved, live_rows(101) - before))
        del out
    assert counts[0] == counts[1]
    assert counts[0][0] == 1  # the signals themselves


@pytest.mark.parametrize("product", ["filter", "synthesise", "analyse"])
def test_what_a_gradient_keeps_does_not_grow_with_the_order(product: str) -> None:
    S, counts = long_path(), []
    for order in (2, 12):
        out = run_product(product, S, order)
        with saved_tensors(101) as kept:
            out.sum().backward(create_graph=False)
        counts.append(len(kept))
    assert counts[0] == counts[1]


# --- replicates do not touch one another


def test_replicates_have_the_bits_of_a_run_alone() -> None:
    S = symmetric(60)[0].to(torch.float32)
    h, m = normal(5, 60, 7).float(), normal(5, 4, 7, seed=1).float()
    x, a = normal(5, 60, 1, 9).float(), normal(5, 4, 9, 7, seed=1).float()
    features = CSR.from_tensor(sparse_features(60, 9).float())
    for b in range(5):
        one = slice(b, b + 1)
        assert torch.equal(filter(S, h, m)[b], filter(S, h[one], m[one])[0])
        assert torch.equal(synthesise(S, x, a)[b], synthesise(S, x[one], a[one])[0])
        assert torch.equal(analyse(S, x, a)[b], analyse(S, x[one], a[one])[0])
        assert torch.equal(synthesise(S, features, a)[b], synthesise(S, features, a[one])[0])


@pytest.mark.parametrize("product", ["filter", "synthesise", "analyse", "sparse"])
def test_gradients_of_replicates_have_the_bits_of_a_run_alone(product: str) -> None:
    S = symmetric(60)[0].to(torch.float32)
    features = CSR.from_tensor(sparse_features(60, 9).float())
    functions = {"filter": filter, "synthesise": synthesise, "analyse": analyse}
    x = normal(5, 60, 9).float() if product == "filter" else normal(5, 60, 1, 9).float()
    a = normal(5, 4, 9, seed=1).float() if product == "filter" else normal(5, 4, 9, 7, seed=1).float()

    def gradients(index: slice) -> tuple[Tensor, ...]:
        signals, coefficients = wanted(x[index].clone()), wanted(a[index].clone())
        if product == "sparse":
            out = synthesise(S, features, coefficients)
            return torch.autograd.grad(out.square().sum(), (coefficients,))
        out = functions[product](S, signals, coefficients)
        return torch.autograd.grad(out.square().sum(), (signals, coefficients))

    together = gradients(slice(0, 5))
    for b in range(5):
        alone = gradients(slice(b, b + 1))
        assert all(torch.equal(t[b], s[0]) for t, s in zip(together, alone, strict=True))


# --- sparse matrices and linear maps


@pytest.mark.parametrize("layout", ["dense", "coo", "csr"])
def test_csr_holds_the_matrix_it_was_made_from(layout: str) -> None:
    x = sparse_features(6, 4)
    csr = CSR.from_tensor({"dense": Tensor.clone, "coo": Tensor.to_sparse_coo, "csr": Tensor.to_sparse_csr}[layout](x))
    assert torch.equal(csr.to_dense(), x) and csr.nnz == int((x != 0).sum())
    assert torch.equal(csr.T.to_dense(), x.T) and torch.equal(csr.T.T.to_dense(), x)


@pytest.mark.parametrize("values", ["shared", "own"])
def test_sparse_products_are_dense_products(values: str) -> None:
    x = CSR.from_tensor(sparse_features(6, 4))
    if values == "own":
        x = x.with_values(normal(3, x.nnz, seed=3))
    right, left = normal(3, 4, 5), normal(3, 6, 5)
    torch.testing.assert_close(x @ right, x.to_dense() @ right, **TOLERANCE)
    torch.testing.assert_close(x.T @ left, x.to_dense().mT @ left, **TOLERANCE)


def test_other_values_do_not_inherit_a_transpose() -> None:
    x = CSR.from_tensor(sparse_features(6, 4))
    assert torch.equal(x.T.to_dense(), x.to_dense().T)  # computed and kept
    other = x.with_values(x.values * 2)
    assert torch.equal(other.T.to_dense(), 2 * x.to_dense().T)


def test_empty_sparse_matrix() -> None:
    x = CSR.from_tensor(torch.zeros(4, 3))
    assert x.nnz == 0 and torch.equal(x @ torch.ones(3, 2), torch.zeros(4, 2))
    assert torch.equal(x.with_values(torch.zeros(2, 0)) @ torch.ones(2, 3, 2), torch.zeros(2, 4, 2))


@pytest.mark.parametrize("replicates", (None, 2))
def test_with_ones_puts_the_constant_signal_first(replicates: int | None) -> None:
    dense = sparse_features(6, 4)
    x = CSR.from_tensor(dense)
    if replicates:
        x = x.with_values(normal(replicates, x.nnz))
        dense = x.to_dense()
    expected = torch.cat([torch.ones_like(dense[..., :1]), dense], -1)
    assert torch.equal(with_ones(x).to_dense(), expected)
    assert torch.equal(with_ones(dense), expected)


@pytest.mark.parametrize("sparse", [False, True])
def test_linear_is_x_w_plus_b(sparse: bool) -> None:
    x, W, b = sparse_features(6, 4), normal(3, 4, 2), normal(3, 2)
    expected = torch.einsum("ni,bij->bnj", x, W) + b[:, None]
    torch.testing.assert_close(linear(CSR.from_tensor(x) if sparse else x, W, b), expected, **TOLERANCE)


# --- filters in a basis


@pytest.mark.parametrize("channels", (None, 3))
@pytest.mark.parametrize("replicates", ((), (2,)))
def test_filter_in_a_basis_mixes_chebyshev_terms(channels: int | None, replicates: tuple[int, ...]) -> None:
    """P_k = sum_l B[k, l] T_l in all three products, also where B differs between replicates and channels."""
    S, A = symmetric()
    B = normal(*replicates, *([3] if channels else []), 3, 3)
    full = B if channels else B[..., None, :, :].expand(*replicates, 3, 3, 3)  # (..., I, K+1, K+1)
    op, T = Filter(Operator(S, 1.0, 0.0), B, channels), chebyshev_matrices(A, 2)
    x, m, a = normal(*replicates, 6, 3), normal(*replicates, 3, 3, seed=1), normal(*replicates, 3, 3, 2, seed=2)
    expected = torch.einsum("...ikl,lnm,...mi,...ki->...ni", full, T, x, m)
    torch.testing.assert_close(op.filter(x, m), expected, **TOLERANCE)
    expected = torch.einsum("...ikl,lnm,...mi,...kij->...nj", full, T, x, a)
    torch.testing.assert_close(op.synthesise(x[..., None, :], a)[..., 0, :], expected, **TOLERANCE)
    torch.testing.assert_close(op.analyse(x[..., None, :], a)[..., 0, :], expected, **TOLERANCE)


def test_operator_is_an_affine_map_of_its_matrix() -> None:
    S, A = symmetric()
    torch.testing.assert_close(Operator(S, -2.0, 0.5).to_dense(), -2 * A + 0.5 * torch.eye(6), **TOLERANCE)
    assert Operator(S, 1.0, 0.0).to(torch.float32).dtype == torch.float32


# --- planner


def test_planner_takes_the_narrow_side_and_meets_the_masks() -> None:
    S = Operator(symmetric()[0], 1.0, 0.0)
    wide = Route("wide", 32, 10.0, ("C", "Z"), lambda: torch.zeros(()))
    narrow = Route("narrow", 4, 10.0, ("C",), lambda: torch.zeros(()))
    dense = Route("dense", 4, 1e9, (), lambda: torch.zeros(()))
    assert cheapest([wide, dense, narrow], S, 5, active=()).name == "narrow"
    assert cheapest([wide, dense, narrow], S, 5, active=["C"]).name == "narrow"
    assert cheapest([wide, dense, narrow], S, 5, active=["Z"]).name == "wide"
