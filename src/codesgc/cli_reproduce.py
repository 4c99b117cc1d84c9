"""`codesgc reproduce`: the cells of the paper's tables, one result file each; what is there is not run again."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from codesgc import console, settings
from codesgc.cli_train import as_json, check_folder, checked_device, dataset_name, measured, terminated_like_interrupted
from codesgc.datasets.registry import DATASETS
from codesgc.errors import InputError, unknown
from codesgc.files import write_text
from codesgc.report import reading, tables
from codesgc.zoo import Config, find_model, paper_value, preset
from codesgc.zoo.published import TABLES, paper_datasets

if TYPE_CHECKING:
    from codesgc.training import Result


@dataclass(frozen=True, eq=False)
class Place:
    """Where a cell is, and what belongs in it."""

    dataset: str
    config: Config
    protocol: str
    runs: int
    folder: Path

    @property
    def label(self) -> str:
        return f"{self.dataset} {self.config.model}"

    @property
    def result(self) -> Path:
        return self.folder / self.protocol / self.dataset / f"{self.config.model}.json"

    @property
    def recording(self) -> Path:
        return self.result.with_suffix(".model.json")

    @property
    def size(self) -> int:
        """What an epoch costs, very roughly: cells are run in this order, and the time left is told by it."""
        return DATASETS[self.dataset].nodes + DATASETS[self.dataset].edges

    def cell(self) -> reading.Cell | None:
        """The finished result that is there, if it is of this configuration, these runs and this protocol."""
        try:
            found = reading.cell(reading.mapping(reading.parsed(self.result), "the file"), str(self.result))
        except reading.Foreign:
            return None
        wanted = (self.protocol, self.dataset, self.config.model)
        same = found.key == wanted and found.config == self.config.to_dict() and len(found.runs) == self.runs
        return found if same and not found.interrupted else None

    def recorded(self) -> bool:
        """Whether the recording that is there is of this configuration."""
        try:
            data = reading.mapping(reading.parsed(self.recording), "the file")
            reading.recording(data)
        except reading.Foreign:
            return False
        return data.get("config") == self.config.to_dict()


def chosen_models(names: Sequence[str] | None, table: str) -> list[str]:
    """Models by name, or those of the tables."""
    if names is not None:
        return list(dict.fromkeys(find_model(name).model for name in names))
    numbers = [*TABLES] if table == "all" else [table]
    if any(number not in TABLES for number in numbers):
        raise unknown("table", table, [*TABLES, "all"])
    return list(dict.fromkeys(model for number in numbers for model in TABLES[number]))


def places(args: argparse.Namespace) -> list[Place]:
    """The cells that were asked for, cheap graphs first."""
    names = paper_datasets() if args.datasets is None else [dataset_name(name) for name in args.datasets]
    models = chosen_models(args.models, args.table)
    found = [
        Place(dataset, preset(dataset, model), args.protocol, args.runs, Path(args.out))
        for dataset in dict.fromkeys(names)
        for model in models
    ]
    return sorted(found, key=lambda place: (place.size, place.dataset))


def run_reproduction(args: argparse.Namespace) -> int:
    wanted = places(args)
    if args.threads is not None:
        import torch

        torch.set_num_threads(args.threads)
    from codesgc.training import PROTOCOLS

    if args.protocol not in PROTOCOLS:
        raise unknown("protocol", args.protocol, PROTOCOLS)
    args.device = checked_device(args.device)
    for place in wanted:
        settings.check(place.config, DATASETS[place.dataset].features, DATASETS[place.dataset].classes)
    check_folder(args.out)
    there = {} if args.again else {place: cell for place in wanted if (cell := place.cell()) is not None}
    waiting = [p for p in wanted if p not in there or (args.keep and not p.recorded())]
    if there and not args.quiet:
        console.show(f"{console.counted(len(there), 'cell')} of {len(wanted)} found in {args.out}", sys.stderr)
    failed: list[Place] = []
    stopped: int | None = None
    with terminated_like_interrupted() as received:
        try:
            for i, place in enumerate(waiting):
                after = sum(other.size for other in waiting[i + 1 :]) / place.size
                number = f"{len(wanted) - len(waiting) + i + 1}/{len(wanted)}"
                try:
                    run_cell(args, place, place in there, number, after)
                except (InputError, MemoryError) as error:
                    failed.append(place)
                    reason = " ".join(str(error).split()) or "out of memory"
                    console.show(f"codesgc: {place.label} is left out: {reason}", sys.stderr)
        except KeyboardInterrupt:
            stopped = 128 + (received[0] if received else signal.SIGINT)
    show_tables(wanted)
    if stopped is not None:
        done = sum(place.cell() is not None for place in wanted)
        console.show(
            f"codesgc: interrupted, {done} of {console.counted(len(wanted), 'cell')} done; "
            "the same command goes on from here",
            sys.stderr,
        )
        return stopped
    return 2 if failed else 0


def run_cell(args: argparse.Namespace, place: Place, there: bool, number: str, after: float) -> None:
    """Train one cell and write its files; `after` is the work that waits behind it, in multiples of its own."""
    from codesgc.datasets import load_dataset
    from codesgc.training import train

    graph = load_dataset(place.dataset)
    if not there:
        watched = not args.quiet and console.on_terminal(sys.stderr)
        label = f"{number} {place.label}"
        bar = console.ProgressBar(label, place.runs, place.config, sys.stderr, after) if watched else nullcontext()
        with bar as progress:
            result = train(
                graph,
                place.config,
                runs=place.runs,
                protocol=place.protocol,
                device=args.device,
                population=args.population,
                progress=progress,
            )
        if result.interrupted:
            raise KeyboardInterrupt
        place.result.parent.mkdir(parents=True, exist_ok=True)
        write_text(place.result, as_json([result], place.dataset, several=False))
        if not args.quiet:
            console.show(f"{number} {line(place, result)}", sys.stderr)
    if args.keep:
        from codesgc.recording import record

        began = time.perf_counter()
        data = record(graph, place.config, protocol=place.protocol)
        write_text(place.recording, json.dumps(data, separators=(",", ":")) + "\n")
        if not args.quiet:
            seconds = console.duration(time.perf_counter() - began)
            console.show(f"{number} {place.label}: recorded, {seconds}", sys.stderr)


def line(place: Place, result: "Result") -> str:
    """A finished cell in one line."""
    sign = console.plus_minus(sys.stderr)
    (ours,) = console.intervals([measured(result)], sign)
    paper = paper_value(place.dataset, place.config.model)
    text = f"{place.label}: {ours}"
    if paper is not None:
        text += f", paper {console.intervals([paper], sign)[0]}"
    return f"{text}, {console.duration(result.seconds)}"


def show_tables(wanted: Sequence[Place]) -> None:
    """Graphs by models; an asterisk where the 95 % intervals do not meet."""
    cells = [cell for place in wanted if (cell := place.cell()) is not None]
    sign = console.plus_minus(sys.stdout)
    for table in tables.tables(cells):
        rows = []
        for dataset in table.datasets:
            row = [table.cells.get((dataset, model)) for model in table.models]
            rows.append([dataset, *(text_cell(cell, sign) for cell in row)])
        console.show(f"{table.title}, {table.protocol} protocol\n")
        console.show(console.table(["", *table.models], rows) + "\n")
    summary = tables.count(cells)
    if summary.meet < summary.total:
        console.show("* the 95 % intervals do not meet")
    if summary.total:
        console.show(str(summary))


def text_cell(cell: reading.Cell | None, sign: str) -> str:
    if cell is None:
        return "-"
    return tables.accuracy(cell).replace("±", sign) + ("*" if cell.meets is False else "")
