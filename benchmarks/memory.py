"""Peak memory of one training step against the order K, for the library's layers and for PyG's ChebConv.

A step is forward, cross-entropy, backward and Adam on one layer from the features to the classes, in float32:
CoDeSGC-CP as the paper trains it (`L-CP`, R = 32, with its dropouts), and the layer without decomposition (`full`),
which computes what ChebConv does. The latter two have K + 1 weight matrices, so that their weights' gradients and
Adam's state grow with K whatever the engine does.

Every number comes from a process of its own. There the same step first runs on a graph of two nodes, so that what is
loaded or started once is not counted; freed memory goes back to the system (`malloc_trim`); then "5" is written to
/proc/self/clear_refs, which sets the peak (VmHWM in /proc/self/status) to the present size (VmRSS), and after the
step the peak less that size is what the step needed: outputs, saved tensors, gradients and Adam's state, but not the
graph, the features and the weights. Where clear_refs may not be written, the peak is that of the whole process
(`getrusage`), which is right as long as loading the data needed less; the table says which.

    python benchmarks/memory.py --datasets cora --orders 5 40
"""

import ctypes
import json
import resource
import subprocess
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from common import Report, Row, normalised, parse, parser, spread
from torch import nn

from codesgc import MATRICES, Graph, SpectralConv, build_model
from codesgc.engine import CSR

LAYERS = ("L-CP", "full", "PyG ChebConv")
MIB = 2.0**20


def status(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def reset_peak() -> bool:
    """Peak = present size; False where the system does not let us."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def layer(kind: str, order: int, graph: Graph) -> tuple[nn.Module, tuple[object, object]]:
    """The layer from the features to the classes, and what it is called with."""
    sizes = (graph.num_features, graph.num_classes)
    if kind == "PyG ChebConv":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from torch_geometric.nn import ChebConv  # only in the process that measures it
        return ChebConv(*sizes, order + 1), (graph.dense_features(), graph.edge_index)
    features = CSR.from_tensor(graph.x)
    if kind == "L-CP":
        model = build_model("L-CP", *sizes, order=order)
        return model, (features, model.operator(graph))
    scaled = MATRICES["scaled_laplacian"](lambda_max=2.0)
    conv = SpectralConv(*sizes, order, basis="chebyshev", matrix=scaled, decomposition="full")
    return conv, (features, scaled(graph))


def training(kind: str, order: int, graph: Graph) -> Callable[[], None]:
    """One training step on all nodes, with everything prepared."""
    model, inputs = layer(kind, order, graph)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(*inputs), graph.y).backward()
        optimizer.step()

    return step


def measure(kind: str, order: int, dataset: str) -> dict[str, object]:
    """In a process of its own: bytes that one step adds to the process at its peak."""
    two = Graph([[0, 1], [1, 0]], x=torch.eye(2).to_sparse_csr(), y=[0, 1])
    training(kind, order, two)()
    step = training(kind, order, normalised(dataset))
    ctypes.CDLL(None).malloc_trim(0)
    method = "VmHWM" if reset_peak() else "getrusage"
    before = status("VmRSS")
    step()
    peak = status("VmHWM") if method == "VmHWM" else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"bytes": peak - before, "method": method}


def elsewhere(args: Namespace, kind: str, order: int, dataset: str) -> dict[str, object]:
    """`measure` in a fresh process."""
    command = [
        sys.executable,
        __file__,
        "--measure",
        json.dumps([kind, order, dataset]),
        "--threads",
        str(args.threads),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def rows(args: Namespace) -> Iterator[Row]:
    for dataset in args.datasets:
        for kind in args.layers:
            first = None
            for order in args.orders:
                found = [elsewhere(args, kind, order, dataset) for _ in range(args.rounds)]
                sizes = [f["bytes"] for f in found]
                first = first or sizes
                growth = sorted(sizes)[len(sizes) // 2] / max(sorted(first)[len(first) // 2], 1)
                yield {
                    "dataset": dataset,
                    "layer": kind,
                    "order": order,
                    "bytes": sizes,
                    "growth": growth,
                    "method": found[0]["method"],
                }


def main(argv: Sequence[str] | None = None) -> None:
    options = parser(__doc__, ("cora", "pubmed"), rounds=3)
    options.add_argument("--layers", nargs="+", default=list(LAYERS), choices=LAYERS, metavar="NAME")
    options.add_argument(
        "--orders", nargs="+", type=int, default=[5, 10, 20, 40], metavar="K", help="the first: growth 1"
    )
    options.add_argument("--measure", metavar="JSON", help="[layer, order, dataset]: measure it in this process")
    args = parse(options, argv)
    if args.measure:
        print(json.dumps(measure(*json.loads(args.measure))))
        return
    if args.quick:
        args.orders = args.orders[:1]
    Report(
        "Peak memory of one training step",
        {
            "dataset": lambda row: row["dataset"],
            "layer": lambda row: row["layer"],
            "K": lambda row: str(row["order"]),
            "peak MiB": lambda row: spread(row["bytes"], 1 / MIB),
            "growth": lambda row: f"{row['growth']:.2f}",
            "measured by": lambda row: row["method"],
        },
        notes=[
            "Median (least-greatest) over fresh processes. The peak is what one step of forward, loss, backward and "
            f"Adam adds to the process; growth: relative to K = {args.orders[0]}. One layer from the features to the "
            "classes. L-CP (R = 32, all dropouts) and full: ours, with sparse features; ChebConv: with dense ones, as "
            "it takes them. full and ChebConv compute the same; both have K + 1 weight matrices, whose gradients and "
            "Adam state are counted."
        ],
    ).run(args, rows(args))


if __name__ == "__main__":
    main()
