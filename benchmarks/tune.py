"""The paper's search and its ten final runs, without and with pruning, and the textbook's time for the same trainings.

The textbook's time is the epochs that the search and the final runs have done, times what an epoch of the same model
takes as published code writes it (`textbook.Training`), with the setting that was found.

    python benchmarks/tune.py --datasets cora --keep results/tuning
"""

import json
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from common import Report, Row, interleaved, normalised, parse, parser, spread
from textbook import MODELS, Training

from codesgc.cli import main as codesgc
from codesgc.training.population import Job, new_model
from codesgc.training.splits import random_split
from codesgc.zoo import Config


def search(args: Namespace, dataset: str, pruner: str, out: Path) -> dict[str, Any]:
    """The summary of a search in that folder, its result, and the seconds that all took."""
    trials = ["--trials", str(args.trials), "--runs", str(args.runs), "--threads", str(args.threads)]
    short = ["--set", "epochs=20", "--final-runs", "2"] if args.quick else []
    began = time.perf_counter()
    where = ["--model", args.model, "--out", str(out), "--pruner", pruner]
    if args.storage:
        where += ["--storage", args.storage, "--study", f"{dataset}-{args.model}-{pruner}"]
    with redirect_stdout(sys.stderr):
        status = codesgc(["tune", dataset, *where, *trials, *short])
    if status:
        raise SystemExit(status)
    seconds = time.perf_counter() - began
    return {
        "study": json.loads((out / "study.json").read_text(encoding="utf-8")),
        "result": json.loads((out / "result.json").read_text(encoding="utf-8")),
        "seconds": seconds,
    }


def textbook_epoch(args: Namespace, dataset: str, config: Config) -> list[float]:
    """Seconds of an epoch as published code writes it, round by round."""
    graph = normalised(dataset)
    assert graph.y is not None
    job = Job(config, 0, random_split(graph.y, 0))
    training = Training(graph, config, new_model(job, graph.num_features, graph.num_classes), job.split)
    return interleaved({"textbook": training.epoch}, args.rounds, budget=args.budget)["textbook"]


def rows(args: Namespace) -> Iterator[Row]:
    for dataset in args.datasets:
        for pruner in args.pruners:
            with tempfile.TemporaryDirectory() as folder:
                found = search(args, dataset, pruner, Path(folder))
                study, result = found["study"], found["result"]
                if args.keep:
                    for name in ("study", "result"):
                        kept = Path(args.keep, f"{dataset}-{args.model}-{pruner}.{name}.json")
                        kept.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copy(Path(folder, f"{name}.json"), kept)
            epochs = study["epochs"] + sum(run["epochs"] for run in result["runs"])
            epoch = textbook_epoch(args, dataset, Config.from_dict(result["config"]))
            yield {
                "dataset": dataset,
                "model": args.model,
                "pruner": pruner,
                "trials": study["trials"],
                "epochs": epochs,
                "seconds": [found["seconds"]],
                "driver": study["this_worker"]["driver_share"],
                "validation": study["best"]["value"],
                "test": [result["test_mean"], result["test_ci95"]],
                "paper": result["paper"],
                "textbook": epoch,
                "hours": [epochs * seconds / 3600 for seconds in epoch],
                "ratio": [epochs * seconds / found["seconds"] for seconds in epoch],
            }


def paper(row: Row) -> str:
    value = row["paper"]
    return "-" if value is None else f"{value['mean']:.2f} ± {value['ci95']:.2f}"


def main(argv: Sequence[str] | None = None) -> None:
    options = parser(__doc__, ["cora"], rounds=5)
    options.add_argument("--model", default="L-CP", choices=list(MODELS), metavar="NAME", help="which")
    options.add_argument("--trials", type=int, default=400, help="settings to try")
    options.add_argument("--runs", type=int, default=3, help="trainings of each")
    options.add_argument("--pruners", nargs="+", default=["none", "halving"], metavar="P", help="searches to compare")
    options.add_argument("--storage", metavar="URL", help="of the studies, else a journal file")
    options.add_argument("--keep", metavar="DIR", help="put each search's study.json and result.json there")
    args = parse(options, argv)
    if args.quick:
        args.trials, args.runs = min(args.trials, 4), 1
    Report(
        f"Tuning {args.model}: {args.trials} trials of {args.runs} runs, then ten runs with the best setting",
        {
            "dataset": lambda row: row["dataset"],
            "pruner": lambda row: row["pruner"],
            "pruned": lambda row: str(row["trials"]["pruned"]),
            "epochs": lambda row: f"{row['epochs']:,}",
            "minutes": lambda row: spread(row["seconds"], 1 / 60),
            "driver": lambda row: f"{100 * row['driver']:.1f} %",
            "validation": lambda row: f"{row['validation']:.2f}",
            "test": lambda row: f"{row['test'][0]:.2f} ± {row['test'][1]:.2f}",
            "paper": paper,
            "textbook ms": lambda row: spread(row["textbook"], 1e3),
            "textbook hours": lambda row: spread(row["hours"]),
            "ratio": lambda row: spread(row["ratio"]),
        },
        notes=[
            "Epochs: of all replicates, search and final runs. Minutes: of the whole command. Driver: share of the "
            "search that was spent in sampler and storage. Validation: mean best accuracy of the best trial. Textbook "
            "hours: the same number of epochs, one after the other, as published code writes them."
        ],
    ).run(args, rows(args))


if __name__ == "__main__":
    main()
