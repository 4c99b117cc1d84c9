"""The command line: `codesgc models`, `datasets`, `train`, `tune`, `best`, `reproduce`, `report`.

torch is imported by what needs it and not before, so that help, tables and most mistakes are answered at once.
"""

import argparse
import json
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NoReturn

import codesgc
from codesgc import console, settings
from codesgc.cli_best import run_best
from codesgc.cli_report import run_report
from codesgc.cli_reproduce import run_reproduction
from codesgc.cli_study import PRUNERS, seconds
from codesgc.cli_train import dataset_name, run_training
from codesgc.cli_tune import run_tuning
from codesgc.datasets.registry import DATASETS, FILES
from codesgc.errors import InputError, unknown
from codesgc.zoo import MODELS, preset
from codesgc.zoo.published import origin

EXAMPLES = {
    "": """
  codesgc models                      what can be trained
  codesgc datasets                    and on what
  codesgc train cora                  L-CP on Cora as published, ten runs
  codesgc reproduce --table 3         the paper's Table 3
  codesgc report results              one page about it
  codesgc tune cora --out tuned       search for better settings, then ten runs with them
""",
    "models": """
  codesgc models                      every model, one a line
  codesgc models L-CP --dataset cora  its settings on Cora, as --set takes them
""",
    "datasets": """
  codesgc datasets                    every dataset, one a line
""",
    "train": """
  codesgc train cora                  L-CP with its published settings, ten runs
  codesgc train cora --model L-CP L-Tucker GPR-GNN
  codesgc train texas --model H-CP --runs 3 --set order=5 lr.C=0.05 dropout=0.3
  codesgc train mine.npz --to-undirected --json result.json
  codesgc train cora --json - | jq .test_mean
""",
    "reproduce": """
  codesgc reproduce                   every cell of Tables 2 and 3, cheap graphs first
  codesgc reproduce --table 3 --datasets texas cornell
  codesgc reproduce --models SGC S2GC ChebNetII FavardGNN OptBasisGNN
  codesgc reproduce --datasets cora --models L-CP --keep
""",
    "report": """
  codesgc report results -o report.html
  codesgc report results/paper/cora mine.json
  codesgc report results --markdown
  codesgc report results --markdown --update docs/results.md
""",
    "tune": """
  codesgc tune cora --out tuned       the paper's search for L-CP: 400 trials of three runs, then ten runs
  codesgc tune --resume tuned         go on after an interruption
  codesgc tune texas --model auto --time-budget 10m --pruner halving --out tuned
  codesgc tune cora --space rank=8:32:8 lr=0.001:0.1:log dropout.C=0 --out tuned
  codesgc tune cora --storage postgresql://USER@HOST/NAME --out tuned    on every machine that helps
""",
    "best": """
  codesgc best tuned                  the best setting so far
  codesgc best tuned --json | jq .best.params
""",
}


class Parser(argparse.ArgumentParser):
    """Its errors are InputErrors, so that all mistakes are answered in one way."""

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument ([^:]+):(?= ')|^argument ", r"\1", message)
        if message == "the following arguments are required: DATASET":
            message = "DATASET is missing: expected it before the options, as in: codesgc train cora --model L-CP"
        raise InputError(message)


class Version(argparse.Action):
    """Prints the version, and whether the native kernels are there."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        console.show(f"codesgc {codesgc.__version__}, {codesgc.engine_name()}")
        parser.exit()


def whole(least: int, most: int = 10**9) -> Any:
    """The type of an option that takes a whole number."""

    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", text) or not least <= int(text) <= most:
            limit = f" and <= {most}" if most < 10**9 else ""
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number >= {least}{limit}")
        return int(text)

    return convert


def make_parser() -> tuple[Parser, dict[str, Any]]:
    """The parser, and those of the commands."""

    def dressed(command: str) -> dict[str, Any]:
        return {
            "allow_abbrev": False,
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            "epilog": "examples:" + EXAMPLES[command].rstrip(),
        }

    description = "Spectral graph convolutions as decompositions of one coefficient tensor."
    parser = Parser(prog="codesgc", description=description, **dressed(""))
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and the engine")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, text: str) -> Parser:
        return commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", **dressed(name))

    models = command("models", "list the models, or the settings of one")
    models.add_argument("name", metavar="NAME", nargs="?", help="a model, to see its settings")
    models.add_argument("--dataset", metavar="D", help="with NAME: its published settings for that dataset")
    models.add_argument("--json", action="store_true", help="print JSON")

    datasets = command("datasets", "list the datasets")
    datasets.add_argument("--json", action="store_true", help="print JSON")

    train = command("train", "train models by the paper's protocol")
    add = train.add_argument
    add("dataset", metavar="DATASET", help="a name from 'codesgc datasets', or the path of an .npz file of your own")
    add("--model", metavar="NAME", nargs="+", action="extend", help="one or more of 'codesgc models' (default: L-CP)")
    add("--runs", metavar="N", type=whole(1), default=10, help="runs, each with its own split and start (default: 10)")
    add("--seed", metavar="S", type=whole(0), default=0, help="seed of the first run; the others follow (default: 0)")
    add(
        "--set",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="change a setting of every model; 'codesgc models NAME' shows the keys",
    )
    add("--protocol", metavar="P", default="paper", help="paper, or strict: splits no search has seen (default: paper)")
    add_machine_options(train, "cpu")
    add("--to-undirected", action="store_true", help="for a file: add the missing directions of its edges")
    add("--json", metavar="FILE", help="write configuration, runs and summary there; - prints them, and nothing else")
    add("--quiet", action="store_true", help="no progress; the table alone")

    reproduce = command("reproduce", "run the cells of the paper's tables that are not there yet")
    add = reproduce.add_argument
    add("--table", metavar="N", default="all", help="2, 3 or all (default: all)")
    add("--datasets", metavar="D", nargs="+", action="extend", help="these graphs (default: the paper's ten)")
    add("--models", metavar="NAME", nargs="+", action="extend", help="these models, in place of those of the tables")
    add("--runs", metavar="N", type=whole(1), default=10, help="runs of each cell (default: 10)")
    add("--protocol", metavar="P", default="paper", help="paper, or strict: splits no search has seen (default: paper)")
    add("--out", metavar="DIR", default="results", help="write DIR/PROTOCOL/DATASET/MODEL.json (default: results)")
    add(
        "--keep",
        action="store_true",
        help="write MODEL.model.json, too: what the first run has learned, for the report",
    )
    add("--again", action="store_true", help="run every cell, whether it is there or not")
    add_machine_options(reproduce, "cpu")
    add("--quiet", action="store_true", help="no progress; the tables alone")

    report = command("report", "make one page, or tables of Markdown, of result files")
    add = report.add_argument
    add("results", metavar="RESULTS", nargs="*", help="result files, and folders of them (default: results)")
    add("-o", "--output", metavar="FILE", default="report.html", help="the page (default: report.html)")
    add("--title", metavar="TEXT", help="its title")
    add("--markdown", action="store_true", help="print the tables as Markdown, and write no page")
    add("--update", metavar="FILE", help="with --markdown: put them into FILE, between its markers")

    tune = command("tune", "search for settings, then train with the best")
    add_tune_options(tune)

    best = command("best", "show the outcome of a search, finished or not")
    best.add_argument("dir", metavar="DIR", help="the folder that --out named")
    best.add_argument("--storage", metavar="URL", help="where the study is (default: where it was begun)")
    best.add_argument("--json", action="store_true", help="print JSON, with all trials")
    return parser, dict(commands.choices)


def add_machine_options(command: Parser, device: str | None) -> None:
    """Where and how wide a command computes."""
    add = command.add_argument
    add("--device", metavar="D", default=device, help="cpu, cuda, cuda:1, ... (default: cpu)")
    add("--threads", metavar="N", type=whole(1, 1024), help="threads of the CPU (default: as many as PyTorch takes)")
    add("--population", metavar="B", type=whole(1), help="runs that train at once (default: what suits the machine)")


def add_tune_options(tune: Parser) -> None:
    """Those of `codesgc tune`; what is not given is None, so that a folder's own options can stand behind it."""
    add = tune.add_argument
    add("dataset", metavar="DATASET", nargs="?", help="a name from 'codesgc datasets', or the path of an .npz file")
    add("--model", metavar="NAME", help="one of 'codesgc models', or auto: search over families too (default: L-CP)")
    add("--trials", metavar="N", type=whole(1), help="settings to try, by all workers together (default: 400)")
    add("--time-budget", metavar="T", type=seconds, help="start no trial after this time: 90s, 10m, 2h")
    add("--runs", metavar="N", type=whole(1), help="runs of each trial, with seeds 0, 1, ... (default: 3)")
    add("--confirm", metavar="N", type=whole(0), help="choose among the N best on ten more splits (default: 0, off)")
    add("--final-runs", metavar="N", type=whole(0), help="runs with the best setting at the end (default: 10)")
    add("--protocol", metavar="P", help="paper, or strict: report on splits no search has seen (default: paper)")
    add("--out", metavar="DIR", help="folder for options, study and result")
    add("--resume", metavar="DIR", help="go on with the search in that folder, with its options")
    add("--storage", metavar="URL", help="sqlite:///FILE, postgresql://..., or a journal file (default: DIR/study.log)")
    add("--study", metavar="NAME", help="name in the storage (default: dataset, model and protocol)")
    add("--seed", metavar="S", type=whole(0), help="seed of the sampler (default: 0)")
    add("--set", metavar="KEY=VALUE", nargs="+", action="extend", help="a setting that is not searched")
    add("--space", metavar="KEY=VALUES", nargs="+", action="extend", help="V1,V2,... or LOW:HIGH[:STEP] or VALUE")
    add("--space-file", metavar="FILE", help="the same as JSON")
    add("--pruner", metavar="P", help=f"end bad trials early: {', '.join(PRUNERS)} (default: none, as in the paper)")
    add_machine_options(tune, None)
    add("--heartbeat", metavar="SECONDS", type=whole(1), help="on a server: a worker silent for three is dead (20)")
    add(
        "--to-undirected", action="store_true", default=None, help="for a file: add the missing directions of its edges"
    )
    add("--quiet", action="store_true", default=None, help="no progress; the outcome alone")


def parse(argv: Sequence[str]) -> argparse.Namespace | None:
    """The arguments, or None if there are none; a word that is not known is an error that names the nearest one."""
    parser, commands = make_parser()
    word = next((text for text in argv if not text.startswith("-")), None)
    if word is not None and word not in commands:
        raise unknown("command", word, commands)
    args, rest = parser.parse_known_args(argv)
    for text in rest:
        if text.startswith("-") and text != "-":
            options = commands[args.command]._option_string_actions if args.command else ["--help", "--version"]
            raise unknown("option", text.partition("=")[0], [name for name in options if name.startswith("--")])
    if rest:
        raise InputError(f"{rest[0]!r} is one argument too many; 'codesgc {args.command} --help' lists those expected")
    if args.command is None:
        parser.print_help()
        return None
    return args


# --- codesgc models, codesgc datasets


def show_models(args: argparse.Namespace) -> int:
    if args.name is not None:
        return show_model(args)
    if args.dataset is not None:
        raise InputError("--dataset was given without a model: expected NAME, as in: codesgc models L-CP --dataset D")
    if args.json:
        console.show(json.dumps([row.to_dict() for row in MODELS.values()], indent=2))
        return 0
    header = ["model", "architecture", "basis", "matrix", "decomposition", "order"]
    rows = [[getattr(row, field) for field in ("model", *header[1:])] for row in MODELS.values()]
    console.show(console.table(header, rows))
    return 0


def show_model(args: argparse.Namespace) -> int:
    """The settings of one model, each as `--set` takes it."""
    dataset = None if args.dataset is None else dataset_name(args.dataset)
    config = preset(dataset, args.name)
    if args.json:
        console.show(json.dumps(config.to_dict(), indent=2))
        return 0
    hint = "default settings; --dataset D shows those of a dataset"
    where = f" ({hint})" if dataset is None else f", {origin(dataset, args.name)} settings"
    console.show(f"{config.model}{'' if dataset is None else f' on {dataset}'}{where}\n")
    for key, value in settings.listed(config):
        console.show(f"  {key}={value}")
    console.show("\nWhat may be chosen:")
    for key, known in settings.choices().items():
        console.show(textwrap.fill(f"{key}: {', '.join(known)}", 100, initial_indent="  ", subsequent_indent="    "))
    console.show(f"\nTo change some: codesgc train {dataset or 'cora'} --model {config.model} --set order=5 lr=0.01")
    return 0


def show_datasets(args: argparse.Namespace) -> int:
    if args.json:
        console.show(json.dumps([asdict(dataset) for dataset in DATASETS.values()], indent=2))
        return 0
    rows, sources = [], dict[str, list[str]]()
    for d in DATASETS.values():
        size = sum(FILES[file].size for file in d.files)
        files = f"downloaded once, {max(size / 1e6, 0.1):.1f} MB" if d.files else "in the package"
        kind = "homophilic" if d.homophilic else "heterophilic"
        rows.append([d.name, d.nodes, d.edges, d.features, d.classes, kind, files])
        sources.setdefault(d.source, []).append(d.name)
    console.show(console.table(["dataset", "nodes", "edges", "features", "classes", "neighbours", "files"], rows))
    console.show("")
    for source, named in sources.items():
        console.show(f"{', '.join(named)}: {source}")
    return 0


# --- entry point


def out_of_memory(error: BaseException) -> bool:
    """Python's, the CPU allocator's, or CUDA's way of saying so; the second is a RuntimeError like any other."""
    words = ("can't allocate memory", "not enough memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def silence_stdout() -> None:
    """Nobody reads it any more; without this the interpreter may complain when it flushes on the way out."""
    if sys.stdout is not None:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


COMMANDS = {
    "models": show_models,
    "datasets": show_datasets,
    "train": run_training,
    "reproduce": run_reproduction,
    "report": run_report,
    "tune": run_tuning,
    "best": run_best,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0, 2 for a mistake of the user's, 130 after Ctrl-C, 141 for a closed pipe."""
    try:
        try:
            args = parse(sys.argv[1:] if argv is None else argv)
            return 0 if args is None else COMMANDS[args.command](args)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        return 141
    except KeyboardInterrupt:
        console.show("codesgc: interrupted", sys.stderr)
        return 130
    except (InputError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not out_of_memory(error):
            raise
        if out_of_memory(error):
            message = "out of memory; a smaller --population, rank or order takes less"
        else:
            message = " ".join(str(error).split())
        console.show(f"codesgc: error: {message}", sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
