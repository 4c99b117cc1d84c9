"""Where the time of one population epoch goes, operation by operation.

The library's operations are wrapped for the time of the measurement. Going forward, a wrapper takes the time of its
call, less that of wrapped calls inside it, and marks the nodes that the call adds to the autograd graph; going
backward, those nodes' hooks take the time of each. Everything from the beginning of the evaluation's forward pass to
the end of the epoch is evaluation and accuracy. What no wrapper saw is the rest: Python, autograd itself, ReLU, the
small products of factors with each other, and the hooks. Epochs without wrappers run in turns with the others, to
show what these cost.

    python benchmarks/shares.py --datasets cora --models L-CP --population 16
"""

import statistics
import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from common import Report, Row, normalised, parse, parser, spread, timed
from epoch import filled
from textbook import MODELS

from codesgc import SpectralModel, preset
from codesgc import engine as library
from codesgc.engine import CSR, Dropout, Filter
from codesgc.training import population as training
from codesgc.training.adam import Adam
from codesgc.training.population import Job
from codesgc.training.splits import random_split

FORWARD = ("features", "dense", "propagation", "dropout", "loss")
OPERATIONS = (*(part for name in FORWARD for part in (name, f"{name}, backward")), "optimiser", "evaluation", "rest")


class Clock:
    """Seconds by operation; a call inside another one does not count for both."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.inner: list[float] = []  # seconds of the calls inside each open call
        self.marked: dict[Any, None] = {}  # nodes of the autograd graph, kept so that none is taken for another
        self.evaluation: float | None = None

    def around(self, name: str | Callable[..., str], call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed, and its nodes marked."""

        def wrapped(*args: Any, **options: Any) -> Any:
            if self.evaluation is not None:
                return call(*args, **options)
            operation = name if isinstance(name, str) else name(*args, **options)
            self.inner.append(0.0)
            began = time.perf_counter()
            out = call(*args, **options)
            taken = time.perf_counter() - began
            self.seconds[operation] += taken - self.inner.pop()
            if self.inner:
                self.inner[-1] += taken
            self.mark(operation + ", backward", out, [*args, *options.values()])
            return out

        return wrapped

    def mark(self, operation: str, out: object, inputs: Sequence[object]) -> None:
        """Hooks on the nodes between the inputs and the output that no inner call has marked."""
        known = {node for tensor in map(_tensor, inputs) if (node := getattr(tensor, "grad_fn", None)) is not None}
        waiting = [getattr(_tensor(out), "grad_fn", None)]
        while waiting:
            node = waiting.pop()
            if node is None or node in known or node in self.marked or node.name().endswith("AccumulateGrad"):
                continue
            self.marked[node] = None
            self.hook(operation, node)
            waiting.extend(before for before, _ in node.next_functions)

    def hook(self, operation: str, node: Any) -> None:
        began = 0.0

        def before(_: object) -> None:
            nonlocal began
            began = time.perf_counter()

        def after(_: object, __: object) -> None:
            self.seconds[operation] += time.perf_counter() - began

        node.register_prehook(before)
        node.register_hook(after)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The library's operations wrapped."""
        forward = SpectralModel.forward

        def model(module: SpectralModel, *args: Any) -> Any:
            if not module.training:
                self.evaluation = self.evaluation or time.perf_counter()
            return forward(module, *args)

        def product(x: object, *_: object) -> str:
            return "features" if isinstance(x, CSR) else "dense"

        original = library.linear  # which other modules have imported by its name
        linear = self.around(product, original)
        with ExitStack() as stack:
            for module in [m for name, m in sys.modules.items() if name.startswith("codesgc.")]:
                if vars(module).get("linear") is original:
                    stack.enter_context(mock.patch.object(module, "linear", linear))
            for owner, method, operation in (
                (Filter, "filter", "propagation"),
                (Filter, "synthesise", "propagation"),
                (Filter, "analyse", "propagation"),
                (Dropout, "forward", "dropout"),
                (Adam, "step", "optimiser"),
                (training, "cross_entropy", "loss"),
            ):
                stack.enter_context(mock.patch.object(owner, method, self.around(operation, getattr(owner, method))))
            stack.enter_context(mock.patch.object(SpectralModel, "forward", model))
            yield

    def epoch(self, call: Callable[[], None]) -> dict[str, float]:
        """Seconds of one epoch by operation; what is left over is the rest."""
        self.seconds.clear()
        self.marked.clear()
        self.evaluation = None
        began = time.perf_counter()
        call()
        ended = time.perf_counter()
        assert self.evaluation is not None, "an epoch without an evaluation"
        self.seconds["evaluation"] = ended - self.evaluation
        self.seconds["rest"] = ended - began - sum(self.seconds.values())
        return dict(self.seconds)


def _tensor(value: object) -> object:
    return value[0] if isinstance(value, tuple) else value


def rows(args: Namespace) -> Iterator[Row]:
    for dataset in args.datasets:
        graph = normalised(dataset)
        assert graph.y is not None
        for model in args.models:
            config = preset(dataset, model)
            jobs = [Job(config, seed, random_split(graph.y, seed)) for seed in range(args.population)]
            population, clock = filled(graph, jobs), Clock()
            for _ in range(1 if args.quick else 5):
                population.epoch()
            bare: list[float] = []
            watched: list[dict[str, float]] = []
            while len(bare) < args.rounds and (not bare or sum(bare) < args.budget):
                bare.append(timed(population.epoch))
                with clock.watching():
                    watched.append(clock.epoch(population.epoch))
            yield {
                "dataset": dataset,
                "model": model,
                "size": len(jobs),
                "bare": bare,
                "watched": [sum(seconds.values()) for seconds in watched],
                "shares": {
                    name: statistics.mean(seconds.get(name, 0.0) for seconds in watched)
                    / statistics.mean(sum(seconds.values()) for seconds in watched)
                    for name in OPERATIONS
                },
            }


def main(argv: Sequence[str] | None = None) -> None:
    options = parser(__doc__, ("cora", "squirrel", "computers"), rounds=20)
    options.add_argument("--models", nargs="+", default=["L-CP"], choices=list(MODELS), metavar="NAME")
    options.add_argument("--population", type=int, default=8, metavar="B", help="replicates that train together")
    args = parse(options, argv)

    def share(name: str) -> Callable[[Row], str]:
        return lambda row: f"{100 * row['shares'][name]:.1f}"

    Report(
        f"Shares of one epoch of {args.population} replicates, per cent",
        {
            "dataset": lambda row: row["dataset"],
            "model": lambda row: row["model"],
            "epoch ms": lambda row: spread(row["bare"], 1e3),
            "watched ms": lambda row: spread(row["watched"], 1e3),
            **{name: share(name) for name in OPERATIONS},
        },
        notes=[
            "Median (least-greatest) over the epochs, without and with the wrappers that take the times; shares of the "
            "watched epochs' total time. Features: products with the sparse features. Dense: products of signals with "
            "factors. Evaluation: its forward pass and the accuracies. Rest: Python, autograd, ReLU, products of "
            "factors with each other, the wrappers."
        ],
    ).run(args, rows(args))


if __name__ == "__main__":
    main()
