"""Replicate-epochs: one training step and one evaluation, against the same epoch as published code writes it.

The library's models train alone (a population of one) and in a population, where the time is divided by its size; the
reference is `textbook.Training`. All have the authors' published settings for the graph, where there are some, and
start from the same weights.

    python benchmarks/epoch.py --datasets cora texas --models L-CP GPR-GNN --rounds 3
"""

import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence

from common import TEN, Report, Row, interleaved, normalised, parse, parser, ratios, spread, summary
from textbook import MODELS, Training

from codesgc import Graph, preset
from codesgc.engine.native import keeping_freed_memory
from codesgc.training.capacity import MOST, population_size
from codesgc.training.inputs import Inputs
from codesgc.training.population import Job, Population, new_model
from codesgc.training.splits import random_split


def filled(graph: Graph, jobs: Sequence[Job]) -> Population:
    """A population with all its slots taken, ready to train."""
    population = Population(Inputs(graph), jobs[0].config, len(jobs))
    for slot, job in enumerate(jobs):
        population.start(slot, job)
    return population


def rows(args: Namespace) -> Iterator[Row]:
    for name in args.datasets:
        graph = normalised(name)
        assert graph.y is not None
        for model in args.models:
            config = preset(name, model)
            size = population_size(graph, config, MOST, args.population)
            jobs = [Job(config, seed, random_split(graph.y, seed)) for seed in range(size)]
            start = new_model(jobs[0], graph.num_features, graph.num_classes)
            textbook = Training(graph, config, start, jobs[0].split)
            alone, together = filled(graph, jobs[:1]), filled(graph, jobs)
            calls = {"textbook": textbook.epoch, "alone": alone.epoch, "population": together.epoch}
            with keeping_freed_memory():  # as in training; the textbook gains by it, too
                taken = interleaved(calls, args.rounds, budget=args.budget)
            taken["population"] = [seconds / len(jobs) for seconds in taken["population"]]
            ratio = ratios(taken["textbook"], taken["population"])
            yield {"dataset": name, "model": model, "size": len(jobs), **taken, "ratio": ratio}


def last(found: list[Row]) -> str:
    models = dict.fromkeys(row["model"] for row in found)
    return summary(
        {m: [(row["dataset"], statistics.median(row["ratio"])) for row in found if row["model"] == m] for m in models}
    )


def main(argv: Sequence[str] | None = None) -> None:
    options = parser(__doc__, TEN, rounds=5)
    options.add_argument(
        "--models", nargs="+", default=list(MODELS)[:5], choices=list(MODELS), metavar="NAME", help="which"
    )
    options.add_argument("--population", type=int, metavar="B", help="replicates at once, else what training takes")
    args = parse(options, argv)
    Report(
        "One replicate-epoch: a training step and an evaluation",
        {
            "dataset": lambda row: row["dataset"],
            "model": lambda row: row["model"],
            "textbook ms": lambda row: spread(row["textbook"], 1e3),
            "alone ms": lambda row: spread(row["alone"], 1e3),
            "population": lambda row: str(row["size"]),
            "population ms": lambda row: spread(row["population"], 1e3),
            "ratio": lambda row: spread(row["ratio"]),
        },
        notes=[
            "Median (least-greatest) over the rounds. Textbook: dense features and dropout, COO products, all terms "
            "stacked. Alone: a population of 1. Population: so many replicates at once, time divided by their number. "
            "Ratio: textbook / population. float32."
        ],
        last=last,
    ).run(args, rows(args))


if __name__ == "__main__":
    main()
