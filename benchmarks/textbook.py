"""Ten models and their training epoch in plain torch, the way published code writes them.

Dense features, `F.dropout` on all of them, `torch.sparse.mm` with a COO matrix, every term of the recurrence kept and
stacked, the terms combined at the end, `nn.Linear`, `torch.optim.Adam` with a group for each factor. CoDeSGC-Tucker
propagates Q R columns. Where published code differs in how it combines the terms, the faster way is taken here.

With the weights of one of the library's models (`copy_weights`) and no dropout, the outputs are the same numbers
(tests/test_benchmarks.py).
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from codesgc import Config, Graph, SpectralModel
from codesgc.models import rates
from codesgc.training.splits import Split


def coo(graph: Graph, self_loops: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
    """D^-1/2 A D^-1/2 as a COO matrix, or the same of A + I; for a graph without weights."""
    nodes = torch.arange(graph.num_nodes)
    edges = torch.cat([graph.edge_index, nodes.expand(2, -1)], 1) if self_loops else graph.edge_index
    degree = torch.bincount(edges[0], minlength=graph.num_nodes).to(dtype)
    root = degree.clamp_min(1).rsqrt()
    values = root[edges[0]] * root[edges[1]]
    return torch.sparse_coo_tensor(edges, values, (graph.num_nodes,) * 2, check_invariants=False).coalesce()


def jacobi(S: Tensor, x: Tensor, order: int, a: float, b: float) -> Tensor:
    """P_0(S) x, ..., P_K(S) x stacked: (N, K+1, columns); equations 19 to 21."""
    terms = [x]
    if order > 0:
        terms.append((a - b) / 2 * x + (a + b + 2) / 2 * torch.sparse.mm(S, x))
    for k in range(2, order + 1):
        c = 2 * k + a + b
        theta = c * (c - 1) / (2 * k * (k + a + b))
        offset = (c - 1) * (a**2 - b**2) / (2 * k * (k + a + b) * (c - 2))
        back = (k + a - 1) * (k + b - 1) * c / (k * (k + a + b) * (c - 2))
        terms.append(theta * torch.sparse.mm(S, terms[-1]) + offset * terms[-1] - back * terms[-2])
    return torch.stack(terms, dim=1)


def powers(S: Tensor, x: Tensor, order: int) -> Tensor:
    """x, S x, ..., S^K x stacked: (N, K+1, columns)."""
    terms = [x]
    for _ in range(order):
        terms.append(torch.sparse.mm(S, terms[-1]))
    return torch.stack(terms, dim=1)


class Textbook(nn.Module):
    """What the models have in common: the encoder of a hybrid one, and dropout by the name of the place."""

    self_loops = False

    def __init__(self, in_channels: int, config: Config) -> None:
        super().__init__()
        self.config, self.order = config, config.order
        self.a, self.b = (float(config.options.get(name, 1.0)) for name in ("a", "b"))
        hybrid = config.architecture == "hybrid"
        self.encoder = nn.Linear(in_channels, config.hidden) if hybrid else None
        self.channels = config.hidden if hybrid else in_channels

    def drop(self, x: Tensor, place: str) -> Tensor:
        rate = self.config.dropout.get(place, self.config.dropout.get("default", 0.0))
        return F.dropout(x, rate, self.training)

    def signals(self, x: Tensor) -> Tensor:
        """Features (N, F) to the signals (N, I) of the convolution."""
        if self.encoder is not None:
            x = F.relu(self.encoder(self.drop(x, "features")))
        return self.drop(x, "input")

    def terms(self, S: Tensor, x: Tensor) -> Tensor:
        return jacobi(S, x, self.order, self.a, self.b)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by the name of their factor."""
        found: dict[str, list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            found.setdefault(name.partition(".")[0], []).append(parameter)
        return found


class CP(Textbook):
    def __init__(self, in_channels: int, classes: int, config: Config) -> None:
        super().__init__(in_channels, config)
        rank = config.options.get("rank", 32)
        self.C = nn.Linear(self.channels, rank)
        self.M = nn.Parameter(torch.empty(self.order + 1, rank))
        self.P = nn.Linear(rank, classes)

    def forward(self, x: Tensor, S: Tensor) -> Tensor:
        h = self.drop(self.C(self.signals(x)), "C")
        z = (self.terms(S, h) * self.M).sum(dim=1)
        return self.P(self.drop(z, "Z"))


class Tucker(Textbook):
    """Tucker2 leaves C out and Tucker1 C and P, and with them their dropouts."""

    def __init__(self, in_channels: int, classes: int, config: Config) -> None:
        super().__init__(in_channels, config)
        p, q, r = (config.options.get(name, 32) for name in ("rank_in", "rank_out", "rank"))
        left_out = {"tucker": "", "tucker2": "C", "tucker1": "CP"}[config.decomposition]
        p = self.channels if "C" in left_out else p
        q = classes if "P" in left_out else q
        self.shape = (q, r)
        self.C = None if "C" in left_out else nn.Linear(self.channels, p)
        self.G = nn.Linear(p, q * r)
        self.M = nn.Parameter(torch.empty(self.order + 1, r))
        self.P = None if "P" in left_out else nn.Linear(q, classes)

    def forward(self, x: Tensor, S: Tensor) -> Tensor:
        t = self.signals(x)
        if self.C is not None:
            t = self.drop(self.C(t), "C")
        h = self.drop(self.G(t), "G")
        terms = self.terms(S, h).unflatten(2, self.shape)  # (N, K+1, Q, R)
        z = torch.einsum("nkqr,kr->nq", terms, self.M)
        return z if self.P is None else self.P(self.drop(z, "Z"))


class JacobiConv(Textbook):
    def __init__(self, in_channels: int, classes: int, config: Config) -> None:
        super().__init__(in_channels, config)
        self.gamma = config.options.get("gamma", 1.0)
        self.W = nn.Linear(self.channels, classes)
        self.beta = nn.Parameter(torch.empty(self.order + 1, classes))
        self.eta = nn.Parameter(torch.empty(self.order))

    def forward(self, x: Tensor, S: Tensor) -> Tensor:
        h = self.drop(self.W(self.signals(x)), "W")
        decay = torch.cat([self.eta.new_ones(1), (self.gamma * torch.tanh(self.eta)).cumprod(0)])
        return (self.terms(S, h) * (self.beta * decay[:, None])).sum(dim=1)


class GPRGNN(Textbook):
    self_loops = True

    def __init__(self, in_channels: int, classes: int, config: Config) -> None:
        super().__init__(in_channels, config)
        self.W = nn.Linear(self.channels, classes)
        self.alpha = nn.Parameter(torch.empty(self.order + 1))

    def terms(self, S: Tensor, x: Tensor) -> Tensor:
        return powers(S, x, self.order)

    def forward(self, x: Tensor, S: Tensor) -> Tensor:
        h = self.drop(self.W(self.signals(x)), "W")
        return (self.terms(S, h) * self.alpha[:, None]).sum(dim=1)


MODELS: dict[str, type[CP] | type[Tucker] | type[JacobiConv] | type[GPRGNN]] = {
    "L-CP": CP,
    "L-Tucker": Tucker,
    "H-CP": CP,
    "JacobiConv": JacobiConv,
    "GPR-GNN": GPRGNN,
    "H-Tucker": Tucker,
    "L-Tucker2": Tucker,
    "H-Tucker2": Tucker,
    "L-Tucker1": Tucker,
    "H-Tucker1": Tucker,
}


@torch.no_grad()
def copy_weights(model: Textbook, source: SpectralModel) -> None:
    """The parameters of one of the library's models, untrained or trained, into the same model written here."""
    conv = dict(source.layers[0].decomposition.named_parameters())
    renamed = {"alpha": "alpha_k"}
    for name, target in model.named_parameters():
        factor, _, kind = name.partition(".")
        if factor == "encoder":
            assert source.encoder is not None
            found: Tensor = source.encoder.b_W if kind == "bias" else source.encoder.W.T
        elif kind == "bias":
            found = conv[f"b_{factor}"].flatten()
        elif kind == "weight":
            # we store maps as (in, out), nn.Linear as (out, in), which is what P (J, R) is already
            found = conv[factor] if factor == "P" else conv[factor].flatten(1).T
        else:
            found = conv[renamed.get(name, name)]
        target.copy_(found)


class Training:
    """One model in training, with everything prepared once that published code prepares once."""

    def __init__(
        self,
        graph: Graph,
        config: Config,
        source: SpectralModel,
        split: Split,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`graph` with its features as they are to be used; `source` gives the weights to start from."""
        assert graph.y is not None
        kind = MODELS[config.model]
        self.x, self.y, self.split = graph.dense_features().to(dtype), graph.y, split
        self.S = coo(graph, kind.self_loops, dtype)
        self.model = kind(self.x.shape[1], graph.num_classes, config).to(dtype)
        copy_weights(self.model, source)
        self.optimizer = torch.optim.Adam(
            [
                {"params": parameters, "lr": lr, "weight_decay": decay}
                for name, parameters in self.model.groups().items()
                for lr, decay in [rates(config, name)]
            ]
        )

    def epoch(self) -> list[float]:
        """One training step, then the accuracies on the three parts with the parameters after it."""
        train = self.split.train
        self.model.train()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.x, self.S)[train], self.y[train])
        loss.backward()
        self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            best = self.model(self.x, self.S).argmax(dim=1)
        parts: Iterable[Tensor] = (self.split.train, self.split.val, self.split.test)
        return [(best[part] == self.y[part]).float().mean().item() for part in parts]
