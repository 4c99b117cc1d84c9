"""The time that Table 3 took, and what the same epochs take as published code writes them.

Epochs and seconds of a cell are those of its ten runs in `results/`, as `codesgc reproduce` wrote them. The textbook's
time is the same number of epochs, one after the other, times what an epoch of `textbook.Training` takes here and now.

    python benchmarks/tables.py --datasets cora texas
"""

import json
import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import TEN, Report, Row, interleaved, normalised, parse, parser, spread
from textbook import Training

from codesgc.training.population import Job, new_model
from codesgc.training.splits import random_split
from codesgc.zoo import Config
from codesgc.zoo.published import TABLES

RESULTS = Path(__file__).resolve().parents[1] / "results" / "paper"


def rows(args: Namespace) -> Iterator[Row]:
    for dataset in args.datasets:
        graph = normalised(dataset)
        assert graph.y is not None
        split = random_split(graph.y, 0)
        for model in TABLES["3"]:
            file = Path(args.results, dataset, f"{model}.json")
            if not file.is_file():
                continue
            result = json.loads(file.read_text(encoding="utf-8"))
            config = Config.from_dict(result["config"])
            start = new_model(Job(config, 0, split), graph.num_features, graph.num_classes)
            textbook = Training(graph, config, start, split)
            taken = interleaved({"textbook": textbook.epoch}, args.rounds, budget=args.budget)["textbook"]
            epochs = sum(run["epochs"] for run in result["runs"])
            hours = [epochs * seconds / 3600 for seconds in taken]
            yield {
                "dataset": dataset,
                "model": model,
                "epochs": epochs,
                "seconds": [result["seconds"]],
                "textbook": taken,
                "hours": hours,
                "ratio": [3600 * each / result["seconds"] for each in hours],
            }


def last(found: list[Row]) -> str:
    minutes = sum(row["seconds"][0] for row in found) / 60
    hours = sum(statistics.median(row["hours"]) for row in found)
    epochs = sum(row["epochs"] for row in found)
    ratio = f"{60 * hours / minutes:.0f} times as much"
    return f"{len(found)} cells, {epochs:,} epochs: {minutes:.0f} minutes; textbook {hours:.0f} hours, {ratio}."


def main(argv: Sequence[str] | None = None) -> None:
    options = parser(__doc__, TEN, rounds=1)
    options.add_argument("--results", metavar="DIR", default=str(RESULTS), help="where DATASET/MODEL.json are")
    args = parse(options, argv)
    Report(
        "Table 3 from published settings: ten runs a cell",
        {
            "dataset": lambda row: row["dataset"],
            "model": lambda row: row["model"],
            "epochs": lambda row: f"{row['epochs']:,}",
            "seconds": lambda row: spread(row["seconds"]),
            "textbook ms": lambda row: spread(row["textbook"], 1e3),
            "textbook hours": lambda row: spread(row["hours"]),
            "ratio": lambda row: spread(row["ratio"]),
        },
        notes=[
            "Epochs: of the ten runs together. Seconds: of the cell as it was run. Textbook hours: the same number of "
            "epochs, one after the other, at that many milliseconds."
        ],
        last=last,
    ).run(args, rows(args))


if __name__ == "__main__":
    main()
