"""What came of a search: its files, its best setting and the runs with it; `codesgc best` shows it at any time."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codesgc import cli_train, console, settings
from codesgc.cli_study import default_storage, need_optuna, read_options, read_outcome
from codesgc.files import write_text
from codesgc.zoo import Config

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from codesgc.graph import Graph
    from codesgc.training import Result
    from codesgc.tuning.confirm import Confirmed
    from codesgc.tuning.driver import Search
    from codesgc.tuning.study import Study


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
