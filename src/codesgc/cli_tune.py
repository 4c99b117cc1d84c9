"""`codesgc tune`: a search for settings that can be stopped, resumed and joined."""

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from codesgc import cli_train, console, settings
from codesgc.cli_best import report
from codesgc.cli_study import MANY, PRUNERS, complete, default_storage, need_optuna, write_options
from codesgc.datasets.registry import DATASETS
from codesgc.errors import InputError, unknown
from codesgc.zoo import find_model

if TYPE_CHECKING:
    from codesgc.graph import Graph
    from codesgc.tuning.driver import Search
    from codesgc.tuning.study import Study


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
