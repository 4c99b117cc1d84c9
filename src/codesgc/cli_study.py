"""The folder of a search: its options, which --resume takes up again, and what it wrote at its end."""

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any

from codesgc import cli_train
from codesgc.errors import InputError
from codesgc.files import write_text

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
