"""What a decomposition of the coefficient tensor is: its factors, its definition, and the routes to its product."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from codesgc.engine import CSR, SPARSE, STEP, VECTOR, Dropout, Dropouts, Filter, Route, cheapest, lanes, with_ones
from codesgc.errors import InputError, check_options, unknown, whole
from codesgc.memory import check_fits

DECOMPOSITIONS: dict[str, type["Decomposition"]] = {}
PENALTIES = ("ridge", "smoothness")  # options of every decomposition

Rates = Mapping[str, float | Tensor]


def mixing(x: Tensor | CSR, columns: int) -> float:
    """Multiplications at each node for x W, as dense ones; finding an entry's row of W costs as much as a vector."""
    if isinstance(x, CSR):
        return SPARSE * x.nnz / max(x.shape[0], 1) * (lanes(columns) + VECTOR)
    return x.shape[-1] * lanes(columns)


def stacked(bias: Tensor | None, weight: Tensor, axis: int = -2) -> Tensor:
    """The weight with its bias as first row along `axis`: the coefficients of the constant signal, or zeros."""
    row = torch.zeros_like(weight.narrow(axis, 0, 1)) if bias is None else bias.unsqueeze(axis)
    return torch.cat([row, weight], axis)


def add_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """y + 1 b^T: y (..., N, J), b (..., J)."""
    return y if bias is None else y + bias[..., None, :]


def grouped(x: Tensor | CSR) -> Tensor | CSR:
    """x (..., N, I) as one group of signals (..., N, 1, I), as the engine's mixed products take it."""
    return x if isinstance(x, CSR) else x[..., None, :]


class Decomposition(nn.Module, ABC):
    """A factorisation of W (I, J, K+1) in Y = sum_k P_k(S) X W_k (equation 6).

    A subclass names its factors with `add`, defines W by `expand_affine`, and lists its `routes`: the first is the
    algorithm as the paper writes it, with a place for every dropout; the others compute the same numbers in another
    order. The forward pass takes the cheapest (`codesgc.engine.planner`).

    A bias b before the propagation is the coefficient of one more input signal, the constant 1; `expand_affine` gives W
    with that row on top, (I+1, J, K+1), and the bias after the propagation. Factors may have a leading replicate axis.
    """

    name: ClassVar[str]
    dropouts: ClassVar[tuple[str, ...]] = ("input",)
    per_channel: ClassVar[bool] = False  # whether `routes` propagate the signals themselves
    groups: dict[str, list[str]]
    ridge: Tensor
    smoothness: Tensor

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        if name is None:
            return
        if name in DECOMPOSITIONS:
            raise ValueError(f"decomposition {name!r} is taken by {DECOMPOSITIONS[name].__name__}: choose a free name")
        cls.name = name
        DECOMPOSITIONS[name] = cls

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        order: int,
        *,
        bias: bool = True,
        dropout: Rates | None = None,
        replicates: int | None = None,
        ridge: float | Tensor = 0.0,
        smoothness: float | Tensor = 0.0,
    ) -> None:
        super().__init__()
        if replicates is not None:
            replicates = whole("replicates", replicates)
        self.in_channels = whole("in_channels", in_channels)
        self.out_channels = whole("out_channels", out_channels)
        self.order = order = whole("order", order, least=0)
        self.bias, self.replicates = bias, replicates
        self.groups = {}
        self._bounds: dict[str, float] = {}
        for penalty, value in zip(PENALTIES, (ridge, smoothness), strict=True):
            self.setting(penalty, value, lambda t: t >= 0, "a number >= 0")
        self.penalised = [name for name in PENALTIES if bool((getattr(self, name) > 0).any())]
        if not isinstance(dropout, Mapping | None):
            raise TypeError(f"dropout is {dropout!r}: expected rates by place, as {{'input': 0.5}}")
        rates = dict(dropout or {})
        for key in rates:
            if key not in self.dropouts:
                raise unknown(f"dropout of decomposition {self.name!r}:", key, self.dropouts)
        self.drop = Dropouts({key: Dropout(rates.get(key, 0.0), replicates=replicates) for key in self.dropouts})

    def add(self, name: str, *shape: int, fan_in: int = 0, group: str | None = None) -> None:
        """A factor of that shape, uniform in +-1/sqrt(fan_in), or where `initial` says if no fan_in is given.

        Factors of one `group` share a learning rate and a weight decay.
        """
        leading = () if self.replicates is None else (self.replicates,)
        check_fits(f"{name} of decomposition {self.name!r}", *leading, *shape)
        self.register_parameter(name, nn.Parameter(torch.empty(*leading, *shape)))
        self._bounds[name] = fan_in**-0.5 if fan_in else 0.0
        self.groups.setdefault(group or name, []).append(name)
        self._start(name)

    def add_bias(self, name: str, *shape: int, fan_in: int, group: str) -> None:
        """A bias, in the group of its weight; None where the convolution has no biases."""
        if self.bias:
            self.add(name, *shape, fan_in=fan_in, group=group)
        else:
            self.register_parameter(name, None)

    def _start(self, name: str, generator: torch.Generator | None = None) -> None:
        with torch.no_grad():
            factor, bound = self.get_parameter(name), self._bounds[name]
            if bound:  # drawn on the CPU, so that the device makes no difference
                factor.copy_(torch.empty(factor.shape).uniform_(-bound, bound, generator=generator))
            else:
                factor.copy_(self.initial(name))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Start every factor again, and draw new seeds for the dropouts."""
        for name in self._bounds:
            self._start(name, generator)
        for place in self.drop:
            self.drop[place].reset_parameters(generator)

    def initial(self, name: str) -> Tensor:
        """Where a factor that is not drawn starts, for all replicates."""
        return torch.ones_like(self.get_parameter(name))

    def setting(self, name: str, value: float | Tensor, valid: Callable[[Tensor], Tensor], expected: str) -> None:
        """A number that is fixed, one for all replicates or one for each: a buffer in float64."""
        shape = () if self.replicates is None else (self.replicates,)
        try:
            number = torch.as_tensor(value, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"{name} {value!r}: expected {expected}") from None
        if not bool((valid(number) & number.isfinite()).all()):
            raise InputError(f"{name} {value}: expected {expected}")
        if number.shape not in ((), shape):
            raise InputError(f"{name} has shape {tuple(number.shape)}: expected one number, or one a replicate {shape}")
        self.register_buffer(name, number.expand(shape).clone(), persistent=False)

    @abstractmethod
    def expand_affine(self) -> tuple[Tensor, Tensor | None]:
        """W with the constant signal's coefficients as row 0, (..., I+1, J, K+1), and the last bias (..., J)."""

    def expand(self) -> Tensor:
        """The coefficient tensor W (..., I, J, K+1)."""
        return self.expand_affine()[0][..., 1:, :, :]

    def penalty(self) -> Tensor:
        """ridge / 2 |W|^2 + smoothness / 2 sum_k |W_{k+1} - W_k|^2 of each replicate (...,), a term of its loss."""
        W = self.expand()
        total = W.new_zeros(self.ridge.shape)
        for name in self.penalised:
            part = W if name == "ridge" else W.diff(dim=-1)
            total = total + getattr(self, name).to(W) / 2 * part.square().sum((-3, -2, -1))
        return total

    @abstractmethod
    def routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        """Orders of computation that use the factors, for these signals; the paper's first."""

    def expanded_routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        """The product with W written out, from either side: what every decomposition can do, without inner dropout."""
        terms, inputs, outputs = self.order + 1, self.in_channels, self.out_channels

        def coefficients() -> tuple[Tensor | CSR, Tensor, Tensor | None]:
            W, bias = self.expand_affine()
            if self.constant_signal:
                return with_ones(x), W.movedim(-1, -3), bias
            return x, W[..., 1:, :, :].movedim(-1, -3), bias

        def output() -> Tensor:
            signals, W, bias = coefficients()
            return add_bias(op.synthesise(grouped(signals), W)[..., 0, :], bias)

        def input_() -> Tensor:
            signals, W, bias = coefficients()
            dense = signals.to_dense() if isinstance(signals, CSR) else signals
            return add_bias(op.analyse(dense[..., None, :], W)[..., 0, :], bias)

        return [
            Route("expanded, output side", outputs, self.term_by_term(x, outputs), (), output),
            Route("expanded, input side", inputs + self.constant_signal, terms * inputs * lanes(outputs), (), input_),
        ]

    def term_by_term(self, x: Tensor | CSR, columns: int) -> float:
        """Multiplications at each node for x A_k, all k: A_k has so many columns.

        Sparse features are multiplied term by term, and each result passes through the caches.
        """
        terms = self.order + 1
        if isinstance(x, CSR):
            return terms * (mixing(x, columns) + STEP * lanes(columns))
        return mixing(x, terms * columns)

    @property
    def constant_signal(self) -> bool:
        """Whether a bias enters before the propagation."""
        return False

    @property
    def dropping(self) -> list[str]:
        """The places between the factors at which a dropout is active."""
        return [place for place in self.drop if place != "input" and self.drop[place].active]

    def all_routes(self, x: Tensor | CSR, op: Filter) -> list[Route]:
        """Every order of computation that this basis admits."""
        if op.channels is None or self.per_channel:
            return self.routes(x, op) + self.expanded_routes(x, op)
        if self.constant_signal or self.dropping:
            raise InputError(
                f"decomposition {self.name!r} with a basis of its own for every input channel: expected nothing "
                "between the signals and the propagation; pass bias=False and no inner dropout, or take decomposition "
                "'per_input' or 'full'"
            )
        return self.expanded_routes(x, op)

    def plan(self, x: Tensor | CSR, op: Filter) -> Route:
        """The route that the forward pass takes for these signals.

        A population brings together what takes the same one: it must not depend on the rates of neighbours.
        """
        return cheapest(self.all_routes(x, op), op.S, self.order, self.dropping)

    def forward(self, x: Tensor | CSR, op: Filter) -> Tensor:
        """x (..., N, I) or CSR (N, I) -> (..., N, J)."""
        return self.plan(self.drop["input"](x), op).run()

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, order={self.order}, bias={self.bias}"


def make_decomposition(
    decomposition: str, in_channels: int, out_channels: int, order: int, **options: Any
) -> Decomposition:
    """A registered decomposition by its name with its options."""
    if not isinstance(decomposition, str) or decomposition not in DECOMPOSITIONS:
        raise unknown("decomposition", decomposition, DECOMPOSITIONS)
    cls = DECOMPOSITIONS[decomposition]
    check_options(f"decomposition {decomposition!r}", cls, options, ("in_channels", "out_channels", "order"))
    return cls(in_channels, out_channels, order, **options)
