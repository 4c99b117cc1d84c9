"""Result files, recordings and studies, read with distrust: what cannot be used is named with its reason and left out.

Four kinds of JSON are understood: a result of `codesgc train --json` or `codesgc reproduce`, a list of such results, a
recording of `codesgc reproduce --keep`, and a study with its trials.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from codesgc.errors import InputError
from codesgc.zoo import MODELS, preset
from codesgc.zoo.published import paper_datasets

SILENT = ("options.json",)  # lies beside a study and holds no results
LARGEST = 64 << 20  # bytes; a result has some thousand, a recording some hundred thousand
LONGEST = 200  # characters of a name
GREATEST = 1e30  # numbers beyond it are no measurements, and sums of them overflow


class Foreign(Exception):
    """This is not data that a report can show; the message says why."""


@dataclass(frozen=True)
class Cell:
    """One model on one graph: test accuracy in per cent, mean and half-width of the 95 % interval."""

    dataset: str
    model: str
    protocol: str
    mean: float
    half: float
    runs: tuple[tuple[int, float], ...]  # (seed, test accuracy)
    paper: tuple[float, float] | None
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False
    source: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.protocol, self.dataset, self.model

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None else self.mean - self.paper[0]

    @property
    def meets(self) -> bool | None:
        """Whether our 95 % interval and the paper's have a point in common."""
        return None if self.paper is None else abs(self.mean - self.paper[0]) <= self.half + self.paper[1]


@dataclass(frozen=True)
class Study:
    """A search: its trials as (number, state, value, parameters)."""

    dataset: str
    model: str
    trials: tuple[tuple[int, str, float | None, Mapping[str, Any]], ...]
    source: str = ""

    @property
    def best(self) -> float | None:
        """The greatest value of a complete trial."""
        values = [value for _, state, value, _ in self.trials if state == "COMPLETE" and value is not None]
        return max(values, default=None)


@dataclass
class Material:
    """All that a report is made of, and the files that were left out with the reason of each."""

    cells: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    recordings: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    studies: list[Study] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)  # what was read, by its real path

    @property
    def empty(self) -> bool:
        return not (self.cells or self.recordings or self.studies)

    def skip(self, source: str, reason: str) -> None:
        self.skipped.append((printable(source), printable(reason)))


def printable(text: str) -> str:
    """In one line, without control characters and lone surrogates, which no encoding has."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


# --- checked values: each raises Foreign


def name(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value.strip():
        raise Foreign(f"{key!r} is {shown(value)}: expected a name")
    text = printable(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def number(value: Any, label: str, least: float = -GREATEST, greatest: float = GREATEST) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Foreign(f"{label} is {shown(value)}: expected a number")
    try:
        value = float(value)
    except OverflowError:
        raise Foreign(f"{label} is out of range") from None
    if not least <= value <= greatest:
        raise Foreign(f"{label} is {value:g}: expected a number from {least:g} to {greatest:g}")
    return value


def per_cent(value: Any, label: str) -> float:
    return number(value, label, 0, 100)


def whole(value: Any, label: str) -> int:
    value = number(value, label, 0, 2**53)
    if value != int(value):
        raise Foreign(f"{label} is {value:g}: expected a whole number")
    return int(value)


def entries(value: Any, label: str, most: int = 100_000) -> list[Any]:
    if not isinstance(value, list) or not 0 < len(value) <= most:
        raise Foreign(f"{label} is {shown(value)}: expected a list of 1 to {most} entries")
    return value


def mapping(value: Any, label: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Foreign(f"{label} is {shown(value)}: expected an object")
    return value


def numbers(value: Any, label: str, *shape: int | None) -> list[Any]:
    """Nested lists of finite numbers of that shape, None for any length."""
    items = entries(value, label, 4096)
    if shape[0] is not None and len(items) != shape[0]:
        raise Foreign(f"{label} has {len(items)} entries: expected {shape[0]}")
    if len(shape) == 1:
        return [number(item, label) for item in items]
    found = [numbers(item, label, *shape[1:]) for item in items]
    if len({len(row) for row in found}) > 1:
        raise Foreign(f"{label} has rows of different lengths")
    return found


def shown(value: Any) -> str:
    """A value in a message: short."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} with {len(value)} entries"
    text = json.dumps(value) if isinstance(value, str | bool | None) else str(value)[:40]
    return text if len(text) <= 40 else text[:39] + "…"


# --- the four kinds


def cell(data: Mapping[str, Any], source: str) -> Cell:
    """A result of `codesgc train --json`, or of a search, which stands beside that with published settings."""
    searched = ", searched" if "search" in data else ""
    runs = []
    for i, run in enumerate(entries(data.get("runs"), "'runs'")):
        run = mapping(run, f"run {i}")
        runs.append((whole(run.get("seed"), f"seed of run {i}"), per_cent(run.get("test_accuracy"), f"run {i}")))
    paper = data.get("paper")
    if paper is not None:
        paper = mapping(paper, "'paper'")
        paper = (per_cent(paper.get("mean"), "the paper's mean"), per_cent(paper.get("ci95"), "the paper's interval"))
    versions = mapping(data.get("versions", {}), "'versions'")
    mean = per_cent(data.get("test_mean"), "'test_mean'")
    if abs(mean - sum(accuracy for _, accuracy in runs) / len(runs)) > 1e-6:
        raise Foreign("'test_mean' is not the mean of the runs: the file was changed by hand or damaged")
    return Cell(
        name(data, "dataset"),
        name(data, "model") + searched,
        name(data, "protocol"),
        mean,
        per_cent(data.get("test_ci95"), "'test_ci95'"),
        tuple(sorted(runs)),
        paper,
        mapping(data.get("config", {}), "'config'"),
        {printable(str(key))[:40]: printable(str(value))[:80] for key, value in list(versions.items())[:20]},
        number(data.get("seconds", 0.0), "'seconds'", 0),
        data.get("interrupted") is True,
        source,
    )


def changed(found: Cell) -> bool:
    """Whether a model of the zoo has other settings than its preset for that graph: the paper measured another one."""
    known = found.model in MODELS and found.dataset in paper_datasets() and bool(found.config)
    return known and found.config != preset(found.dataset, found.model).to_dict()


def recording(data: Mapping[str, Any]) -> dict[str, Any]:
    """A recording of `codesgc reproduce --keep`: everything that is drawn, and nothing else."""
    curve = mapping(data.get("curve"), "'curve'")
    epochs = numbers(curve.get("epoch"), "'epoch'", None)
    spectrum = mapping(data.get("spectrum"), "'spectrum'")
    share = [number(s, "'share'", 0, 1) for s in numbers(spectrum.get("share"), "'share'", None)]
    return {
        "dataset": name(data, "dataset"),
        "model": name(data, "model"),
        "protocol": name(data, "protocol"),
        "seed": whole(data.get("seed"), "'seed'"),
        "best_epoch": whole(data.get("best_epoch"), "'best_epoch'"),
        "curve": {"epoch": epochs}
        | {key: numbers(curve.get(key), f"{key!r}", len(epochs)) for key in ("loss", "val", "test")},
        "spectrum": {
            "matrix": name(spectrum, "matrix"),
            "edges": numbers(spectrum.get("edges"), "'edges'", len(share) + 1),
            "share": share,
        },
        "layers": [layer(mapping(each, "a layer")) for each in entries(data.get("layers"), "'layers'", 16)],
    }


def layer(data: Mapping[str, Any]) -> dict[str, Any]:
    outputs = [whole(j, "an output channel") for j in entries(data.get("outputs"), "'outputs'", 64)]
    grid = numbers(data.get("grid"), "'grid'", None)
    W = mapping(data.get("W"), "'W'")
    inputs = [whole(i, "an input channel") for i in entries(W.get("inputs"), "'inputs'", 64)]
    factors = mapping(data.get("factors"), "'factors'")
    return {
        "in": whole(data.get("in"), "'in'"),
        "out": whole(data.get("out"), "'out'"),
        "outputs": outputs,
        "grid": grid,
        "size": numbers(data.get("size"), "'size'", len(outputs), len(grid)),
        "main": numbers(data.get("main"), "'main'", len(outputs), len(grid)),
        "W": {
            "norm": numbers(W.get("norm"), "norms of W", len(outputs), None),
            "inputs": inputs,
            "slices": numbers(W.get("slices"), "slices of W", len(inputs), len(outputs), None),
        },
        "factors": [factor(key, mapping(value, f"factor {key!r}")) for key, value in list(factors.items())[:24]],
    }


def factor(key: str, data: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": printable(key)[:40]}
    found["shape"] = [whole(n, "a shape") for n in entries(data.get("shape"), "'shape'", 3)]
    if "slices" in data:
        found["axis"] = whole(data.get("axis"), "'axis'")
        found["norm"] = numbers(data.get("norm"), "'norm'", None, None)
        found["index"] = [whole(i, "an index") for i in entries(data.get("index"), "'index'", 64)]
        found["slices"] = numbers(data.get("slices"), "'slices'", len(found["index"]), None, None)
    else:
        found["rows"] = [whole(i, "a row") for i in entries(data.get("rows"), "'rows'", 4096)]
        found["values"] = numbers(data.get("values"), "'values'", len(found["rows"]), None)
    return found


def study(data: Mapping[str, Any], source: str) -> Study:
    """A study: `dataset`, `model`, and its trials with number, state, value and params: "all", or else "trials"."""
    trials = []
    for i, trial in enumerate(entries(data.get("all", data.get("trials")), "its trials")):
        trial = mapping(trial, f"trial {i}")
        params = mapping(trial.get("params", {}), f"parameters of trial {i}")
        for key, value in params.items():
            if not isinstance(value, str | bool | int | float | None):
                raise Foreign(f"parameter {shown(key)} of trial {i} is {shown(value)}: expected a number or a word")
            if isinstance(value, int | float) and not isinstance(value, bool):
                number(value, f"parameter {shown(key)} of trial {i}")
        value = trial.get("value")
        trials.append(
            (
                whole(trial.get("number", i), f"number of trial {i}"),
                str(trial.get("state", "COMPLETE")).upper()[:20],
                None if value is None else number(value, f"value of trial {i}"),
                {
                    printable(key)[:60]: printable(value)[:60] if isinstance(value, str) else value
                    for key, value in params.items()
                },
            )
        )
    return Study(name(data, "dataset"), name(data, "model"), tuple(trials), source)


# --- files


def parsed(path: Path) -> Any:
    """The JSON in a file, or Foreign."""

    def not_json(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    try:
        if path.stat().st_size > LARGEST:
            raise Foreign(f"it has more than {LARGEST >> 20} MiB")
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise Foreign(f"it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Foreign("it is no text") from None
    if not text.strip():
        raise Foreign("it is empty")
    try:
        return json.loads(text, parse_constant=not_json)
    except RecursionError:
        raise Foreign("it is nested too deeply") from None
    except ValueError as error:
        raise Foreign(f"it is broken or truncated JSON ({error})") from None


def add(material: Material, data: Any, source: str) -> None:
    """Put what one file holds into the material, or raise Foreign."""
    if isinstance(data, list):
        for entry in entries(data, "it"):
            add(material, mapping(entry, "an entry of its list"), source)
        return
    data = mapping(data, "its content")
    if "layers" in data and "spectrum" in data:
        found = recording(data)
        material.recordings.setdefault((found["protocol"], found["dataset"], found["model"]), found)
    elif isinstance(data.get("all"), list) or isinstance(data.get("trials"), list):
        material.studies.append(study(data, source))
    elif "runs" in data:
        result = cell(data, source)
        if changed(result):
            result = replace(result, model=f"{result.model}, changed")
        first = material.cells.setdefault(result.key, result)
        if first is not result:
            raise Foreign(f"{result.dataset} {result.model} ({result.protocol}) is in {first.source} already")
    else:
        raise Foreign("it is no result of codesgc train or codesgc reproduce, no recording and no study")


def files(paths: Iterable[str]) -> Iterator[Path]:
    """Files as they are named; of folders every .json below them, in order of their names."""
    for text in paths:
        path = Path(text)
        if path.is_dir():
            yield from sorted(f for f in path.rglob("*.json") if not f.name.startswith(".") and f.name not in SILENT)
        elif path.exists():
            yield path
        else:
            raise InputError(f"{text}: there is no such file or folder; expected result files, or a folder of them")


def read(paths: Sequence[str]) -> Material:
    """Everything usable in these files and folders."""
    material = Material()
    for path in files(paths):
        material.files.add(os.path.realpath(path))
        try:
            add(material, parsed(path), str(path))
        except Foreign as reason:
            material.skip(str(path), str(reason))
    return material
