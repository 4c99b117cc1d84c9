"""Why the CoDeSGC models lose to simpler ones on Texas and Cornell, and what helps: docs/small_graphs.md.

Every variant is a search of 200 trials under the strict protocol, with halving, and 20 runs on splits that no search
has touched; differences to the first variant are taken split by split. A search that has ended is not repeated.

    python tools/small_graphs.py --threads 1                        # about half an hour on one core
    python tools/small_graphs.py --take results/small_graphs        # and copy the result files there
    python tools/small_graphs.py --look                             # why: classes, and accuracies around the best epoch
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from codesgc import MODELS, Config, load_dataset, preset
from codesgc.cli import main as codesgc
from codesgc.files import write_text
from codesgc.training import PROTOCOLS, Job, Slot, random_split, train_jobs
from codesgc.tuning.report import margin

RANKS = "rank=1,2,4,8,16,32"
PRIOR = "prior=validation"
RIDGE, SMOOTH = "ridge=1e-7:1e-2:log", "smoothness=1e-7:1e-1:log"
# Names and the options of their searches; one that begins with "=" looks at another one's search again.
VARIANTS: dict[str, Sequence[str]] = {
    "JacobiConv": ["--model", "JacobiConv"],
    "L-CP": ["--model", "L-CP"],
    "L-CP, confirmed": ["=L-CP", "--model", "L-CP", "--confirm", "20"],
    "L-CP, small ranks": ["--model", "L-CP", "--space", RANKS],
    "L-CP, ridge": ["--model", "L-CP", "--space", RIDGE],
    "L-CP, smooth": ["--model", "L-CP", "--space", SMOOTH],
    "one filter for all classes": ["--model", "JacobiConv", "--set", "decomposition=gpr"],
    "L-Tucker": ["--model", "L-Tucker"],
    "JacobiConv, prior": ["--model", "JacobiConv", "--set", PRIOR],
    "L-CP, prior": ["--model", "L-CP", "--set", PRIOR],
    "L-CP, prior, confirmed": ["=L-CP, prior", "--model", "L-CP", "--set", PRIOR, "--confirm", "20"],
    "L-Tucker, prior": ["--model", "L-Tucker", "--set", PRIOR],
    "H-Tucker1, prior": ["--model", "H-Tucker1", "--set", PRIOR],
}


def folder(out: Path, dataset: str, variant: str) -> Path:
    return out / dataset / variant.replace(", ", "-").replace(" ", "_")


def search(out: Path, dataset: str, variant: str, more: Sequence[str]) -> None:
    """Run it, unless its result is there."""
    where, options = folder(out, dataset, variant), list(VARIANTS[variant])
    if (where / "result.json").is_file():
        return
    if options[0].startswith("="):
        options[:1] = ["--storage", str(folder(out, dataset, options[0][1:]) / "study.log")]
    given = ["--protocol", "strict", "--trials", "200", "--pruner", "halving", "--final-runs", "20"]
    status = codesgc(["tune", dataset, *options, *given, "--out", str(where), *more])
    if status:
        raise SystemExit(status)


def result(out: Path, dataset: str, variant: str) -> dict[str, Any] | None:
    file = folder(out, dataset, variant) / "result.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def table(out: Path, dataset: str) -> str:
    """Each variant's test accuracy, its difference to the first one, and the search's own estimate."""
    lines = [f"| {dataset} | test | less {next(iter(VARIANTS))}'s | validation in the search |", "|---|---|---|---|"]
    first = result(out, dataset, next(iter(VARIANTS)))
    for variant in VARIANTS:
        found = result(out, dataset, variant)
        if found is None or first is None:
            continue
        ours, theirs = ([run["test_accuracy"] for run in data["runs"]] for data in (found, first))
        less = margin(ours, theirs)
        difference = (
            "" if found is first or variant == next(iter(VARIANTS)) else f"{less['mean']:+.2f} ± {less['ci95']:.2f}"
        )
        test = f"{found['test_mean']:.2f} ± {found['test_ci95']:.2f}"
        lines.append(f"| {variant} | {test} | {difference} | {found['search']['value']:.2f} |")
    return "\n".join(lines)


SEEDS = range(PROTOCOLS["strict"], PROTOCOLS["strict"] + 20)


def around_the_best(dataset: str, config: Config) -> tuple[float, float]:
    """Mean test accuracy at the epoch with the best validation accuracy, and over that and 25 on either side of it."""
    graph = load_dataset(dataset).row_normalised()
    assert graph.y is not None
    seen: dict[int, list[float]] = {seed: [] for seed in SEEDS}

    def watch(slots: Sequence[Slot]) -> None:
        for slot in slots:
            assert slot.latest is not None
            seen[slot.job.seed].append(slot.latest.test)

    jobs = [Job(config, seed, random_split(graph.y, seed)) for seed in SEEDS]
    done = list(train_jobs(graph, jobs, size=len(jobs), on_epoch=watch))
    near = []
    for each in done:
        at = each.run.best_epoch - 1
        window = seen[each.run.seed][max(at - 25, 0) : at + 26]
        near.append(sum(window) / len(window))
    return sum(each.run.test_accuracy for each in done) / len(done), sum(near) / len(near)


def look(dataset: str) -> str:
    """How many nodes of each class the parts have, and what published settings reach with either prior."""
    y = load_dataset(dataset).y
    assert y is not None
    split = random_split(y, SEEDS[0])
    lines = [f"| {dataset} | nodes of each class |", "|---|---|"]
    for name, part in (
        ("all", slice(None)),
        ("training", split.train),
        ("validation", split.val),
        ("test", split.test),
    ):
        lines.append(
            f"| {name} | {', '.join(map(str, torch.bincount(y[part], minlength=int(y.max()) + 1).tolist()))} |"
        )
    largest = torch.bincount(y).argmax()
    share = sum(float((y[random_split(y, seed).test] == largest).double().mean()) for seed in SEEDS) / len(SEEDS)
    lines += ["", f"Always the largest class: {100 * share:.2f} % of the test nodes, over 20 splits.", ""]
    lines += ["| published settings | prior | test at the best epoch | around it |", "|---|---|---|---|"]
    for model in ("JacobiConv", "L-CP", "L-Tucker", "H-Tucker1"):
        for prior in ("training", "validation"):
            at, near = around_the_best(dataset, preset(dataset, model).updated({"prior": prior}))
            lines.append(f"| {model} | {prior} | {at:.2f} | {near:.2f} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    options.add_argument("--datasets", nargs="+", default=["texas", "cornell"], metavar="NAME")
    options.add_argument("--out", type=Path, default=Path("build/small_graphs"), metavar="DIR")
    options.add_argument("--take", type=Path, metavar="DIR", help="copy the results there, and search nothing")
    options.add_argument("--look", action="store_true", help="show why, and search nothing")
    options.add_argument("--threads", default=str(os.cpu_count()), metavar="N")
    args = options.parse_args(argv)
    for dataset in args.datasets:
        if args.look:
            print(look(dataset) + "\n")
            continue
        for variant in VARIANTS:
            if args.take is None:
                search(args.out, dataset, variant, ["--quiet", "--threads", args.threads])
            elif (found := result(args.out, dataset, variant)) is not None:
                found["model"] = found["config"]["model"] = variant
                found["paper"] = found["paper"] if variant.partition(",")[0] in MODELS else None
                file = args.take / dataset / f"{folder(args.out, dataset, variant).name}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                write_text(file, json.dumps(found, indent=2) + "\n")
        print(table(args.out, dataset) + "\n")


if __name__ == "__main__":
    main()
