"""The command line: what it prints, what it writes, and one line for every mistake."""

import contextlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import codesgc
from codesgc import console
from codesgc.cli import main, parse
from codesgc.datasets import DATASETS
from codesgc.names import fitted, names
from codesgc.settings import check, listed, parse_settings, requested
from codesgc.training import PROTOCOLS, Result, Run
from codesgc.zoo import MODELS, Config, paper_value, preset

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
# With SIGINT as it is in a terminal: a background job inherits it ignored, and Python would leave it so.
PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from codesgc.cli import main; sys.exit(main())"
)
QUICK = ["--runs", "2", "--set", "epochs=3"]


def command(*argv: object) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, argv)]


def run(*argv: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command(*argv), capture_output=True, text=True, env=ENVIRONMENT, timeout=120, **options)


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> str:
    """A file with a graph of 40 nodes that anything can be trained on in a moment."""
    file = tmp_path_factory.mktemp("graphs") / "ring.npz"
    start = np.arange(40)
    x = np.random.default_rng(0).random((40, 5))
    edges = np.stack([np.r_[start, (start + 1) % 40], np.r_[(start + 1) % 40, start]])
    np.savez(file, edge_index=edges, x=x, y=start % 2)
    return str(file)


def on_pty(*argv: object, until: bytes | None = None, signals: tuple[int, ...] = ()) -> tuple[bytes, int]:
    """What a terminal shows, and the exit status; once it has shown `until`, the signals are sent."""
    pty = pytest.importorskip("pty")
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        command(*argv), stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True, env=ENVIRONMENT
    )
    os.close(terminal)
    shown, pending, deadline = b"", list(signals), time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if select.select([controller], [], [], 1.0)[0]:
                try:
                    data = os.read(controller, 65536)
                except OSError:  # on Linux, how the end of a terminal reads
                    break
                if not data:
                    break
                shown += data
            if pending and until is not None and until in shown:
                process.send_signal(pending.pop(0))
        return shown, process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(controller)


# --- help, tables


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"codesgc {codesgc.__version__}, {codesgc.engine_name()}\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["train", "--help"],
        ["tune", "--help"],
        ["report", "--help"],
        ["models"],
        ["datasets"],
        ["--version"],
    ],
)
def test_what_needs_no_torch_does_not_import_it(argv):
    code = f"import sys; from codesgc.cli import main\ntry: main({argv})\nfinally: assert 'torch' not in sys.modules"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.perf_counter() - began < 3  # about 0.1 s; torch alone would take more than 1 s


@pytest.mark.parametrize(
    "argv", [[], *([name] for name in ("models", "datasets", "train", "tune", "best", "reproduce", "report"))]
)
def test_help_has_examples_that_parse(argv, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*argv, "--help"])
    text = capsys.readouterr().out
    examples = [line.strip().split("  ")[0] for line in text[text.index("examples:") :].splitlines()[1:]]
    assert examples
    for example in examples:
        assert parse(example.split(" | ")[0].split()[1:]) is not None


def test_no_command_prints_the_help(capsys):
    assert main([]) == 0
    assert "examples:" in capsys.readouterr().out


def test_train_help_names_every_protocol(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert all(protocol in text for protocol in PROTOCOLS)


def test_models_lists_each_once_with_aligned_columns(capsys):
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(MODELS)
    assert {len(line) for line in lines} == {len(lines[0])}  # the last column is right-aligned
    assert lines[1 + list(MODELS).index("BernNet")].split() == [
        *("BernNet", "hybrid", "bernstein", "half_laplacian", "nonnegative", "10")
    ]


def test_datasets_lists_each_once(capsys):
    assert main(["datasets"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1 : 1 + len(DATASETS)]] == list(DATASETS)
    assert "in the package" in out and "downloaded once, 3.4 MB" in out and "chameleon, squirrel: Rozemberczki" in out


def test_tables_as_json(capsys):
    assert main(["models", "--json"]) == 0
    assert [Config.from_dict(row) for row in json.loads(capsys.readouterr().out)] == list(MODELS.values())
    assert main(["datasets", "--json"]) == 0
    assert [row["nodes"] for row in json.loads(capsys.readouterr().out)] == [d.nodes for d in DATASETS.values()]
    assert main(["models", "l-cp", "--dataset", "Cora", "--json"]) == 0
    assert Config.from_dict(json.loads(capsys.readouterr().out)) == preset("cora", "L-CP")


def test_settings_of_a_model_name_its_dropout_places_groups_and_published_values(capsys):
    assert main(["models", "H-CP", "--dataset", "cora"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "H-CP on cora, published settings"
    for line in (
        "order=10",
        "a=0.5",
        "rank=32",
        "dropout.features=0.1",
        "dropout.Z=0.4",
        "lr.encoder=0.05",
        "bias=true",
    ):
        assert f"  {line}" in lines
    assert not any(line.startswith("  model=") for line in lines)
    assert "chebyshev" in "".join(lines)
    main(["models", "GCN", "--dataset", "squirrel_filtered"])
    assert capsys.readouterr().out.startswith("GCN on squirrel_filtered, default settings")


# --- settings


@pytest.mark.parametrize("model", MODELS)
def test_listed_settings_are_accepted_back_and_mean_the_same(model):
    config = preset("cora", model)
    changes = parse_settings(f"{key}={value}" for key, value in listed(config))
    again = fitted(requested(None, model, changes), changes)
    check(again, 6, 3)
    assert listed(again) == listed(config)


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_preset_can_be_trained(dataset):
    for model in MODELS:
        check(preset(dataset, model), 6, 3)


@pytest.mark.parametrize("text, value", [("5", 5), ("0.25", 0.25), ("true", True), ("null", None), ("cp", "cp")])
def test_values_are_json_scalars_or_words(text, value):
    assert parse_settings([f"key={text}"]) == {"key": value}


@pytest.mark.parametrize("text", ["[1]", '{"a": 1}', "NaN", "Infinity", "[" * 9999, "1" * 5000, "a=b"])
def test_anything_else_stays_text(text):
    assert parse_settings([f"key={text}"]) == {"key": text}


def test_settings_apply_in_the_order_given():
    assert requested(None, "L-CP", parse_settings(["lr.C=1", "lr=2", "lr.M=3"])).lr == {"default": 2.0, "M": 3.0}
    assert requested(None, "L-CP", parse_settings(["lr.C=1", "lr=2", "lr.C=3"])).lr == {"default": 2.0, "C": 3.0}


def test_entries_of_the_preset_that_a_new_part_does_not_know_are_dropped_but_the_users_stay():
    changes = parse_settings(["basis=chebyshev", "decomposition=tucker1", "lr.G=0.5"])
    config = fitted(requested("cora", "L-CP", changes), changes)
    assert config.options == {} and config.dropout == {"input": 0.5}
    assert config.lr == {"M": 0.05, "G": 0.5}
    check(config, 6, 3)
    kept = parse_settings(["basis=chebyshev", "a=1"])
    with pytest.raises(codesgc.InputError, match="'a' is unknown"):
        check(fitted(requested("cora", "L-CP", kept), kept), 6, 3)


def test_names_of_a_hybrid_model():
    known = names(MODELS["H-Tucker"])
    assert list(known.options) == ["a", "b", "ridge", "smoothness", "rank", "rank_in", "rank_out"]
    assert known.dropout == ("features", "input", "C", "G", "Z")
    assert known.groups == ("C", "G", "M", "P", "encoder")


# --- training


def test_table_compares_with_the_paper(capsys):
    assert main(["train", "Cora", "--model", "l-cp", "GCN", *QUICK]) == 0
    shown = capsys.readouterr()
    title, _, header, first, second = shown.out.splitlines()
    assert title == "cora, paper protocol, seeds 0 to 1"
    assert header.split("   ")[:2] == ["model", "test accuracy"]
    assert "89.23 ± 0.71   no " in first and first.startswith("L-CP ") and "87.14 ± 1.01" in second
    assert first.index("89.23") == header.index("paper") == second.index("87.14")
    assert [line.split()[-3:-1] for line in (first, second)] == [["2", "3"], ["2", "3"]]
    assert shown.err == ""


def test_json_file_has_config_runs_summary_and_the_papers_value(tmp_path):
    file = tmp_path / "result.json"
    assert main(["train", "cora", *QUICK, "lr.C=0.5", "--seed", "3", "--json", str(file)]) == 0
    data = json.loads(file.read_text())
    assert set(data) == {
        *("dataset", "model", "protocol", "config", "runs", "test_mean", "test_ci95", "seconds", "versions"),
        *("interrupted", "paper"),
    }
    assert (data["dataset"], data["model"], data["protocol"], data["interrupted"]) == ("cora", "L-CP", "paper", False)
    assert Config.from_dict(data["config"]) == preset("cora", "L-CP").updated({"epochs": 3, "lr.C": 0.5})
    assert [set(r) for r in data["runs"]] == [{"seed", "val_accuracy", "test_accuracy", "best_epoch", "epochs"}] * 2
    assert [r["seed"] for r in data["runs"]] == [3, 4]
    assert data["test_mean"] == pytest.approx(sum(r["test_accuracy"] for r in data["runs"]) / 2)
    assert data["paper"] == dict(zip(("mean", "ci95"), paper_value("cora", "L-CP"), strict=True))
    assert os.listdir(tmp_path) == ["result.json"]


def test_json_dash_prints_it_and_nothing_else(ring, capsys):
    assert main(["train", ring, *QUICK, "--json", "-"]) == 0
    shown = capsys.readouterr()
    data = json.loads(shown.out)
    assert data["dataset"] == "ring.npz" and data["paper"] is None and shown.err == ""


def test_several_models_give_a_list_and_equal_names_one_entry(ring, capsys):
    argv = ["train", ring, "--model", "L-CP", "gcn", "--model", "l-cp", *QUICK, "--json", "-", "--protocol", "strict"]
    assert main(argv) == 0
    results = json.loads(capsys.readouterr().out)
    assert [r["model"] for r in results] == ["L-CP", "GCN"]
    assert [[r["seed"] for r in result["runs"]] for result in results] == [[1000, 1001]] * 2


def test_json_of_finished_models_survives_a_failure_of_the_next(ring, tmp_path, capsys, monkeypatch):
    real, file = codesgc.training.train, tmp_path / "two.json"

    def train(graph, config, **options):
        if config.model == "GCN":
            raise MemoryError
        return real(graph, config, **options)

    monkeypatch.setattr("codesgc.training.train", train)
    assert main(["train", ring, "--model", "L-CP", "GCN", *QUICK, "--json", str(file)]) == 2
    assert [result["model"] for result in json.loads(file.read_text())] == ["L-CP"]
    shown = capsys.readouterr()
    assert "L-CP" in shown.out and shown.err == (
        "codesgc: error: out of memory; a smaller --population, rank or order takes less\n"
    )


def test_json_replaces_an_older_file_at_once(ring, tmp_path):
    file = tmp_path / "result.json"
    file.write_text("old")
    with file.open() as reader:
        assert main(["train", ring, *QUICK, "--json", str(file)]) == 0
        assert reader.read() == "old"  # what was open stays whole
    assert json.loads(file.read_text())["model"] == "L-CP"


def test_json_is_written_to_what_is_no_file_without_replacing_it(ring, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    assert main(["train", ring, *QUICK, "--json", str(pipe)]) == 0
    assert json.loads(reader.communicate(timeout=60)[0])["model"] == "L-CP"
    assert pipe.is_fifo()


def test_population_and_threads(ring, capsys):
    before = torch.get_num_threads()
    try:
        results = []
        for population in ("1", "3"):
            argv = ["train", ring, "--runs", "3", "--set", "epochs=4", "--population", population, "--threads", "1"]
            assert main([*argv, "--json", "-"]) == 0
            results.append(json.loads(capsys.readouterr().out)["runs"])
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1]


def test_options_reach_the_training(ring, capsys, monkeypatch):
    given = {}

    def train(graph, config, **options):
        given.update(options)
        return Result("ring", config.model, "paper", config, (Run(0, 50.0, 50.0, 1, 1),), 0.1, {})

    monkeypatch.setattr("codesgc.training.train", train)
    argv = ["--runs", "7", "--seed", "5", "--protocol", "strict", "--population", "3", "--device", "cpu:0"]
    assert main(["train", ring, *argv]) == 0
    assert given == {"runs": 7, "seed": 5, "protocol": "strict", "population": 3, "device": "cpu:0", "progress": None}
    assert " 1 of 7 " in capsys.readouterr().out


def test_directed_file_needs_the_switch(tmp_path, capsys):
    file = tmp_path / "path.npz"
    np.savez(file, edge_index=[range(29), range(1, 30)], x=np.eye(30), y=np.arange(30) % 2)
    assert main(["train", str(file), *QUICK]) == 2
    assert "pass --to-undirected" in capsys.readouterr().err
    assert main(["train", str(file), *QUICK, "--to-undirected"]) == 0


def test_one_run_has_no_interval(ring, capsys):
    assert main(["train", ring, "--runs", "1", "--set", "epochs=2"]) == 0
    out = capsys.readouterr().out
    assert "seed 0\n" in out and "±" not in out


def test_sign_is_ascii_where_the_terminal_is_not_utf8(ring):
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command("train", ring, *QUICK), capture_output=True, env=environment, timeout=120)
    assert done.returncode == 0 and b" +- " in done.stdout and done.stderr == b""


def test_pipe_gets_the_table_alone(ring):
    done = run("train", ring, *QUICK)
    assert done.returncode == 0 and done.stderr == ""
    assert len(done.stdout.splitlines()) == 4 and "\r" not in done.stdout


def test_terminal_gets_a_plan_a_bar_that_vanishes_and_the_table(ring):
    shown, status = on_pty("train", ring, *QUICK, "rank=4")
    assert status == 0
    lines = shown.decode().split("\r\n")
    assert "L-CP (default settings, 2 changed); 2 runs, paper protocol, cpu" in lines[0]
    frames = lines[1].split("\r")
    assert "starting" in frames[1] and "0/2 runs, epoch 1, best validation" in frames[2]
    assert frames[-2].strip() == "" and frames[-1].startswith("ring.npz, paper protocol")  # erased before the table
    assert all(len(frame) < 80 for frame in frames)


def test_terminal_gets_each_models_result_as_it_comes(ring):
    shown, status = on_pty("train", ring, "--model", "L-CP", "GCN", *QUICK)
    assert status == 0
    text = shown.decode()
    assert re.search(r"\rL-CP: \d+\.\d\d ± \d+\.\d\d\r\n", text) and text.index("L-CP: 0/2") < text.index("GCN: 0/2")


def test_quiet_on_a_terminal(ring):
    shown, status = on_pty("train", ring, *QUICK, "--quiet")
    assert status == 0 and shown.startswith(b"ring.npz, paper protocol")


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_keeps_the_finished_runs(ring, tmp_path, number, status):
    file = tmp_path / "result.json"
    argv = ["train", ring, "--runs", "400", "--population", "1", "--set", "epochs=200", "patience=200", "--json", file]
    shown, found = on_pty(*argv, until=b" 1/400 runs", signals=(number,))
    assert found == status, shown[-2000:]
    data = json.loads(file.read_text())
    assert data["interrupted"] and 1 <= len(data["runs"]) < 400
    assert f"interrupted, {len(data['runs'])} of 400 runs done".encode() in shown
    assert f"{len(data['runs'])} of 400   ".encode() in shown and b"Traceback" not in shown


def test_interruption_before_the_first_run_is_done(ring, tmp_path):
    argv = ["train", ring, "--set", "epochs=1000000", "patience=1000000", "--json", tmp_path / "none.json"]
    shown, status = on_pty(*argv, until=b"epoch ", signals=(signal.SIGINT,))
    assert status == 130 and b"interrupted, 0 of 10 runs done" in shown and b"Traceback" not in shown
    assert os.listdir(tmp_path) == []


def test_interruption_while_loading(capsys, monkeypatch):
    def load_dataset(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("codesgc.datasets.load_dataset", load_dataset)
    assert main(["train", "cora"]) == 130
    assert capsys.readouterr().err == "codesgc: interrupted\n"


@pytest.mark.parametrize("argv", [["models"], ["--help"], ["datasets", "--json"]])
def test_closed_pipe_is_no_error(argv):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(command(*argv), stdout=writer, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60)
    finally:
        os.close(writer)
    assert done.stderr == b"" and done.returncode in (0, 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(command("models"), stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith(b"codesgc: error: ") and done.stderr.count(b"\n") == 1


# --- mistakes

MISTAKES = [
    (
        "trian cora",
        "command 'trian' is unknown: expected one of best, datasets, models, report, reproduce, train, tune; "
        "did you mean 'train'?",
    ),
    ("--versoin", "did you mean '--version'?"),
    ("models L-PC", "did you mean 'L-CP'?"),
    ("models --dataset cora", "expected NAME"),
    ("models L-CP --dataset coral", "did you mean 'cora'?"),
    ("datasets --jsn", "did you mean '--json'?"),
    ("datasets cora", "'cora' is one argument too many"),
    ("train", "DATASET is missing"),
    ("train --model L-CP cora", "DATASET is missing: expected it before the options"),
    ("train coral", "dataset 'coral' is unknown: .*did you mean 'cora'?"),
    ("train cora --model L-Tuker", "did you mean 'L-Tucker'?"),
    ("train cora --modle L-CP", "option '--modle' is unknown: .*did you mean '--model'?"),
    ("train cora --mod L-CP", "option '--mod' is unknown: .*did you mean '--model'?"),
    ("train cora --runs -3", "--runs '-3': expected a whole number >= 1"),
    ("train cora --runs 2.5", "--runs '2.5': expected a whole number >= 1"),
    ("train cora --runs", "--runs: expected one argument"),
    ("train cora --seed -1", "--seed '-1': expected a whole number >= 0"),
    ("train cora --population 0", "--population '0': expected a whole number >= 1"),
    ("train cora --threads 99999", "--threads '99999': expected a whole number >= 1 and <= 1024"),
    ("train cora --protocol strct", "did you mean 'strict'?"),
    ("train cora --device cdua", "did you mean 'cuda'?"),
    ("train cora --device cpu:x", "device 'cpu:x': expected a kind and a number"),
    ("train cora --device cuda:99", "device 'cuda:99': PyTorch .* finds .* here"),
    ("train cora --json /no/folder/result.json", "there is no folder /no/folder"),
    ("train cora --json .", "that is a folder"),
    ("train cora --to-undirected", "--to-undirected is for files of your own"),
    ("train missing.npz", "missing.npz cannot be read"),
    ("train two\nlines.npz", "two lines.npz cannot be read"),
    ("train cora --set novalue", "setting 'novalue': expected KEY=VALUE"),
    ("train cora --set order=", "setting 'order=': expected KEY=VALUE"),
    ("train cora --set =5", "is no key"),
    ("train cora --set lr.=5", "'lr.' is no key"),
    ("train cora --set model=GCN", "pass --model GCN"),
    ("train cora --set ordr=3", "'ordr' is unknown: .*did you mean 'order'?"),
    ("train cora --set order=abc", "order 'abc': expected a whole number"),
    ("train cora --set order=-1", "order -1: expected a whole number >= 0"),
    ("train cora --set order=9000000000000000000", "a number of a size that makes sense"),
    ("train cora --set order.x=1", "'order' has no entries"),
    ("train cora --set bias=1", "bias 1: expected true or false"),
    ("train cora --set lr.Q=1", "lr of L-CP: 'Q' is unknown: expected one of C, M, P"),
    ("train cora --set weight_decay.C=-1", "weight_decay.C -1.0: expected a number >= 0"),
    ("train cora --set dropout.C=2", "dropout.C 2.0: expected a number >= 0 and <= 1"),
    ("train cora --set dropout.G=0", "dropout of L-CP: 'G' is unknown: expected one of C, Z, input"),
    ("train cora --set lr=null", "expected a number"),
    ("train cora --set lr=1e999", "expected a number of a size"),
    ("train cora --set a=-3", r"jacobi a=-3.0, b=0.5: expected a >= -1"),
    ("train cora --set a=abc", "a 'abc': expected a number"),
    ("train cora --set a=null", "a None: expected a number"),
    ("train cora --set a=true", "a True: expected a number"),
    ("train cora --set a=NaN", "a 'NaN': expected a number"),
    ("train cora --set rank=0", "rank 0: expected a whole number >= 1"),
    ("train cora --set rank=1.5", "rank 1.5: expected a whole number >= 1"),
    ("train cora --set basis=chebishev", "did you mean 'chebyshev'?"),
    ("train cora --set matrix=simm", "did you mean 'sym'?"),
    ("train cora --set decomposition=tuker", "did you mean 'tucker'?"),
    ("train cora --set architecture=linaer", "did you mean 'linear'?"),
    ("train cora --set basis=chebyshev a=1", "option of L-CP: 'a' is unknown"),
    ("train cora --set basis=favard channels=true", "with a basis of its own for every input channel"),
    ("train cora --model L-CP GCN --set order=0", "order 0: decomposition 'gcn' takes the first power"),
    ("train cora --model L-CP GCN --set rank=8", "option of GCN: 'rank' is unknown"),
]


def not_trained(*args, **options):
    raise AssertionError("a mistake must be found before anything is trained")


def error_line(capsys) -> str:
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("codesgc: error: ") and shown.err.count("\n") == 1, shown.err
    return shown.err


@pytest.mark.parametrize("line, message", MISTAKES, ids=[line for line, _ in MISTAKES])
def test_mistake_is_answered_in_one_line_before_training(line, message, capsys, monkeypatch):
    monkeypatch.setattr("codesgc.training.train", not_trained)
    monkeypatch.setattr("codesgc.datasets.load_dataset", not_trained)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert main(line.split(" ")) == 2
    assert re.search(message.replace("?", r"\?"), error_line(capsys))


PATH = {"edge_index": [[0, 1], [1, 0]], "x": np.eye(2), "y": [0, 1]}
FILES = {
    "holds no labels": {"edge_index": PATH["edge_index"], "x": np.eye(2)},
    "holds no features": {"edge_index": PATH["edge_index"], "y": [0, 1]},
    "expected integers": PATH | {"edge_index": [[0.5, 1.0], [1.0, 0.5]]},
    "leaves no": PATH,
    "expected 'edge_index'": {"x": np.eye(2)},
}


@pytest.mark.parametrize("message", FILES)
def test_file_that_cannot_be_trained_on_is_answered_in_one_line(message, tmp_path, capsys):
    file = tmp_path / "mine.npz"
    np.savez(file, **FILES[message])
    assert main(["train", str(file)]) == 2
    assert message in error_line(capsys)


def test_damaged_file_and_folder_are_answered_in_one_line(tmp_path, capsys):
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"PK\3\4 and no more")
    for path in (damaged, tmp_path):
        assert main(["train", str(path)]) == 2
        assert path.name in error_line(capsys)


def test_file_without_a_separator_in_its_name_is_pointed_out(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").touch()
    assert main(["train", "mine"]) == 2
    assert "for the file of that name, give ./mine" in error_line(capsys)


def test_failed_download_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CODESGC_DATA", str(tmp_path))
    monkeypatch.setenv("CODESGC_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert main(["train", "texas"]) == 2
    assert "texas.npz: downloading it from http://127.0.0.1:9" in error_line(capsys)


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("x: can't allocate memory: y")]
)
def test_out_of_memory_is_one_line(error, ring, capsys, monkeypatch):
    def train(*args, **options):
        raise error

    monkeypatch.setattr("codesgc.training.train", train)
    assert main(["train", ring]) == 2
    assert "out of memory" in error_line(capsys)


@pytest.mark.parametrize("error", [RuntimeError("bug"), TypeError("bug"), ValueError("bug"), KeyError("bug")])
def test_a_bug_shows_its_traceback(error, ring, monkeypatch):
    def train(*args, **options):
        raise error

    monkeypatch.setattr("codesgc.training.train", train)
    with pytest.raises(type(error), match="bug"):
        main(["train", ring])


KEYS = ["order", "hidden", "layers", "bias", "options", "rank", "rank_in", "a", "b", "alpha", "lr", "lr.C", "dropout.Z"]
KEYS += ["dropout", "weight_decay", "basis", "matrix", "decomposition", "architecture", "epochs", "channels", "x.y", ""]
WORDS = [
    "true",
    "null",
    "NaN",
    "-0.0",
    "1e308",
    "-1e999",
    '"5"',
    "[1]",
    "{}",
    "sym",
    "favard",
    "tucker2",
    "optbasis",
    "full",
]
WORDS += ["hybrid", "multi-layer", "jacobi", "monomial", "per_input", "gcn", "custom", "1" * 400]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KEYS) | st.text(max_size=6),
            st.sampled_from(["=", "=", "=", "", "=="]),
            st.sampled_from(WORDS) | st.integers(-2, 20).map(str) | st.floats().map(str) | st.text(max_size=6),
        ).map("".join),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(list(MODELS)),
)
def test_no_setting_raises(ring, texts, model):
    def train(graph, config, **options):
        return Result("ring", config.model, "paper", config, (Run(0, 50.0, 50.0, 1, 1),), 0.1, {})

    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr("codesgc.training.train", train)
        arguments = [argument for text in texts for argument in ("--set", text)]
        try:
            status = main(["train", ring, "--model", model, "--runs", "1", *arguments])
        except SystemExit as stop:  # a text may read as --help
            status = stop.code
    assert status in (0, 2)
    assert err.getvalue().count("\n") == (1 if status == 2 else 0)


# --- console


def test_time_left_takes_runs_to_be_as_long_as_the_finished_ones():
    config = Config(epochs=1000, patience=99)
    active = [Run(seed=1, best_epoch=50, epochs=60)]
    assert console.remaining(config, 3, [], active) == (60, 90.0 + 300.0)  # all three may stop at 150
    assert console.remaining(config, 3, [Run(seed=0, epochs=300)], active) == (360, 240.0 + 300.0)
    assert console.remaining(config, 2, [Run(seed=0, epochs=100)], active) == (160, 90.0)  # not before 150


def test_interval_column_is_aligned_at_the_sign():
    column = console.intervals([(9.5, 0.25), (100.0, 12.5), None, (50.0, None)], "±")
    assert column == ["  9.50 ±  0.25", "100.00 ± 12.50", "     -", " 50.00"]


def test_show_escapes_what_the_stream_cannot_print():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console.show("α \udcff", stream)
    stream.flush()
    assert stream.buffer.getvalue().decode() == "\\u03b1 \\udcff\n"
