"""`codesgc tune` and `codesgc best`: a search for settings that can be stopped, resumed and joined, and its outcome."""

import argparse
import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from codesgc import cli_train, console, settings
from codesgc.datasets.registry import DATASETS
from codesgc.errors import InputError, unknown
from codesgc.files import write_text
from codesgc.zoo import Config, find_model

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from codesgc.graph import Graph
    from codesgc.training import Result
    from codesgc.tuning.confirm import Confirmed
    from codesgc.tuning.driver import Search
    from codesgc.tuning.study import Study

PRUNERS = ("none", "median", "percentile", "halving", "hyperband")  # those of tuning/sampler.py
DEFAULTS = {
    "model": "L-CP",
    "runs": 3,
    "protocol": "paper",
    "seed": 0,
    "set": [],
    "space": [],
    "pruner": "none",
    "confirm": 0,
    "final_runs": 10,
    "device": "cpu",
    "heartbeat": 20,
    "to_undirected": False,
    "quiet": False,
}
TYPES = {key: type(value) for key, value in DEFAULTS.items()} | {"trials": int, "time_budget": float}  # others: str
MANY = 10**6  # trials of a search that only time ends


def seconds(text: str) -> float:
    """The type of --time-budget.

    >>> seconds("90"), seconds("10m"), seconds("1.5h")
    (90.0, 600.0, 5400.0)
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smh]?)", text)
    if found is None or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, or a time as 90s, 10m, 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def complete(args: argparse.Namespace) -> argparse.Namespace:
    """The options with those of a folder to resume and the defaults behind them."""
    given = {key: value for key, value in vars(args).items() if value is not None}
    stored: dict[str, Any] = {}
    if args.resume is not None:
        if args.dataset is not None:
            raise InputError(f"--resume {args.resume} goes on with its own dataset; leave out {args.dataset}")
        if args.out is not None:
            raise InputError(f"--resume {args.resume} goes on in that folder; leave out --out")
        stored = read_options(args.resume)
    elif args.dataset is None:
        raise InputError("DATASET is missing: expected it before the options, as in: codesgc tune cora --out tuned")
    elif args.out is None:
        raise InputError("--out DIR is missing: expected a folder for the study and its result, as --out tuned/cora")
    merged = {**DEFAULTS, **stored, **given}
    for key in ("trials", "time_budget", "space_file", "storage", "study", "population", "threads"):
        merged.setdefault(key, None)
    if args.resume is not None:
        merged["out"] = args.resume
    return argparse.Namespace(**merged)


def read_options(folder: str) -> dict[str, Any]:
    """The options of the search in that folder, each of the type that the command line gives it."""
    file = Path(folder, "options.json")
    try:
        options = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{folder} holds no search: expected {file}, which 'codesgc tune --out' writes") from None
    if not isinstance(options, dict):
        raise InputError(f"{file} is damaged: expected the options of a search; give them again with --out {folder}")
    for key, value in options.items():
        kind = TYPES.get(key, str)
        lists = kind is list and isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not (lists if kind is list else type(value) in (kind, int) if kind is float else type(value) is kind):
            raise InputError(f"{file} is damaged: {key} is {value!r}; give the options again with --out {folder}")
    if not {"dataset", "study"} <= options.keys():
        raise InputError(
            f"{file} is damaged: expected a dataset and a study; give the options again with --out {folder}"
        )
    return options


def read_outcome(file: Path, *keys: str) -> dict[str, Any] | None:
    """What a search wrote at its end, or None if it has not ended."""
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not set(keys) <= found.keys():
        raise InputError(f"{file} is damaged: expected what 'codesgc tune' writes; remove it, and resume the search")
    return found


def write_options(args: argparse.Namespace) -> None:
    """What --resume needs; not the password, and not what concerns one process alone."""
    from codesgc.tuning.storage import without_password

    left_out = ("command", "resume", "out", "quiet", "threads", "population", "changes", "own")
    options = {key: value for key, value in vars(args).items() if key not in left_out and value is not None}
    if args.storage == default_storage(args.out):
        del options["storage"]  # it stays beside the options, should the folder be moved
    else:
        options["storage"] = without_password(args.storage)
    if cli_train.is_file(args.dataset):
        options["dataset"] = os.path.abspath(args.dataset)
    write_text(Path(args.out, "options.json"), json.dumps(options, indent=1) + "\n")


def default_storage(folder: str) -> str:
    return str(Path(folder, "study.log"))


def need_optuna() -> None:
    try:
        import optuna  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(f"codesgc tune needs {error.name}: pip install 'codesgc[tune]'") from None


def run_tuning(args: argparse.Namespace) -> int:
    # As in training: what can be checked without torch first, then without data, then without searching.
    args = complete(args)
    dataset = None if cli_train.is_file(args.dataset) else cli_train.dataset_name(args.dataset)
    if args.model.lower() != "auto":
        args.model = find_model(args.model).model
    if args.pruner not in PRUNERS:
        raise unknown("pruner", args.pruner, PRUNERS)
    args.changes = settings.parse_settings(args.set)
    need_optuna()

    import torch

    from codesgc.datasets import load_dataset
    from codesgc.training import PROTOCOLS
    from codesgc.tuning.spaces import make_space, parse_space, read_space
    from codesgc.tuning.study import Study

    if args.protocol not in PROTOCOLS:
        raise unknown("protocol", args.protocol, PROTOCOLS)
    args.device = cli_train.checked_device(args.device)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    args.own = {**(read_space(args.space_file) if args.space_file else {}), **parse_space(args.space)}
    space = make_space(args.model, args.changes, args.own)
    if dataset is not None and args.to_undirected:
        raise InputError(f"--to-undirected is for a file: {dataset} is undirected; leave it out")
    if dataset is None:
        graph = cli_train.load_file(args.dataset, args.to_undirected)
        space.check(graph.num_features, graph.num_classes)
    else:
        space.check(DATASETS[dataset].features, DATASETS[dataset].classes)
        graph = load_dataset(dataset)
    cli_train.check_folder(args.out)
    args.storage = args.storage or default_storage(args.out)
    name = args.study or f"{graph.name}-{space.model}-{args.protocol}"
    if args.trials is None:
        args.trials = 400 if args.time_budget is None else MANY
    identity = {
        "dataset": graph.name,
        "graph": [graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes],
        "model": space.model,
        "protocol": args.protocol,
        "runs": args.runs,
        "seed": args.seed,
        "pruner": args.pruner,
        "base": space.base().to_dict(),
        "space": space.to_json(),
    }
    with Study(
        *(args.storage, name, json.loads(json.dumps(identity)), space),
        trials=args.trials,
        seed=args.seed,
        pruner=args.pruner,
        beat=args.heartbeat,
    ) as study:
        args.study = name
        write_options(args)
        return search_and_report(args, graph, dataset, study)


def search_and_report(args: argparse.Namespace, graph: "Graph", dataset: str | None, study: "Study") -> int:
    """Search, write the summary, train the best setting's runs; an interruption says how to go on."""
    from codesgc.tuning.driver import Search

    with cli_train.terminated_like_interrupted() as received:
        try:
            deadline = None if args.time_budget is None else time.monotonic() + args.time_budget
            with Progress(args, study, deadline) as progress:
                search = Search(graph, study, args.population, args.device, deadline, progress)
                search.run()
            report(args, graph, dataset, study, search)
        except KeyboardInterrupt:
            of = "" if args.trials == MANY else f" of {args.trials}"
            goes_on = f"codesgc tune --resume {args.out} goes on"
            console.show(f"codesgc: interrupted, {study.count()}{of} trials done; {goes_on}", sys.stderr)
            return 128 + (received[0] if received else signal.SIGINT)
    return 0


class Progress:
    """What is seen of a search: a line that is drawn over on a terminal, a line now and then elsewhere."""

    def __init__(self, args: argparse.Namespace, study: "Study", deadline: float | None) -> None:
        self.args, self.study, self.deadline = args, study, deadline
        self.began = self.drawn = time.monotonic()
        self.label, self.before = f"{Path(args.dataset).name} {args.model}", study.count()
        terminal = console.on_terminal(sys.stderr)
        self.bar = console.Bar(f"{self.label}: starting", sys.stderr) if terminal and not args.quiet else None
        self.pause = float("inf") if args.quiet else 0.5 if terminal else 30.0

    def __call__(self, search: "Search") -> None:
        now = time.monotonic()
        if now - self.drawn < self.pause:
            return
        self.drawn = now
        done, best = self.study.count(), self.study.best_value()
        rate = (done - self.before) / (now - self.began)
        under_way = len(search.active) / 2  # on the average, half of each is done
        part = (done - self.before + under_way) / (self.args.trials - self.before)
        left = [(now - self.began) * (1 / part - 1)] if part and rate and self.args.trials < MANY else []
        left += [] if self.deadline is None else [max(self.deadline - now, 0.0)]
        many = "" if self.args.trials == MANY else f"/{self.args.trials}"
        text = f"{self.label}: {done}{many} trials, best {'-' if best is None else f'{best:.2f} %'}"
        text += f", {60 * rate:.0f}/min" + (f", {console.duration(min(left))} left" if left else "")
        if self.bar is None:
            console.show(text, sys.stderr)
        else:
            self.bar.draw(self.share(done, now), text)

    def share(self, done: int, now: float) -> float:
        if self.deadline is not None and self.args.trials == MANY:
            return min(1.0, (now - self.began) / (self.deadline - self.began))
        return min(1.0, done / self.args.trials)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.bar.close()


# --- the outcome


def report(args: argparse.Namespace, graph: "Graph", dataset: str | None, study: "Study", search: "Search") -> None:
    """Write study.json and result.json, and show the table."""
    from codesgc.training.protocol import versions
    from codesgc.tuning import report as tuned
    from codesgc.tuning.study import DONE

    trials = study.get(*DONE)
    more: dict[str, Any] = {}
    confirm_seeds: Sequence[int] = ()
    best = tuned.best_trial(trials)
    if args.confirm:
        confirm_seeds, looked = second_look(args, graph, trials)
        best, more["confirmed"] = looked[0].trial, [look.to_dict() for look in looked]
    winners = [best]
    if args.model == "auto":
        others = tuned.best_of_families(trials)
        winners += [trial for trial in others if tuned.config_of(trial).model != tuned.config_of(best).model]
    results: dict[str, Result] = {}
    for trial in winners:
        if args.final_runs:
            result = final_runs(args, graph, tuned.config_of(trial))
            results[result.model] = result
    driver = {
        "seconds": round(search.seconds, 3),
        "driver_seconds": round(study.seconds, 3),
        "driver_share": round(study.seconds / search.seconds, 4) if search.epochs else 0.0,
        "epochs": search.epochs,
        "population": search.size,
        "threads": _threads(),
    }
    before = None if search.epochs else read_outcome(Path(args.out, "study.json"))
    more |= {"this_worker": (before or {}).get("this_worker", driver), "versions": versions()}
    if args.model == "auto":
        more["families"] = tuned.family_rows(winners, trials, results)
    write_text(Path(args.out, "study.json"), tuned.dumps(tuned.summary(study.study, more)))
    identity = study.study.user_attrs["codesgc"]
    if results:
        result = results[tuned.config_of(best).model]
        data = json.loads(cli_train.as_json([result], dataset, several=False))
        data["search"] = tuned.search_section(identity, [run.seed for run in result.runs], best, confirm_seeds)
        write_text(Path(args.out, "result.json"), json.dumps(data, indent=2) + "\n")
    show_best(tuned.summary(study.study, more), list(results.values())[:1], dataset, args.final_runs)
    console.show(f"\nin {args.out}: study.json{', result.json' * bool(results)}")


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def second_look(
    args: argparse.Namespace, graph: "Graph", trials: Sequence["FrozenTrial"]
) -> tuple[Sequence[int], list["Confirmed"]]:
    """The seeds of the splits behind those of the search, and what the best settings reach there."""
    from codesgc.tuning.confirm import SPLITS, candidates, confirm

    seeds, chosen = range(args.runs, args.runs + SPLITS), candidates(trials, args.confirm)
    if not args.quiet:
        console.show(f"{len(chosen)} best settings are trained again on {SPLITS} more splits", sys.stderr)
    return seeds, confirm(graph, chosen, seeds, population=args.population, device=args.device)


def final_runs(args: argparse.Namespace, graph: "Graph", config: Config) -> "Result":
    """The runs that are reported, on the protocol's own seeds."""
    from codesgc.training import train

    watched = not args.quiet and console.on_terminal(sys.stderr)
    bar = console.ProgressBar(config.model, args.final_runs, config, sys.stderr) if watched else nullcontext()
    with bar as progress:
        result = train(
            graph,
            config,
            runs=args.final_runs,
            protocol=args.protocol,
            device=args.device,
            population=args.population,
            progress=progress,
        )
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def show_best(
    data: Mapping[str, Any], results: Sequence["Result"], dataset: str | None, runs: int, model: str | None = None
) -> None:
    """The search in a few lines: how much was done, the best setting as --set takes it, and its runs."""
    counts = ", ".join(f"{number} {state}" for state, number in data["trials"].items() if number)
    best, sign = data["best"], console.plus_minus(sys.stdout)
    console.show(f"{data['dataset']}, {data['model']}, {data['protocol']} protocol: {counts} trials")
    seeds = f"seeds 0 to {data['runs'] - 1}" if data["runs"] > 1 else "seed 0"
    (value,) = console.intervals([(best["value"], best["ci95"] if data["runs"] > 1 else None)], sign)
    console.show(f"best: trial {best['number']}, validation accuracy {value} over {seeds}")
    if "confirmed" in data:
        first, among = data["confirmed"][0], len(data["confirmed"])
        (value,) = console.intervals([(first["confirmed"], first["ci95"])], sign)
        console.show(f"first of the {among} best on {len(first['val_accuracy'])} more splits: {value}")
    console.show("")
    config = Config.from_dict(best["config"])
    for key, setting in settings.listed(config):
        if key in data["space"]:
            console.show(f"  {key}={setting}")
    if "families" in data:
        console.show("\n" + family_table(data["families"], sign))
    if results:
        console.show("\n" + cli_train.result_table(results, dataset, runs, sign))


def family_table(rows: Sequence[Mapping[str, Any]], sign: str) -> str:
    """The families, the best first, and how far each is behind it."""
    pairs = [(row["margin_val"]["mean"], row["margin_val"]["ci95"]) for row in rows]
    tests = [(row["test_mean"], row["test_ci95"]) if "test_mean" in row else None for row in rows]
    columns = zip(rows, console.intervals(pairs, sign), console.intervals(tests, sign), strict=True)
    shown = [
        [r["model"], r["config"]["basis"], r["trials"], round(r["value"], 2), behind, test]
        for r, behind, test in columns
    ]
    return console.table(["family", "basis", "trials", "validation", "behind the winner", "test accuracy"], shown)


def run_best(args: argparse.Namespace) -> int:
    """`codesgc best DIR`: from the storage, finished or not."""
    options = read_options(args.dir)
    need_optuna()
    from codesgc.tuning import report as tuned
    from codesgc.tuning.study import reading

    written = read_outcome(Path(args.dir, "study.json"), "trials")
    more: dict[str, Any] = {}
    if written is not None:
        more = {key: written[key] for key in ("this_worker", "versions", "families", "confirmed") if key in written}
    with reading(args.storage or options.get("storage") or default_storage(args.dir), options["study"]) as study:
        if written is not None and written["trials"] != tuned.counts(
            study.get_trials(deepcopy=False)
        ):  # it has gone on since
            more.pop("confirmed", None)
        data = tuned.summary(study, more)
    if args.json:
        console.show(tuned.dumps(data).rstrip())
        return 0
    show_best(data, [], None, 0)
    found = read_outcome(Path(args.dir, "result.json"), "test_mean", "test_ci95", "runs", "search")
    if found is not None:
        trial = found["search"].get("trial") if isinstance(found["search"], dict) else None
        it = "it" if trial == data["best"]["number"] else f"trial {trial}, the best before"
        sign = console.plus_minus(sys.stdout)
        (text,) = console.intervals([(found["test_mean"], found["test_ci95"])], sign)
        console.show(f"\n{console.counted(len(found['runs']), 'run')} with {it}: test accuracy {text}")
    return 0
