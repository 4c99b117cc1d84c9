"""The paper written out densely: what the tests compare the library with.

Nothing here calls the library's mathematics. Parameters are read from its modules, and everything is made of them again
with dense matrices, closed forms from scipy, an eigendecomposition and einsum.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import scipy.interpolate
import scipy.special
import torch
from torch import Tensor, nn

Array = np.ndarray
# Eigendecompositions of a dozen nodes and polynomials of degree 4 lose a few digits of float64's sixteen.
TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


# --- graphs


def random_adjacency(
    nodes: int = 9, seed: int = 0, *, isolated: int = 1, loops: int = 2, weighted: bool = True
) -> Tensor:
    """A symmetric A >= 0 whose last nodes are isolated and which has self-loops."""
    g = torch.Generator().manual_seed(seed)
    A = (torch.rand(nodes, nodes, generator=g, dtype=torch.float64) < 0.45).double()
    A = A * (torch.rand(nodes, nodes, generator=g, dtype=torch.float64) + 0.2 if weighted else 1.0)
    A = A.triu(1) + A.triu(1).T
    A[0, 1] = A[1, 0] = 1.0  # at least one edge
    for node in range(loops):
        A[node + 1, node + 1] = 0.5 + node if weighted else 1.0
    if isolated:
        A[nodes - isolated :] = 0
        A[:, nodes - isolated :] = 0
    return A


def edges_of(A: Tensor) -> tuple[Tensor, Tensor]:
    """(edge_index, edge_weight) of the entries of A that are not 0."""
    edge_index = A.nonzero().T.contiguous()
    return edge_index, A[edge_index[0], edge_index[1]]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sparse_features(nodes: int, channels: int, seed: int = 0) -> Tensor:
    """Dense, half zeros, with an empty row."""
    x = normal(nodes, channels, seed=seed)
    x[x.abs() < 0.6] = 0
    x[2] = 0
    return x


def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    """Every parameter drawn anew, in float64 and bounded away from 0, where ReLU and absolute values have kinks."""
    module.double()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            draw = torch.rand(parameter.shape, generator=g, dtype=torch.float64) + 0.2
            sign = torch.randint(2, parameter.shape, generator=g) * 2 - 1
            parameter.copy_(draw * sign)
    return module


# --- graph matrices, from their definitions in the paper's section 2


def _normalised(A: Tensor) -> Tensor:
    degree = A.sum(1)
    root = torch.zeros_like(degree)
    root[degree > 0] = degree[degree > 0] ** -0.5
    return torch.diag(root) @ A @ torch.diag(root)


def _laplacian(A: Tensor) -> Tensor:
    return torch.eye(len(A), dtype=A.dtype) - _normalised(A)


def _scaled_laplacian(A: Tensor) -> Tensor:
    L = _laplacian(A)
    return 2 * L / torch.linalg.eigvalsh(L)[-1] - torch.eye(len(A), dtype=A.dtype)


MATRIX_ORACLES: dict[str, Callable[[Tensor], Tensor]] = {
    "sym": _normalised,
    "gcn": lambda A: _normalised(A + torch.eye(len(A), dtype=A.dtype)),
    "laplacian": _laplacian,
    "half_laplacian": lambda A: _laplacian(A) / 2,
    "shifted_laplacian": lambda A: _laplacian(A) - torch.eye(len(A), dtype=A.dtype),
    "scaled_laplacian": _scaled_laplacian,
    "custom": lambda A: A,
}


# --- bases: values (K+1, n), or (I, K+1, n) where every channel has its own


def _binomial(top: float, bottom: int) -> float:
    """Generalised: top may be any real number."""
    return math.prod((top - i) / (i + 1) for i in range(bottom))


def jacobi_values(a: float, b: float, points: Array, order: int) -> Array:
    """The explicit sum, which knows nothing of the recurrence (Szegő, 4.3.2)."""
    return np.stack(
        [
            sum(
                _binomial(n + a, n - s) * _binomial(n + b, s) * ((points - 1) / 2) ** s * ((points + 1) / 2) ** (n - s)
                for s in range(n + 1)
            )
            for n in range(order + 1)
        ]
    )


def favard_values(gamma: Array, beta: Array, points: Array, order: int) -> Array:
    """Equations 28 and 29, one channel."""
    P = [np.ones_like(points) / np.sqrt(beta[0])]
    if order >= 1:
        P.append((points - gamma[0]) * P[0] / np.sqrt(beta[1]))
    for k in range(2, order + 1):
        P.append(((points - gamma[k - 1]) * P[k - 1] - np.sqrt(beta[k - 1]) * P[k - 2]) / np.sqrt(beta[k]))
    return np.stack(P)


def interpolation_nodes(order: int) -> Array:
    return np.cos((np.arange(order + 1) + 0.5) / (order + 1) * np.pi)


def _lagrange(points: Array, order: int) -> Array:
    x = interpolation_nodes(order)
    return np.stack(
        [
            np.prod([(points - x[m]) / (x[node] - x[m]) for m in range(order + 1) if m != node] or [points**0], axis=0)
            for node in range(order + 1)
        ]
    )


def _favard(basis: nn.Module, points: Array, order: int) -> Array:
    gamma, beta = basis.gamma.detach().numpy(), np.exp(basis.log_q.detach().numpy()) ** 2
    if gamma.ndim == 1:
        return favard_values(gamma, beta, points, order)
    return np.stack([favard_values(g, b, points, order) for g, b in zip(gamma, beta, strict=True)])


def _degrees(function: Callable[[int, Array], Array]) -> Callable[[nn.Module, Array, int], Array]:
    return lambda basis, points, order: np.stack([function(k, points) for k in range(order + 1)])


BASIS_ORACLES: dict[str, Callable[[nn.Module, Array, int], Array]] = {
    "chebyshev": _degrees(scipy.special.eval_chebyt),
    "chebyshev2": _degrees(scipy.special.eval_chebyu),
    "legendre": _degrees(scipy.special.eval_legendre),
    "monomial": _degrees(lambda k, points: points**k),
    "jacobi": lambda basis, points, order: jacobi_values(float(basis.a), float(basis.b), points, order),
    "bernstein": lambda basis, points, order: (
        scipy.interpolate.BPoly(np.eye(order + 1)[:, None, :], [0.0, 1.0])(points).T
    ),
    "interpolation": lambda basis, points, order: _lagrange(points, order),
    "favard": _favard,
    # "optbasis" has no values without signals: see `orthonormalised` and `terms`
}

# How each basis is made for a convolution: options that tell rival formulas apart.
BASIS_OPTIONS: dict[str, dict[str, object]] = {"jacobi": {"a": 0.75, "b": -0.25}}
# names of the registry, and Favard with a basis for every input channel
BASIS_CASES = (*BASIS_ORACLES, "optbasis", "favard, channels")
PER_CHANNEL = ("optbasis", "favard, channels")


def orthonormalised(S: Tensor, x: Tensor, order: int) -> Tensor:
    """The orthonormal polynomials of each channel times it, (K+1, N, I): Gram-Schmidt on x, S x, S^2 x, ... by QR."""
    columns = []
    for i in range(x.shape[1]):
        krylov = torch.stack([torch.linalg.matrix_power(S, k) @ x[:, i] for k in range(order + 1)], 1)
        Q, R = torch.linalg.qr(krylov)
        columns.append(Q * R.diagonal().sign())
    return torch.stack(columns, -1).permute(1, 0, 2)


def terms(basis: nn.Module, name: str, S: Tensor, x: Tensor, order: int) -> Tensor:
    """P_k(S) x_i for all k and channels, (K+1, N, I), from an eigendecomposition of S."""
    if name == "optbasis":
        return orthonormalised(S, x, order)
    eigenvalues, U = torch.linalg.eigh(S)
    values = torch.from_numpy(BASIS_ORACLES[name](basis, eigenvalues.numpy(), order))
    if values.dim() == 2:
        return torch.einsum("nm,km,lm,li->kni", U, values, U, x)
    return torch.einsum("nm,ikm,lm,li->kni", U, values, U, x)


def equation_6(terms: Tensor, W: Tensor) -> Tensor:
    """Y = sum_k P_k(S) X W_k from P_k(S) X (K+1, N, I) and W (I, J, K+1)."""
    return torch.einsum("kni,ijk->nj", terms, W)


# --- decompositions: W from the factors, as the paper writes each


def _powers(d: nn.Module) -> Array:
    return np.arange(d.order + 1)


def _pagerank(alpha: float, order: int) -> Tensor:
    return torch.tensor([(1 - alpha) ** k * alpha ** (1 - (k == order)) for k in range(order + 1)], dtype=torch.float64)


def _s2gc(alpha: float, order: int) -> Tensor:
    return torch.tensor([alpha] + [(1 - alpha) / order] * order, dtype=torch.float64)


def _one(at: int, order: int) -> Tensor:
    return torch.tensor([1.0 * (k == at) for k in range(order + 1)], dtype=torch.float64)


def _chebnet2(gamma: Tensor, order: int) -> Tensor:
    """alpha_k = 2 / (K+1) sum_l gamma_l T_k(x_l), the term k = 0 halved."""
    T = torch.from_numpy(np.stack([scipy.special.eval_chebyt(k, interpolation_nodes(order)) for k in range(order + 1)]))
    alpha = 2 / (order + 1) * (T @ gamma)
    alpha[0] /= 2
    return alpha


def _jacobiconv(beta: Tensor, eta: Tensor, bound: float, order: int) -> Tensor:
    """alpha_kj = beta_kj prod_{l=1..k} gamma' tanh(eta_l)."""
    decay = [math.prod(bound * math.tanh(float(e)) for e in eta[:k]) for k in range(order + 1)]
    return beta * torch.tensor(decay, dtype=torch.float64)[:, None]


SHARED_ALPHA: dict[str, Callable[[nn.Module], Tensor]] = {
    "gcn": lambda d: _one(1, d.order),
    "sgc": lambda d: _one(d.order, d.order),
    "s2gc": lambda d: _s2gc(float(d.restart), d.order),
    "appnp": lambda d: _pagerank(float(d.restart), d.order),
    "gpr": lambda d: d.alpha_k.detach(),
    "nonnegative": lambda d: d.theta.detach().clamp(min=0),
    "interpolated": lambda d: _chebnet2(d.gamma.detach(), d.order),
}


def _shared(d: nn.Module) -> Tensor:
    return torch.einsum("ij,k->ijk", d.W, SHARED_ALPHA[d.name](d))


W_ORACLES: dict[str, Callable[[nn.Module], Tensor]] = {
    "full": lambda d: torch.einsum("kij->ijk", d.W),
    "cp": lambda d: torch.einsum("ir,jr,kr->ijk", d.C, d.P, d.M),
    "tucker": lambda d: torch.einsum("pqr,ip,jq,kr->ijk", d.G, d.C, d.P, d.M),
    "tucker2": lambda d: torch.einsum("iqr,jq,kr->ijk", d.G, d.P, d.M),
    "tucker2_cm": lambda d: torch.einsum("pjr,ip,kr->ijk", d.G, d.C, d.M),
    "tucker2_cp": lambda d: torch.einsum("pqk,ip,jq->ijk", d.G, d.C, d.P),
    "tucker1": lambda d: torch.einsum("ijr,kr->ijk", d.G, d.M),
    "tucker1_p": lambda d: torch.einsum("iqk,jq->ijk", d.G, d.P),
    "tucker1_c": lambda d: torch.einsum("pjk,ip->ijk", d.G, d.C),
    "per_output": lambda d: torch.einsum("ij,kj->ijk", d.W, d.beta),
    "per_output_bounded": lambda d: torch.einsum(
        "ij,kj->ijk", d.W, _jacobiconv(d.beta.detach(), d.eta.detach(), float(d.bound), d.order)
    ),
    "per_input": lambda d: torch.einsum("ij,ki->ijk", d.W, d.alpha),
    **dict.fromkeys(SHARED_ALPHA, _shared),
}


# --- decompositions: Y from the factors and the biases, as the paper's algorithms run; propagate(k, H) is P_k(S) H


Propagate = Callable[[int, Tensor], Tensor]


def _plus(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + torch.ones(len(y), 1, dtype=y.dtype) @ bias[None, :]


def _algorithm_1(d: nn.Module, x: Tensor, propagate: Propagate) -> Tensor:
    H = _plus(x @ d.C, d.b_C)
    Z = torch.zeros_like(H)
    for k in range(d.order + 1):
        Z = Z + propagate(k, H) @ torch.diag(d.M[k])
    return _plus(Z @ d.P.T, d.b_P)


def _algorithm_2(d: nn.Module, x: Tensor, propagate: Propagate) -> Tensor:
    """With identities in place of the factors that a Tucker2 or Tucker1 does not have."""
    P, Q, R = d.G.shape
    T = x if d.C is None else _plus(x @ d.C, d.b_C)
    M = torch.eye(d.order + 1, dtype=x.dtype) if d.M is None else d.M
    unfolded = d.G.reshape(P, Q * R)  # G_(1)
    H = _plus(T @ unfolded, None if d.b_G is None else d.b_G.reshape(Q * R))
    Z = torch.zeros(len(x), Q, dtype=x.dtype)
    for k in range(d.order + 1):
        V = propagate(k, H).reshape(len(x), Q, R)
        Z = Z + torch.einsum("nqr,r->nq", V, M[k])
    return Z if d.P is None else _plus(Z @ d.P.T, d.b_P)


def _full(d: nn.Module, x: Tensor, propagate: Propagate) -> Tensor:
    return _plus(sum(propagate(k, x) @ d.W[k] for k in range(d.order + 1)), d.b_W)


def _per_output(d: nn.Module, x: Tensor, propagate: Propagate) -> Tensor:
    """Equation 11, after the linear layer with its bias."""
    bounded = d.name == "per_output_bounded"
    alpha = _jacobiconv(d.beta.detach(), d.eta.detach(), float(d.bound), d.order) if bounded else d.beta
    H = _plus(x @ d.W, d.b_W)
    return sum(propagate(k, H) * alpha[k] for k in range(d.order + 1))


def _per_input(d: nn.Module, x: Tensor, propagate: Propagate) -> Tensor:
    """Equation 30; the prediction head has the bias."""
    return _plus(sum(propagate(k, x) * d.alpha[k] for k in range(d.order + 1)) @ d.W, d.b_W)


def _shared_before(d: nn.Module, x: Tensor, propagate: Propagate) -> Tensor:
    """Equation 9: f_theta with its bias, then the propagation."""
    alpha, H = SHARED_ALPHA[d.name](d), _plus(x @ d.W, d.b_W)
    return sum(alpha[k] * propagate(k, H) for k in range(d.order + 1))


def _shared_after(d: nn.Module, x: Tensor, propagate: Propagate) -> Tensor:
    """GCN, SGC, S2GC: the propagation, then a linear layer with its bias."""
    alpha = SHARED_ALPHA[d.name](d)
    return _plus(sum(alpha[k] * propagate(k, x @ d.W) for k in range(d.order + 1)), d.b_W)


ALGORITHMS: dict[str, Callable[[nn.Module, Tensor, Propagate], Tensor]] = {
    "full": _full,
    "cp": _algorithm_1,
    **dict.fromkeys(
        ("tucker", "tucker2", "tucker2_cm", "tucker2_cp", "tucker1", "tucker1_p", "tucker1_c"), _algorithm_2
    ),
    "per_output": _per_output,
    "per_output_bounded": _per_output,
    "per_input": _per_input,
    **dict.fromkeys(("gcn", "sgc", "s2gc"), _shared_after),
    **dict.fromkeys(("appnp", "gpr", "nonnegative", "interpolated"), _shared_before),
}

# Options that keep the factors of different sizes, so that an exchange of axes cannot go unnoticed.
DECOMPOSITION_OPTIONS: dict[str, dict[str, object]] = {
    "cp": {"rank": 4},
    "tucker": {"rank_in": 4, "rank_out": 3, "rank": 2},
    "tucker2": {"rank_out": 3, "rank": 2},
    "tucker2_cm": {"rank_in": 4, "rank": 2},
    "tucker2_cp": {"rank_in": 4, "rank_out": 3},
    "tucker1": {"rank": 2},
    "tucker1_p": {"rank_out": 3},
    "tucker1_c": {"rank_in": 4},
    "s2gc": {"alpha": 0.3},
    "appnp": {"alpha": 0.3},
    "gpr": {"alpha": 0.3},
    "per_output_bounded": {"gamma": 1.5},
}


# --- what autograd keeps


@contextmanager
def saved_tensors(rows: int) -> Iterator[list[Tensor]]:
    """Tensors with an axis of `rows` that are saved for a backward pass within the block."""
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if rows in tensor.shape:
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept
