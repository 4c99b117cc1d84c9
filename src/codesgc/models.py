"""Whole networks: linear, hybrid and multi-layer ones, for any decomposition, and the zoo by name."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from codesgc.conv import SpectralConv, signals
from codesgc.engine import CSR, Dropout, Operator, linear
from codesgc.errors import whole
from codesgc.graph import Graph
from codesgc.memory import check_fits
from codesgc.names import check_names, fitted
from codesgc.zoo import Config, find_model


class Encoder(nn.Module):
    """X = ReLU(dropout(F) W + 1 b^T): features to the signals of a hybrid model."""

    def __init__(
        self, in_channels: int, out_channels: int, rate: float | Tensor = 0.0, *, replicates: int | None = None
    ) -> None:
        super().__init__()
        leading = () if replicates is None else (whole("replicates", replicates),)
        check_fits("the encoder's W", *leading, in_channels, out_channels)
        self.W = nn.Parameter(torch.empty(*leading, in_channels, out_channels))
        self.b_W = nn.Parameter(torch.empty(*leading, out_channels))
        self.drop = Dropout(rate, replicates=replicates)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Uniform in +-1/sqrt(in_channels)."""
        bound = self.W.shape[-2] ** -0.5
        with torch.no_grad():
            for parameter in (self.W, self.b_W):
                parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
        self.drop.reset_parameters(generator)

    def forward(self, features: Tensor | CSR) -> Tensor:
        return linear(self.drop(features), self.W, self.b_W).relu()


class SpectralModel(nn.Module):
    """A stack of spectral convolutions as a `Config` describes it: features of the nodes in, one score a class out.

        linear         conv(F)
        hybrid         conv(ReLU(F W' + 1 b'^T))
        multi-layer    conv(ReLU(conv(... F)))          `layers` convolutions

    >>> model = build_model("H-CP", 4, 2, order=3, rank=5)
    >>> model(torch.ones(3, 4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
    torch.Size([3, 2])
    """

    def __init__(self, in_channels: int, out_channels: int, config: Config, *, replicates: int | None = None) -> None:
        super().__init__()
        known = check_names(config)
        for label, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            whole(label, channels)
        self.config, self.replicates, self.in_channels = config, replicates, in_channels
        self.encoder: Encoder | None = None
        widths = [in_channels, out_channels]
        if config.architecture == "hybrid":
            rate = _entry(config.dropout, "features", 0.0)
            self.encoder = Encoder(in_channels, config.hidden, rate, replicates=replicates)
            widths = [config.hidden, out_channels]
        elif config.architecture == "multi-layer":
            widths = [in_channels, *[config.hidden] * (config.layers - 1), out_channels]
        self.convs = nn.ModuleList(
            SpectralConv(
                i,
                j,
                config.order,
                basis=config.basis,
                matrix=config.matrix,
                decomposition=config.decomposition,
                basis_options={name: value for name, value in config.options.items() if name in known.basis},
                bias=config.bias,
                dropout={place: _entry(config.dropout, place, 0.0) for place in known.dropout if place != "features"},
                replicates=replicates,
                **{name: value for name, value in config.options.items() if name not in known.basis},
            )
            for i, j in pairwise(widths)
        )

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters and the dropouts' seeds again."""
        if self.encoder is not None:
            self.encoder.reset_parameters(generator)
        for conv in self.layers:
            conv.reset_parameters(generator)

    @property
    def layers(self) -> list[SpectralConv]:
        """The convolutions, in order."""
        return [conv for conv in self.convs if isinstance(conv, SpectralConv)]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by the name that `lr` and `weight_decay` know them by: a factor with its bias, over all layers."""
        groups: dict[str, list[nn.Parameter]] = {}
        for conv in self.layers:
            for group, names in conv.decomposition.groups.items():
                groups.setdefault(group, []).extend(conv.decomposition.get_parameter(name) for name in names)
            groups.setdefault("basis", []).extend(conv.basis.parameters())
        if self.encoder is not None:
            groups["encoder"] = list(self.encoder.parameters())
        return {name: parameters for name, parameters in groups.items() if parameters}

    def operator(self, graph: Graph, dtype: torch.dtype | None = None) -> Operator:
        """The model's matrix of the graph, to be passed in place of the edges."""
        S: Operator = self.layers[0].matrix(graph, dtype=dtype)
        return S

    def routes(self, x: Tensor | CSR, S: Operator) -> list[str]:
        """The planner's choice for each convolution in this mode, for features (..., N, I)."""
        between = (torch.empty(*x.shape[:-1], conv.in_channels, device="meta") for conv in self.layers)
        first = next(between)
        entering = [x if self.encoder is None else first, *between]
        return [
            conv.decomposition.plan(signals, conv.basis.on(S, conv.order)).name
            for conv, signals in zip(self.layers, entering, strict=True)
        ]

    def forward(
        self, x: Tensor | CSR, edge_index: Tensor | Graph | Operator, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Features (..., N, I), dense or sparse, to scores (..., N, classes)."""
        x = signals(x, self.in_channels)
        first, *rest = self.layers
        S = first.matrix(edge_index, edge_weight, x.shape[-2], x.dtype)
        h: Tensor = first(x if self.encoder is None else self.encoder(x), S)
        for conv in rest:
            h = conv(h.relu(), S)
        return h

    def extra_repr(self) -> str:
        return repr(self.config)


def _entry(numbers: Mapping[str, float], name: str, otherwise: float) -> float:
    return numbers.get(name, numbers.get("default", otherwise))


def build_model(
    name: str | Config, in_channels: int, out_channels: int, *, replicates: int | None = None, **changes: Any
) -> SpectralModel:
    """A model of the zoo by its name, or one of your own by its `Config`, with some choices changed.

    `changes` are fields of `Config` or options of the model's basis and decomposition. What belonged to a part that is
    exchanged goes with it.

    >>> build_model("L-CP", 1433, 7, order=5, rank=16, basis="chebyshev", dropout={"input": 0.5}).config
    Config(basis='chebyshev', order=5, options={'rank': 16}, dropout={'input': 0.5}, weight_decay={'default': 0.0001})
    """
    config = name if isinstance(name, Config) else find_model(name)
    return SpectralModel(in_channels, out_channels, fitted(config.updated(changes), changes), replicates=replicates)


def rates(config: Config, group: str) -> tuple[float, float]:
    """Learning rate and weight decay of a group of parameters."""
    return _entry(config.lr, group, 0.01), _entry(config.weight_decay, group, 0.0)
