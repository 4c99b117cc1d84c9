"""Every basis against its closed form, and the change to Chebyshev polynomials."""

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev
from oracles import (
    BASIS_OPTIONS,
    BASIS_ORACLES,
    MATRIX_ORACLES,
    TOLERANCE,
    favard_values,
    interpolation_nodes,
    jacobi_values,
    normal,
    orthonormalised,
    random_adjacency,
    randomise,
)
from torch import Tensor

from codesgc import BASES, InputError, SpectralConv
from codesgc.bases import Favard, Jacobi, OptBasis, make_basis
from codesgc.bases.base import Basis, chebyshev_nodes
from codesgc.bases.optbasis import orthonormal_terms
from codesgc.engine import CSR, Operator

FIXED = [name for name in BASES if name != "optbasis"]  # optbasis has polynomials only once it has signals
POINTS = torch.linspace(-1, 1, 41, dtype=torch.float64)


def build(name: str, order: int) -> Basis:
    """A basis with parameters of its own, if it has any, that are not where they start."""
    return randomise(make_basis(name, order, 3, None, **BASIS_OPTIONS.get(name, {})))


def test_every_basis_has_an_oracle() -> None:
    assert set(BASIS_ORACLES) | {"optbasis"} == set(BASES)


@pytest.mark.parametrize("order", [0, 1, 2, 8])
@pytest.mark.parametrize("name", FIXED)
def test_basis_matches_its_closed_form(name: str, order: int) -> None:
    basis = build(name, order)
    expected = torch.from_numpy(BASIS_ORACLES[name](basis, POINTS.numpy(), order))
    with torch.no_grad():
        torch.testing.assert_close(basis.evaluate(POINTS, order), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", FIXED)
def test_basis_needs_no_interval(name: str) -> None:
    """Polynomials hold outside of [-1, 1], too, as for the spectrum of L."""
    points = torch.linspace(-3, 3, 13, dtype=torch.float64)
    basis = build(name, 5)
    expected = torch.from_numpy(BASIS_ORACLES[name](basis, points.numpy(), 5))
    with torch.no_grad():
        torch.testing.assert_close(basis.evaluate(points, 5), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("b", [-0.5, 0.0, 0.75, 2.0])
@pytest.mark.parametrize("a", [-1.0, -0.75, 0.0, 0.25, 2.0])
def test_jacobi_over_the_range_that_is_searched(a: float, b: float) -> None:
    """The published code of JacobiConv has the sign of a^2 - b^2 reversed, which shows wherever a != b."""
    expected = torch.from_numpy(jacobi_values(a, b, POINTS.numpy(), 10))
    values = Jacobi(a=a, b=b).evaluate(POINTS, 10)
    torch.testing.assert_close(values, expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(values[:, -1], _value_at_1(a, 10), rtol=1e-11, atol=1e-11)


def _value_at_1(a: float, order: int) -> Tensor:
    """P_n(1) = binomial(n + a, n)."""
    return torch.tensor([np.prod([(a + i) / i for i in range(1, n + 1)]) for n in range(order + 1)])


def test_jacobi_of_every_replicate() -> None:
    a, b = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([-0.5, 1.5, 2.0])
    values = make_basis("jacobi", 6, 3, 3, a=a, b=b).evaluate(POINTS, 6)
    assert values.shape == (3, 7, 41)
    for i in range(3):
        expected = torch.from_numpy(jacobi_values(float(a[i]), float(b[i]), POINTS.numpy(), 6))
        torch.testing.assert_close(values[i], expected, **TOLERANCE)


def test_favard_of_every_channel_and_replicate() -> None:
    basis = randomise(Favard(6, 3, replicates=2))
    gamma, beta = basis.gamma.detach().numpy(), np.exp(2 * basis.log_q.detach().numpy())
    values = basis.evaluate(POINTS, 6).detach()
    assert values.shape == (2, 3, 7, 41) and basis.channels == 3
    for b in range(2):
        for i in range(3):
            expected = torch.from_numpy(favard_values(gamma[b, i], beta[b, i], POINTS.numpy(), 6))
            # values reach thousands where all q are small
            torch.testing.assert_close(values[b, i], expected, rtol=1e-10, atol=1e-10)


def test_favard_starts_at_chebyshev_polynomials_of_the_second_kind() -> None:
    expected = BASES["chebyshev2"]().evaluate(POINTS, 6)
    torch.testing.assert_close(Favard(6).double().evaluate(POINTS, 6).detach(), expected, rtol=1e-6, atol=1e-6)


def test_bernstein_is_a_partition_of_unity() -> None:
    values = BASES["bernstein"]().evaluate((POINTS + 1) / 2, 7)
    torch.testing.assert_close(values.sum(0), torch.ones(41, dtype=torch.float64))
    assert values.min() >= 0


def test_interpolation_is_a_unit_vector_at_each_node() -> None:
    values = BASES["interpolation"]().evaluate(torch.from_numpy(interpolation_nodes(6)), 6)
    torch.testing.assert_close(values, torch.eye(7, dtype=torch.float64), **TOLERANCE)


# --- in Chebyshev polynomials


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (-1.0, 1.0), (-0.5, 0.5), (-1.13, 0.13), (3.7, -2.2)])
@pytest.mark.parametrize("name", FIXED)
def test_chebyshev_coefficients_reproduce_the_values(name: str, scale: float, shift: float) -> None:
    basis, points = build(name, 7), torch.linspace(-1, 1, 23, dtype=torch.float64) * 0.97
    with torch.no_grad():
        B = basis.to_chebyshev(7, scale, shift)
    values = torch.from_numpy(chebyshev.chebval(points.numpy(), B.movedim(-1, 0).numpy()))
    expected = torch.from_numpy(BASIS_ORACLES[name](basis, (scale * points + shift).numpy(), 7))
    bound = 1e-13 * float(expected.abs().max())  # rounding is relative to the greatest value on the interval
    torch.testing.assert_close(values, expected, rtol=1e-10, atol=max(1e-12, 10 * bound))
    assert B.dtype == torch.float64


@pytest.mark.parametrize("order", [0, 1, 4])
def test_chebyshev_is_its_own_coefficients(order: int) -> None:
    B = BASES["chebyshev"]().to_chebyshev(order)
    torch.testing.assert_close(B, torch.eye(order + 1, dtype=torch.float64), **TOLERANCE)


def test_nodes_are_the_roots_of_the_next_chebyshev_polynomial() -> None:
    nodes, _ = chebyshev_nodes(5)
    torch.testing.assert_close(BASES["chebyshev"]().evaluate(nodes, 6)[6], torch.zeros(6).double(), **TOLERANCE)


def test_favard_has_a_basis_for_every_channel_if_asked() -> None:
    assert SpectralConv(3, 2, 4, basis="favard", basis_options={"channels": True}).basis.gamma.shape == (3, 5)
    assert SpectralConv(3, 2, 4, basis="favard", basis_options={"channels": False}).basis.gamma.shape == (5,)
    assert SpectralConv(3, 2, 4, basis="favard").basis.channels is None


@pytest.mark.parametrize("channels", [None, 2])
def test_gradients_of_a_learnable_basis(channels: int | None) -> None:
    basis = randomise(Favard(3, channels))
    points = torch.linspace(-1, 1, 5, dtype=torch.float64)

    def values(gamma: Tensor, log_q: Tensor) -> Tensor:
        return torch.func.functional_call(Evaluation(basis), {"basis.gamma": gamma, "basis.log_q": log_q}, (points,))

    assert torch.autograd.gradcheck(values, (basis.gamma, basis.log_q))


class Evaluation(torch.nn.Module):
    def __init__(self, basis: Basis) -> None:
        super().__init__()
        self.basis = basis

    def forward(self, points: Tensor) -> Tensor:
        return self.basis.evaluate(points, 3)


@pytest.mark.parametrize("change", ["in place", "another tensor", "dtype", "state"])
def test_coefficients_follow_a_change_of_the_settings(change: str) -> None:
    """B is kept from call to call while nothing changes."""
    basis, other = Jacobi(0.5, 1.5), Jacobi(-0.5, 0.25)
    basis.to_chebyshev(4)
    if change == "in place":
        basis.a.copy_(other.a)
        basis.b.copy_(other.b)
    elif change == "another tensor":
        basis.a, basis.b = other.a, other.b
    elif change == "dtype":
        basis.float()
        basis.a.copy_(other.a)
        basis.b.copy_(other.b)
        basis.to_chebyshev(4)
        basis.double()
    else:
        basis.a.add_(-1.0)
        basis.b.sub_(1.25)
    torch.testing.assert_close(basis.to_chebyshev(4), other.to_chebyshev(4), **TOLERANCE)
    torch.testing.assert_close(basis.to_chebyshev(3), other.to_chebyshev(3), **TOLERANCE)
    torch.testing.assert_close(basis.to_chebyshev(4, -1.0, 1.0), other.to_chebyshev(4, -1.0, 1.0), **TOLERANCE)


class Power(Basis):
    """A user's basis, with a setting that is a plain number."""

    exponent = 1

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        return points ** (self.exponent * torch.arange(order + 1)[:, None] % (order + 1))


def test_coefficients_follow_a_change_of_a_plain_attribute() -> None:
    basis = Power()
    before = basis.to_chebyshev(2)
    basis.exponent = 2
    assert not torch.equal(basis.to_chebyshev(2), before)


# --- the basis of the signals


def operator(name: str = "sym", nodes: int = 9, seed: int = 0) -> tuple[Operator, Tensor]:
    """S = scale t + shift I as an Operator, with a scale and a shift to be noticed, and dense."""
    t = MATRIX_ORACLES["sym"](random_adjacency(nodes, seed))
    return Operator(CSR.from_tensor(t), -0.8, 0.3, name), -0.8 * t + 0.3 * torch.eye(nodes, dtype=torch.float64)


def test_optbasis_terms_are_orthonormal_polynomials_of_the_signals() -> None:
    op, S = operator()
    x = normal(9, 4)
    terms = torch.stack(orthonormal_terms(op, x, 4)[0])
    gram = torch.einsum("kni,lni->ikl", terms, terms)
    torch.testing.assert_close(gram, torch.eye(5).double().expand(4, 5, 5), **TOLERANCE)
    torch.testing.assert_close(
        terms, orthonormalised(S, x, 4), rtol=1e-8, atol=1e-8
    )  # Krylov vectors are ill-conditioned


def test_optbasis_fitted_polynomials_are_those_of_the_terms() -> None:
    op, S = operator()
    x = normal(9, 4)
    fitted = OptBasis(4).fit(op, x, 4)
    assert fitted.channels == 4
    eigenvalues, U = torch.linalg.eigh(S)
    terms = torch.einsum("nm,ikm,lm,li->kni", U, fitted.evaluate(eigenvalues, 4), U, x)
    torch.testing.assert_close(terms, torch.stack(orthonormal_terms(op, x, 4)[0]), rtol=1e-8, atol=1e-8)


def test_optbasis_fits_every_replicate() -> None:
    op, _ = operator()
    x = normal(2, 9, 3)
    both = OptBasis(3).fit(op, x, 3).evaluate(POINTS, 3)
    for b in range(2):
        torch.testing.assert_close(both[b], OptBasis(3).fit(op, x[b], 3).evaluate(POINTS, 3), **TOLERANCE)


def exhausted_signals() -> tuple[Operator, Tensor]:
    """Three nodes in a path, and one alone: no signal has more than three orthonormal terms; channel 1 has only one."""
    t = torch.zeros(4, 4, dtype=torch.float64)
    t[0, 1] = t[1, 0] = t[1, 2] = t[2, 1] = 0.5**0.5
    eigenvector = torch.tensor([0.5, 0.5**0.5, 0.5, 0.0], dtype=torch.float64)
    return Operator(CSR.from_tensor(t), 1.0, 0.0), torch.stack(
        [torch.tensor([1.0, 2.0, 0.5, 0.0]).double(), eigenvector], 1
    )


def test_optbasis_terms_vanish_where_the_signal_is_exhausted() -> None:
    """Beyond the last orthonormal term nothing is left; above all no earlier term may come again."""
    op, x = exhausted_signals()
    terms = torch.stack(orthonormal_terms(op, x, 6)[0])
    gram = torch.einsum("kni,lni->ikl", terms, terms)
    expected = torch.zeros(2, 7, 7, dtype=torch.float64)
    expected[0, :3, :3] = torch.eye(3)
    expected[1, 0, 0] = 1
    torch.testing.assert_close(gram, expected, rtol=0, atol=1e-6)


def test_optbasis_of_a_signal_that_is_zero_is_zero_with_finite_gradients() -> None:
    op, _ = operator()
    x = torch.zeros(9, 2, dtype=torch.float64, requires_grad=True)
    terms = torch.stack(orthonormal_terms(op, x, 3)[0])
    assert torch.equal(terms, torch.zeros_like(terms))
    terms.sum().backward()
    assert x.grad.isfinite().all()


def test_optbasis_has_no_values_without_signals() -> None:
    with pytest.raises(InputError, match=r"no values without a signal: call basis.fit"):
        OptBasis(3).evaluate(POINTS, 3)


# --- errors


def test_unknown_basis_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"basis 'chebishev' is unknown: expected one of .* did you mean 'chebyshev'"):
        SpectralConv(3, 2, 3, basis="chebishev")


def test_unknown_option_of_a_basis_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"option of basis 'favard': 'chanels' is unknown: .* did you mean 'channels'"):
        SpectralConv(3, 2, 3, basis="favard", basis_options={"chanels": True})
    with pytest.raises(InputError, match="option of basis 'monomial': 'a' is unknown"):
        SpectralConv(3, 2, 3, basis="monomial", basis_options={"a": 1.0})


def test_options_that_are_not_the_users_to_set_are_refused() -> None:
    with pytest.raises(InputError, match="option of basis 'favard': 'order' is unknown"):
        SpectralConv(3, 2, 3, basis="favard", basis_options={"order": 5})


def test_options_of_a_ready_basis_are_refused() -> None:
    with pytest.raises(InputError, match=r"basis options \['a'\] were given with a ready basis"):
        SpectralConv(3, 2, 3, basis=Jacobi(), basis_options={"a": 0.5})


@pytest.mark.parametrize(("a", "b"), [(-1.5, 0.0), (0.0, -1.01), (-1.0, -1.0), (float("nan"), 0.0)])
def test_jacobi_parameters_without_polynomials_are_refused(a: float, b: float) -> None:
    with pytest.raises(InputError, match=r"jacobi .* expected a >= -1, b >= -1 and a \+ b > -2"):
        Jacobi(a, b)


def test_a_name_can_be_registered_once() -> None:
    with pytest.raises(ValueError, match="basis name 'jacobi' is taken by Jacobi"):

        class Another(Basis, name="jacobi"):
            pass
