"""What a polynomial basis is: its values."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from codesgc.engine import Filter, Operator
from codesgc.errors import InputError, check_options, unknown
from codesgc.memory import check_fits

BASES: dict[str, type["Basis"]] = {}
ROUNDING = 1e-14  # what a coefficient of exactly 0 comes out as, relative to the greatest: T_k have one each


def chebyshev_nodes(order: int) -> tuple[Tensor, Tensor]:
    """The K+1 nodes t_j = cos(pi (j + 1/2) / (K+1)), and the matrix from values there to Chebyshev coefficients.

    A polynomial of degree <= K with the values f(t_j) is sum_l c_l T_l with c = f C,
    C[j, l] = (2 - delta_l0) / (K+1) cos(l pi (j + 1/2) / (K+1)).
    """
    angles = torch.pi * (torch.arange(order + 1, dtype=torch.float64) + 0.5) / (order + 1)
    cosines = torch.cos(angles[:, None] * torch.arange(order + 1, dtype=torch.float64)) * (2 / (order + 1))
    cosines[:, 0] /= 2
    return torch.cos(angles), cosines


def three_term(order: int, first: Tensor, step: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
    """P_0 = first and P_k = step(k, P_{k-1}, P_{k-2}), stacked on the axis before the points: (..., K+1, n).

    `step` is called for k = 1 with P_{-1} = 0.
    """
    terms = [torch.zeros_like(first), first]
    for k in range(1, order + 1):
        terms.append(step(k, terms[-1], terms[-2]))
    return torch.stack(torch.broadcast_tensors(*terms[1:]), dim=-2)


class Basis(nn.Module, ABC):
    """Polynomials P_0, ..., P_K, known to the engine only by their values.

    `evaluate` is the whole contract. The matrix S = scale t + shift I has its t in [-1, 1], and a polynomial of degree
    K is fixed by its values at K+1 points, so that

        P_k(S) = sum_l B[k, l] T_l(t),    B = P(scale t_j + shift) C        (`chebyshev_nodes`)

    and every basis runs on one recurrence. The coefficients that the engine receives are B^T W. All in float64.

    `channels` is None where all input channels share the polynomials, and their number where each has its own. A basis
    that is a function of its buffers alone says so by `fixed`, and its B is computed once.
    """

    name: ClassVar[str]
    fixed: ClassVar[bool] = False
    reserved: ClassVar[tuple[str, ...]] = ("order", "replicates")  # constructor arguments that the convolution gives
    channels: int | None = None
    _last: tuple[tuple[float, ...], list[Tensor], Tensor] | None = None

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        if name is None:
            return
        if name in BASES:
            raise ValueError(f"basis name {name!r} is taken by {BASES[name].__name__}: choose a free name")
        cls.name = name
        BASES[name] = cls

    @classmethod
    def build(cls, order: int, channels: int, replicates: int | None, /, **options: Any) -> "Basis":
        """An instance for a convolution of that order on that many input channels; most bases need to know neither."""
        return cls(**options)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Start again; most bases have nothing to learn."""

    @abstractmethod
    def evaluate(self, points: Tensor, order: int) -> Tensor:
        """Values P_0(points), ..., P_K(points), K = order: (n,) -> (..., K+1, n); also the frequency response.

        Leading axes are replicates, then channels where `channels` is a number.
        """

    def to_chebyshev(self, order: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
        """B (..., K+1, K+1) with P_k(scale t + shift) = sum_l B[k, l] T_l(t)."""
        buffers = list(self.buffers())
        key = (order, scale, shift, *(buffer._version for buffer in buffers))
        if self._last is not None and self._last[0] == key and all(map(operator.is_, self._last[1], buffers)):
            return self._last[2]
        check_fits(f"the change of basis of order {order}", order + 1, order + 1, size=8)
        nodes, cosines = chebyshev_nodes(order)
        B = self.evaluate(scale * nodes + shift, order) @ cosines
        if self.fixed:
            B = torch.where(B.abs() < ROUNDING * B.abs().amax((-2, -1), keepdim=True), 0.0, B)
        self._last = (key, buffers, B) if self.fixed else None
        return B

    def on(self, S: Operator, order: int) -> Filter:
        """The engine's products in this basis on this matrix."""
        return Filter(S, self.to_chebyshev(order, S.scale, S.shift).to(S.t.device), self.channels)


class Tabulated(Basis):
    """Polynomials given by their Chebyshev coefficients on matrices S = scale t + shift I: B (..., K+1, K+1).

        P_k(s) = sum_l B[k, l] T_l((s - shift) / scale)

    Any fixed basis can be written so; replicates with different bases then differ in one tensor, with B as its buffer.

    >>> flat = Tabulated(torch.eye(3), scale=2.0, shift=1.0)
    >>> flat.evaluate(torch.tensor([1.0, 3.0]), order=2).tolist()
    [[1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]]
    """

    B: Tensor

    def __init__(self, B: Tensor, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift
        self.register_buffer("B", B)

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        t = (points - self.shift) / self.scale
        terms = three_term(order, torch.ones_like(t), lambda k, p, q: (2 if k > 1 else 1) * t * p - q)
        return self.B.to(points) @ terms

    def on(self, S: Operator, order: int) -> Filter:
        return Filter(S, self.B)


def make_basis(basis: str | Basis, order: int, channels: int, replicates: int | None, /, **options: Any) -> Basis:
    """A registered basis by its name with its options, or the one given."""
    if isinstance(basis, Basis):
        if options:
            raise InputError(f"basis options {sorted(options)} were given with a ready basis: set them on the basis")
        return basis
    if not isinstance(basis, str) or basis not in BASES:
        raise unknown("basis", basis, BASES)
    cls = BASES[basis]
    check_options(f"basis {basis!r}", cls, options, cls.reserved)
    return cls.build(order, channels, replicates, **options)
