"""What the benchmarks share: options, interleaved timing, and one table with the facts that belong below it.

A reference and its candidates are timed in turns in one process: first once each to warm up, then round after round,
every second round in reverse order, so that what else the machine does meets all of them alike. A ratio is taken
within a round. Cells read `median (least-greatest)` over the rounds.
"""

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import codesgc
from codesgc import Graph, InputError, load_dataset
from codesgc.training.protocol import versions

TEN = ("cora", "citeseer", "pubmed", "computers", "photo", "chameleon", "squirrel", "actor", "texas", "cornell")
Row = dict[str, Any]


# --- options


def parser(description: str | None, datasets: Sequence[str], rounds: int) -> argparse.ArgumentParser:
    """The options that every benchmark has; `datasets` and `rounds` are its defaults."""
    options = argparse.ArgumentParser(
        description=(description or "").partition("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options.add_argument("--datasets", nargs="+", default=list(datasets), metavar="NAME", help="graphs, or: all")
    options.add_argument("--rounds", type=int, default=rounds, help="measurements of each thing")
    options.add_argument("--budget", type=float, default=20.0, help="seconds for one thing, after which rounds are cut")
    options.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of everything measured")
    options.add_argument("--json", metavar="FILE", help="also write all numbers as JSON; '-' prints them instead")
    options.add_argument("--quick", action="store_true", help="one short round: shows that it runs, measures nothing")
    return options


def parse(options: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options as given, applied to the process where they concern it."""
    args = options.parse_args(argv)
    if args.datasets == ["all"]:
        args.datasets = list(TEN)
    if args.quick:
        args.rounds, args.budget = 1, 0.0
    if min(args.rounds, args.threads) < 1:
        options.error("--rounds and --threads: expected whole numbers >= 1")
    torch.set_num_threads(args.threads)
    return args


def normalised(name: str) -> Graph:
    """A published graph as the protocol trains on it: every row of features divided by its sum."""
    try:
        return load_dataset(name).row_normalised()
    except (InputError, OSError) as error:
        raise SystemExit(str(error)) from None


# --- timing


def timed(call: Callable[[], object], repeats: int = 1) -> float:
    """Seconds for one call, over that many in a row."""
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - began) / repeats


def interleaved(
    calls: Mapping[str, Callable[[], object]], rounds: int, *, least: float = 0.05, budget: float = math.inf
) -> dict[str, list[float]]:
    """Seconds a call for each thing in each round; one measurement repeats the call until it lasts `least` seconds.

    There are fewer rounds, but one at least, where the slowest thing would take longer than `budget` in all of them; a
    thing whose first call takes longer than that is not called again.
    """
    once = {name: timed(call) for name, call in calls.items()}
    if max(once.values()) < min(1.0, budget):  # the first call of a short thing is mostly warming up
        once = {name: timed(call) for name, call in calls.items()}
    rounds = max(1, int(min(budget / max(*once.values(), least), rounds)))
    repeats = {name: max(1, math.ceil(least / seconds)) for name, seconds in once.items()}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in list(calls) if i % 2 == 0 else list(calls)[::-1]:
            long = once[name] > budget  # then there is one round only, and the first call was it
            taken[name].append(once[name] if long else timed(calls[name], repeats[name]))
    return taken


def ratios(reference: Sequence[float], candidate: Sequence[float]) -> list[float]:
    """How many times longer the reference took, round by round."""
    return [r / c for r, c in zip(reference, candidate, strict=True)]


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    """Median (least-greatest) of the values times `scale`; the value alone where there is one.

    >>> spread([0.001, 0.003, 0.002], 1e3)
    '2 (1-3)'
    """
    middle, low, high = (f"{scale * v:.3g}" for v in (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({low}-{high})"


def summary(groups: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """Geometric mean and smallest of the ratios in each group: (where, ratio) by group."""
    parts = []
    for group, found in groups.items():
        where, least = min(found, key=lambda pair: pair[1])
        mean = statistics.geometric_mean([ratio for _, ratio in found])
        parts.append(f"{group} {mean:.3g} (smallest {least:.3g}, {where})")
    return "Geometric mean of the ratios: " + "; ".join(parts) + "."


# --- tables


def engine() -> str:
    """Which kernels the library runs here."""
    return codesgc.engine_name()


def cpu() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return (names[0] if names else platform.processor()) or platform.machine()


def machine() -> dict[str, Any]:
    """What the numbers may depend on besides the code."""
    return {
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "engine": engine(),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
    }


@dataclass
class Report:
    """One table: rows of raw numbers, and by heading how a row shows them."""

    title: str
    columns: Mapping[str, Callable[[Row], str]]
    notes: Sequence[str] = ()
    rows: list[Row] = field(default_factory=list)
    last: Callable[[list[Row]], str] | None = None
    packages: Mapping[str, str] = field(default_factory=dict)  # versions of what is compared with

    def fill(self, rows: Iterator[Row]) -> None:
        """Measure; an interruption (Ctrl-C) keeps the rows that are done."""
        try:
            for row in rows:
                self.rows.append(row)
                print(" ".join(show(row) for show in self.columns.values()), file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            self.notes = [*self.notes, "Interrupted: rows are missing."]

    def markdown(self, facts: Mapping[str, Any]) -> str:
        """The table and what belongs below it."""
        cells = [list(self.columns), *([show(row) for show in self.columns.values()] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        left = [not any(row[i][:1].isdigit() for row in cells[1:]) for i in range(len(widths))]
        rule = [":" + "-" * (w - 1) if side else "-" * (w - 1) + ":" for w, side in zip(widths, left, strict=True)]
        lines = [
            "| " + " | ".join(c.ljust(w) if side else c.rjust(w) for c, w, side in zip(row, widths, left, strict=True))
            for row in [cells[0], rule, *cells[1:]]
        ]
        known = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
        about = (
            f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} thread(s), load {facts['load']} at the start; "
            f"{facts['engine']}; {known}; {facts['date']}."
        )
        below = [*([self.last(self.rows)] if self.last and self.rows else []), *self.notes, about]
        return "\n\n".join([f"### {self.title}", "\n".join(line + " |" for line in lines), *below])

    def run(self, args: argparse.Namespace, rows: Iterator[Row]) -> None:
        """Measure the rows and show the table as the options say."""
        facts = machine()
        facts["versions"] = {**facts["versions"], **self.packages}
        self.fill(rows)
        plain = {
            "title": self.title,
            "options": vars(args),
            "rows": self.rows,
            "summary": self.last(self.rows) if self.last and self.rows else None,
            "notes": list(self.notes),
            "machine": facts,
        }
        if args.json == "-":
            print(json.dumps(plain, indent=1))
            return
        if args.json:
            Path(args.json).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        print(self.markdown(facts))
