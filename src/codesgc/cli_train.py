"""`codesgc train`: everything is checked before anything is trained, and what is done is never lost."""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from codesgc import console, settings
from codesgc.datasets.registry import DATASETS
from codesgc.errors import InputError, unknown
from codesgc.files import write_text
from codesgc.zoo import Config, find_model, paper_value
from codesgc.zoo.published import origin

if TYPE_CHECKING:
    from codesgc.graph import Graph
    from codesgc.training import Result


def dataset_name(text: str) -> str:
    """The registered name, whatever its capitals and dashes."""
    name = text.lower().replace("-", "_")
    if name in DATASETS:
        return name
    error = unknown("dataset", text, DATASETS)
    raise InputError(f"{error}; for the file of that name, give ./{text}") if Path(text).is_file() else error


def is_file(dataset: str) -> bool:
    """Whether a DATASET is the path of a file rather than a name."""
    return dataset.endswith(".npz") or any(sep in dataset for sep in (os.sep, os.altsep) if sep)


def load_file(path: str, to_undirected: bool) -> "Graph":
    from codesgc.graph import Graph
    from codesgc.training.protocol import check_trainable

    try:
        graph = Graph.from_npz(path, name=Path(path).name, **({"to_undirected": True} if to_undirected else {}))
    except InputError as error:
        raise InputError(str(error).replace("to_undirected=True", "--to-undirected")) from error
    except TypeError as error:  # arrays of a type that makes no graph
        raise InputError(f"{path}: {error}") from error
    if graph.num_features == 0:
        raise InputError(f"{path} holds no features: expected an array 'x' with a row for each node; save one with it")
    if graph.num_classes == 0:
        raise InputError(f"{path} holds no labels: expected an array 'y' with a class for each node, -1 where unknown")
    check_trainable(graph)
    return graph


def checked_device(text: str) -> str:
    import torch

    kinds = ["cpu", "cuda", "mps", "xpu"]
    if text.partition(":")[0] not in kinds:
        raise unknown("device", text, kinds)
    try:
        device = torch.device(text)
    except RuntimeError:
        raise InputError(f"device {text!r}: expected a kind and a number, as cuda:0") from None
    if device.type != "cpu":
        there = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        number = torch.accelerator.device_count() if there is not None and there.type == device.type else 0
        if (device.index or 0) >= number:
            found = f"{device.type}:0 to {device.type}:{number - 1}" if number else f"no {device.type} device"
            raise InputError(f"device {text!r}: PyTorch {torch.__version__} finds {found} here; --device cpu works")
    return text


def check_writable(file: str, option: str = "--json") -> None:
    """An error now rather than after the work."""
    path = Path(os.path.realpath(file))
    if path.is_dir():
        raise InputError(f"{option} {file}: that is a folder; expected the path of a file")
    if not path.parent.is_dir():
        raise InputError(f"{option} {file}: there is no folder {path.parent}; create it, or choose another path")
    replaced = path.is_file() or not path.exists()  # then a new file is made beside it
    if (not os.access(path, os.W_OK) and path.exists()) or (replaced and not os.access(path.parent, os.W_OK | os.X_OK)):
        raise InputError(f"{option} {file}: it may not be written; choose another path")


def check_folder(out: str) -> None:
    """The folder is there and may be written to, or an error before anything is trained."""
    if not out:
        raise InputError("--out is empty: expected a folder")
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: it cannot be made ({error.strerror}); choose another folder") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: it may not be written; choose another folder")


def as_json(results: Sequence["Result"], dataset: str | None, several: bool) -> str:
    """The results with the paper's values beside them: a list if several models were asked for."""
    found = []
    for result in results:
        value = paper_value(dataset, result.model)
        paper = None if value is None else {"mean": value[0], "ci95": value[1]}
        found.append(result.to_dict() | {"paper": paper})
    return json.dumps(found if several else found[0], indent=2) + "\n"


def measured(result: "Result") -> tuple[float, float | None]:
    """Mean test accuracy and half-width of its interval; one run has no interval."""
    return result.test_mean, result.test_ci95 if len(result.runs) > 1 else None


def result_table(results: Sequence["Result"], dataset: str | None, runs: int, sign: str) -> str:
    """One row a model: the accuracy found, the paper's, and whether their 95 % intervals meet."""
    papers = [paper_value(dataset, result.model) for result in results]
    ours = [measured(result) for result in results]
    meet = [
        "-" if p is None else "yes" if abs(mean - p[0]) <= (half or 0.0) + p[1] else "no"
        for (mean, half), p in zip(ours, papers, strict=True)
    ]
    shown = (console.intervals(values, sign) for values in (ours, papers))
    rows = []
    for result, accuracy, paper, yes in zip(results, *shown, meet, strict=True):
        done = len(result.runs)
        epochs = round(sum(run.epochs for run in result.runs) / done)
        count = done if done == runs else f"{done} of {runs}"
        rows.append([result.model, accuracy, paper, yes, count, epochs, round(result.seconds, 1)])
    return console.table(["model", "test accuracy", "paper", "intervals meet", "runs", "epochs", "seconds"], rows)


def plan(args: argparse.Namespace, dataset: str | None, configs: Sequence[Config]) -> str:
    """One line about what is going to run."""

    def shown(config: Config) -> str:
        base = origin(dataset, config.model)
        return f"{config.model} ({base} settings{f', {len(args.changes)} changed' if args.changes else ''})"

    what = ", ".join(shown(config) for config in configs)
    each = " each" * (len(configs) > 1)
    return f"{args.dataset}: {what}; {console.counted(args.runs, 'run')}{each}, {args.protocol} protocol, {args.device}"


@contextmanager
def terminated_like_interrupted() -> Iterator[list[int]]:
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does; the list then holds the signal's number."""
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


def run_training(args: argparse.Namespace) -> int:
    # What can be checked without torch, then without data, then without training: mistakes are to be answered early.
    own_file = is_file(args.dataset)
    dataset = None if own_file else dataset_name(args.dataset)
    if args.to_undirected and not own_file:
        raise InputError(
            "--to-undirected is for files of your own: the registered datasets are undirected; leave it out"
        )
    models = list(dict.fromkeys(find_model(name).model for name in args.model or ["L-CP"]))
    args.changes = settings.parse_settings(args.set)
    configs = [settings.requested(dataset, model, args.changes) for model in models]
    if args.json not in (None, "-"):
        check_writable(args.json)

    import torch

    from codesgc.datasets import load_dataset
    from codesgc.names import fitted
    from codesgc.training import PROTOCOLS

    if args.protocol not in PROTOCOLS:
        raise unknown("protocol", args.protocol, PROTOCOLS)
    args.device = checked_device(args.device)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    if dataset is None:
        graph = load_file(args.dataset, args.to_undirected)
        channels, classes = graph.num_features, graph.num_classes
    else:
        channels, classes = DATASETS[dataset].features, DATASETS[dataset].classes
    configs = [fitted(config, args.changes) for config in configs]
    for config in configs:
        settings.check(config, channels, classes)
    if not args.quiet and console.on_terminal(sys.stderr):
        console.show(plan(args, dataset, configs), sys.stderr)
    if dataset is not None:
        graph = load_dataset(dataset)
    return train_all(args, graph, dataset, configs)


def train_all(args: argparse.Namespace, graph: "Graph", dataset: str | None, configs: Sequence[Config]) -> int:
    """Train one model after the other; whatever ends this, what is done is written and shown."""
    from codesgc.training import train

    results: list[Result] = []
    watched = not args.quiet and console.on_terminal(sys.stderr)
    several, stopped = len(configs) > 1, False
    try:
        with terminated_like_interrupted() as received:
            for config in configs:
                bar = console.ProgressBar(config.model, args.runs, config, sys.stderr) if watched else nullcontext()
                with bar as progress:
                    result = train(
                        graph,
                        config,
                        runs=args.runs,
                        seed=args.seed,
                        protocol=args.protocol,
                        device=args.device,
                        population=args.population,
                        progress=progress,
                    )
                results.append(result)
                if result.diverged:
                    seeds = ", ".join(map(str, result.diverged))
                    note = f"diverged, its loss no finite number any more (seeds {seeds}); lower the learning rates"
                    console.show(f"codesgc: {result.model} {note}", sys.stderr)
                if watched and several:
                    (accuracy,) = console.intervals([measured(result)], console.plus_minus(sys.stderr))
                    console.show(f"{result.model}: {accuracy}", sys.stderr)
                if args.json not in (None, "-"):
                    write_text(args.json, as_json(results, dataset, several))
                if result.interrupted:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        stopped = True
    finally:
        if results and args.json == "-":
            console.show(as_json(results, dataset, several).rstrip())
        elif results:
            first = results[0].runs[0].seed
            seeds = f"seed {first}" if args.runs == 1 else f"seeds {first} to {first + args.runs - 1}"
            console.show(f"{results[0].dataset}, {args.protocol} protocol, {seeds}\n")
            console.show(result_table(results, dataset, args.runs, console.plus_minus(sys.stdout)))
    if not stopped:
        return 0
    done, total = sum(len(result.runs) for result in results), args.runs * len(configs)
    console.show(f"codesgc: interrupted, {done} of {console.counted(total, 'run')} done", sys.stderr)
    return 128 + (received[0] if received else signal.SIGINT)
