"""What all populations on a graph share: its features, its labels, its matrices."""

from collections.abc import Hashable

import torch
from torch import Tensor

from codesgc.bases import BASES
from codesgc.decompositions.base import PENALTIES
from codesgc.engine import CSR, Operator
from codesgc.graph import Graph
from codesgc.models import SpectralModel
from codesgc.names import names, takes_number
from codesgc.zoo import Config


def shape(config: Config) -> tuple[Hashable, ...]:
    """What replicates of one population have in common; all else about them is numbers.

    >>> shape(Config(options={"a": 0.5, "b": 1.0})) == shape(Config(basis="chebyshev", lr={"default": 0.1}))
    True
    >>> shape(Config(options={"rank": 8})) == shape(Config(options={"rank": 4}))
    False
    """
    known = names(config).options
    sizes = {k: v for k, v in config.options.items() if k in known and not takes_number(known[k].annotation)}
    basis = None if BASES[config.basis].fixed else config.basis
    parts = config.architecture, config.decomposition, config.matrix, config.order, config.bias, config.prior
    return *parts, config.hidden, config.layers, basis, tuple(sorted(sizes.items()))


class Inputs:
    """A graph on a device, each thing made once."""

    def __init__(self, graph: Graph, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> None:
        assert graph.x is not None and graph.y is not None
        self.graph, self.dtype, self.device = graph, dtype, device or torch.device("cpu")
        data = graph.x.detach()  # not to be learned
        x = data if data.layout == torch.strided else CSR.from_tensor(data)
        self.x = x.to(self.device, dtype) if isinstance(x, Tensor) else x.to(dtype).to(self.device)
        self.y = graph.y.clamp_min(0).to(self.device)  # unlabelled nodes are in no part of a split
        self.channels, self.classes = graph.num_features, graph.num_classes
        self._matrices: dict[str, Operator] = {}
        self._kinds: dict[Hashable, Hashable] = {}

    def matrix(self, model: SpectralModel) -> Operator:
        """The graph matrix of a model."""
        name = model.config.matrix
        if name not in self._matrices:
            self._matrices[name] = model.operator(self.graph, self.dtype).to(self.device)
        return self._matrices[name]

    def kind(self, config: Config) -> Hashable:
        """Configurations of one kind may form a population: their shape, and the order in which training computes.

        That order depends on where dropout is 0, and whether a penalty is computed on there being one; neither may
        depend on a neighbour's.
        """
        penalised = tuple(config.options.get(name, 0) > 0 for name in PENALTIES)
        key = shape(config), tuple(sorted((place, rate > 0) for place, rate in config.dropout.items())), penalised
        if key not in self._kinds:
            model = SpectralModel(self.channels, self.classes, config)
            self._kinds[key] = key[0], tuple(model.routes(self.x, self.matrix(model))), penalised
        return self._kinds[key]
