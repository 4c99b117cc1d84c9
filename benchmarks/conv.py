"""One convolution layer, forward and backward, against the layer of PyTorch Geometric that computes the same.

Features are data and need no gradient; all weights get one. Both layers have the same weights, and outputs and
gradients are compared before anything is timed. The library's layer gets sparse features and an operator built once.
PyG's layers get dense features, `cached=True` where they have it, and the faster of the forms in which they take edges.

    python benchmarks/conv.py --datasets cora --layers APPNP SSGConv
"""

import statistics
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence

import torch
from common import Report, Row, interleaved, normalised, parse, parser, ratios, spread, summary, timed
from textbook import coo
from torch import Tensor, nn

from codesgc import MATRICES, Graph, SpectralConv
from codesgc.engine import CSR

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # torch_geometric uses torch.jit.script when it is imported
    import torch_geometric
    from torch_geometric.nn import APPNP, ChebConv, SSGConv

ORDER, COLUMNS, ALPHA = 10, 64, 0.1
LAYERS = ("ChebConv", "APPNP", "SSGConv")
UNCACHED = "SSGConv-uncached"  # propagates all input channels at every step: slow, and so only measured when named


class LinearAPPNP(nn.Module):
    """PyG's APPNP is the propagation alone; here with the linear layer before it."""

    def __init__(self, in_channels: int, out_channels: int, normalize: bool) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)
        self.propagation = APPNP(ORDER, ALPHA, cached=True, normalize=normalize)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.propagation(self.lin(x), edges)


def our_layer(name: str, channels: int) -> SpectralConv:
    """The library's layer that computes what PyG's does."""
    if name == "ChebConv":
        scaled = MATRICES["scaled_laplacian"](lambda_max=2.0)  # PyG's default where edges have no weights
        return SpectralConv(channels, COLUMNS, ORDER, basis="chebyshev", matrix=scaled, decomposition="full")
    kind = "appnp" if name == "APPNP" else "s2gc"
    return SpectralConv(channels, COLUMNS, ORDER, basis="monomial", matrix="gcn", decomposition=kind, alpha=ALPHA)


def pyg_layer(name: str, edges: Tensor, ours: SpectralConv) -> nn.Module:
    """PyG's layer for edges in that form, with the weights of ours."""
    channels = ours.in_channels
    if name == "ChebConv":
        layer: nn.Module = ChebConv(channels, COLUMNS, ORDER + 1)
    elif name == "APPNP":
        layer = LinearAPPNP(channels, COLUMNS, normalize=edges.layout == torch.strided)
    else:
        layer = SSGConv(channels, COLUMNS, ALPHA, ORDER, cached=name != UNCACHED)
    with torch.no_grad():
        for target, source in zip(tensors(layer), tensors(ours), strict=True):
            target.copy_(source)
    return layer


def tensors(layer: nn.Module, gradients: bool = False) -> list[Tensor]:
    """Weights, or their gradients, in one order and shape for ours and PyG's: the matrices (J, I), then the bias."""
    read: Callable[[Tensor], Tensor] = (lambda p: p.grad) if gradients else (lambda p: p.detach())
    if isinstance(layer, SpectralConv):
        W, bias = (read(layer.decomposition.get_parameter(name)) for name in ("W", "b_W"))
        return [*(w.T for w in W.reshape(-1, *W.shape[-2:])), bias]
    if isinstance(layer, ChebConv):
        return [*(read(lin.weight) for lin in layer.lins), read(layer.bias)]
    return [read(layer.lin.weight), read(layer.lin.bias)]


def step(layer: nn.Module, x: Tensor | CSR, edges: object, dy: Tensor) -> Callable[[], Tensor]:
    """Forward, and backward from the gradient dy of the output."""

    def call() -> Tensor:
        layer.zero_grad()
        y: Tensor = layer(x, edges)
        y.backward(dy)
        return y.detach()

    return call


def edge_forms(name: str, graph: Graph) -> dict[str, Tensor]:
    """The edges in the forms in which PyG's layer is fast: as they are, or as a normalised matrix."""
    forms = {"edge_index": graph.edge_index}
    if name == "APPNP":  # of the others, one takes no matrix, the other does not come back to the edges
        forms["CSR"] = coo(graph, self_loops=True).to_sparse_csr()
    return forms


def check(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest number; an error where the two do not compute the same."""
    worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))
    if not worst < 1e-3:
        raise AssertionError(f"the layers differ by {worst:.2g} of their largest number: they do not compute the same")
    return worst


def rows(args: Namespace) -> Iterator[Row]:
    for dataset in args.datasets:
        graph = normalised(dataset)
        dense, sparse = graph.dense_features(), CSR.from_tensor(graph.x)
        dy = torch.randn(graph.num_nodes, COLUMNS, generator=torch.Generator().manual_seed(0))
        for name in args.layers:
            layer = our_layer(name, graph.num_features)
            ours = step(layer, sparse, layer.matrix(graph), dy)
            expected = [ours(), *tensors(layer, gradients=True)]
            trials, differences = {}, []
            for form, edges in edge_forms(name, graph).items():
                other = pyg_layer(name, edges, layer)
                trials[form] = step(other, dense, edges, dy)
                differences.append(check(expected, [trials[form](), *tensors(other, gradients=True)]))
            form = min(trials, key=lambda form: timed(trials[form])) if len(trials) > 1 else next(iter(trials))
            taken = interleaved({"pyg": trials[form], "ours": ours}, args.rounds, budget=args.budget)
            yield {
                "dataset": dataset,
                "layer": name,
                "sizes": [graph.num_features, COLUMNS],
                "edges": form,
                "difference": max(differences),
                **taken,
                "ratio": ratios(taken["pyg"], taken["ours"]),
            }


def last(found: list[Row]) -> str:
    names = dict.fromkeys(row["layer"] for row in found)
    return summary(
        {n: [(row["dataset"], statistics.median(row["ratio"])) for row in found if row["layer"] == n] for n in names}
    )


def main(argv: Sequence[str] | None = None) -> None:
    options = parser(__doc__, ("cora", "squirrel", "computers"), rounds=5)
    options.add_argument("--layers", nargs="+", default=list(LAYERS), choices=(*LAYERS, UNCACHED), metavar="NAME")
    args = parse(options, argv)
    Report(
        f"One layer of order {ORDER}, forward and backward",
        {
            "dataset": lambda row: row["dataset"],
            "layer": lambda row: row["layer"],
            "sizes": lambda row: "{} -> {}".format(*row["sizes"]),
            "PyG edges": lambda row: row["edges"],
            "PyG ms": lambda row: spread(row["pyg"], 1e3),
            "ours ms": lambda row: spread(row["ours"], 1e3),
            "ratio": lambda row: spread(row["ratio"]),
            "difference": lambda row: f"{row['difference']:.0e}",
        },
        notes=[
            "Median (least-greatest) over the rounds; a single number where one round took too long for more. "
            "Ratio: PyG / ours. Difference: the largest one of outputs and gradients, relative to the largest number. "
            "float32; gradients of the weights, features are data. Ours: sparse features, operator built beforehand. "
            "PyG: dense features, the faster of edge_index, normalised once (`cached`), and a CSR matrix normalised "
            "beforehand; APPNP has a linear layer before it; SSGConv keeps the propagated features (`cached`), so that "
            "what is timed of it is a linear layer, while ours propagates at every step."
        ],
        last=last,
        packages={"torch_geometric": torch_geometric.__version__},
    ).run(args, rows(args))


if __name__ == "__main__":
    main()
