"""`codesgc reproduce`: which cells are run, what is written, and what is not run again; and recordings of models."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli import on_pty

import codesgc.cli_reproduce
from codesgc import MODELS, Config, Graph, InputError, load_dataset, preset
from codesgc.cli import main, parse
from codesgc.cli_reproduce import places
from codesgc.datasets import DATASETS
from codesgc.recording import record, responses
from codesgc.report import reading
from codesgc.training import Job, random_split, train, train_jobs
from codesgc.zoo.published import TABLES, paper_datasets, paper_value

CELLS = ["reproduce", "--datasets", "texas", "cornell", "--models", "L-CP", "SGC", "--runs", "2"]


@pytest.fixture
def short(monkeypatch):
    """Presets with three epochs."""
    monkeypatch.setattr(
        codesgc.cli_reproduce, "preset", lambda dataset, model: preset(dataset, model).updated({"epochs": 3})
    )


@pytest.fixture
def trained(monkeypatch):
    """The (dataset, model) pairs that are trained, in order."""
    pairs, real = [], codesgc.training.train

    def counting(graph, config, **options):
        pairs.append((graph.name, config.model))
        return real(graph, config, **options)

    monkeypatch.setattr("codesgc.training.train", counting)
    return pairs


def lasting(file: Path) -> str:
    """The text of a result without what may differ from one time to the next."""
    text = re.sub(r'"seconds": [0-9.e-]+', "", file.read_text())
    return re.sub(r'"versions": \{[^}]*\}', "", text)


def asked(*argv: str):
    args = parse(["reproduce", *argv])
    assert args is not None
    return places(args)


# --- which cells


def test_tables_are_the_papers():
    everything = {(place.dataset, place.config.model) for place in asked()}
    assert len(everything) == 140 and all(paper_value(*cell) is not None for cell in everything)
    assert {(d, m) for d in DATASETS for m in MODELS if paper_value(d, m) is not None} == everything
    for table, number in (("2", 80), ("3", 80)):
        assert {place.config.model for place in asked("--table", table)} == set(TABLES[table])
        assert len(asked("--table", table)) == number
    assert {place.dataset for place in asked()} == set(paper_datasets())


def test_cheap_graphs_come_first():
    order = list(dict.fromkeys(place.dataset for place in asked()))
    assert set(order[:2]) == {"texas", "cornell"} and order[-2:] == ["squirrel", "computers"]


def test_models_stand_in_place_of_the_tables_and_every_model_may_be_asked_for():
    cells = asked("--datasets", "Texas", "--models", "sgc", "FavardGNN", "SGC")
    assert [place.config.model for place in cells] == ["SGC", "FavardGNN"]
    assert all(place.config == preset("texas", place.config.model) for place in cells)
    assert len(asked("--datasets", "texas", "--models", *MODELS)) == len(MODELS)


@pytest.mark.parametrize(
    "line, message",
    [
        ("--datasets texsa", "did you mean 'texas'"),
        ("--models L-PC", "did you mean 'L-CP'"),
        ("--table 4", "table '4' is unknown: expected one of 2, 3, all"),
        ("--protocol strct", "did you mean 'strict'"),
        ("--runs 0", "--runs '0': expected a whole number >= 1"),
        ("--device cdua", "did you mean 'cuda'"),
    ],
)
def test_mistake_is_answered_in_one_line(line, message, capsys, monkeypatch):
    monkeypatch.setattr("codesgc.training.train", None)
    assert main(["reproduce", *line.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and re.fullmatch(f"codesgc: error: .*{re.escape(message)}.*\n", shown.err)


def test_a_folder_that_cannot_be_written_is_found_before_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("codesgc.training.train", None)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main([*CELLS, "--out", str(out)]) == 2
        assert capsys.readouterr().err.startswith(f"codesgc: error: --out {out}: it cannot be made")


# --- files


def test_a_cell_is_what_train_writes(short, tmp_path, capsys):
    assert main([*CELLS, "--out", str(tmp_path / "out")]) == 0
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.*")) == [
        f"out/paper/{dataset}/{model}.json" for dataset in ("cornell", "texas") for model in ("L-CP", "SGC")
    ]
    single = tmp_path / "single.json"
    argv = ["train", "texas", "--runs", "2", "--set", "epochs=3", "--json", str(single)]
    assert main(argv) == 0
    assert lasting(tmp_path / "out/paper/texas/L-CP.json") == lasting(single)
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "1/4 cornell L-CP",
        "2/4 cornell SGC",
        "3/4 texas L-CP",
        "4/4 texas SGC",
    ]
    assert "paper 90.66 ± 2.62" in lines[2] and "paper" not in lines[3]
    assert re.search(r"intervals meet the paper's in \d of 2 cells", shown.out)


def test_what_is_there_is_not_run_again_unless_asked(short, trained, tmp_path, capsys):
    argv = [*CELLS, "--out", str(tmp_path)]
    assert main(argv) == 0 and len(trained) == 4
    first = capsys.readouterr().out
    assert main(argv) == 0 and len(trained) == 4
    shown = capsys.readouterr()
    assert shown.out == first and shown.err == f"4 cells of 4 found in {tmp_path}\n"
    assert main([*argv, "--again", "--quiet"]) == 0 and len(trained) == 8
    assert capsys.readouterr().err == ""


def test_a_deleted_file_comes_back_identical(short, trained, tmp_path):
    argv = [*CELLS, "--out", str(tmp_path)]
    assert main(argv) == 0
    file = tmp_path / "paper/texas/L-CP.json"
    before = lasting(file)
    file.unlink()
    assert main([*argv, "--population", "1"]) == 0
    assert trained[4:] == [("texas", "L-CP")] and lasting(file) == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: {**data, "config": {**data["config"], "order": 3}},
        lambda data: {**data, "runs": data["runs"][:1], "test_mean": data["runs"][0]["test_accuracy"]},
        lambda data: {**data, "interrupted": True},
        lambda data: {**data, "protocol": "strict"},
        lambda data: {**data, "test_mean": "high"},
        lambda data: [data],
        lambda data: "text",
    ],
)
def test_a_file_that_is_not_this_cell_is_replaced(damage, short, trained, tmp_path):
    argv = ["reproduce", "--datasets", "texas", "--models", "SGC", "--runs", "2", "--out", str(tmp_path)]
    assert main(argv) == 0
    file = tmp_path / "paper/texas/SGC.json"
    before = lasting(file)
    file.write_text(json.dumps(damage(json.loads(file.read_text()))))
    assert main(argv) == 0
    assert len(trained) == 2 and lasting(file) == before
    file.write_bytes(file.read_bytes()[:-100])  # as a kill would leave it if it were not written at once
    assert main(argv) == 0
    assert len(trained) == 3 and lasting(file) == before


def test_protocols_lie_beside_each_other(short, tmp_path):
    for protocol in ("paper", "strict"):
        assert main([*CELLS, "--out", str(tmp_path), "--protocol", protocol]) == 0
    seeds = [
        [run["seed"] for run in json.loads((tmp_path / protocol / "texas/SGC.json").read_text())["runs"]]
        for protocol in ("paper", "strict")
    ]
    assert seeds == [[0, 1], [1000, 1001]]


def test_an_interruption_keeps_finished_cells_and_the_same_command_goes_on(short, tmp_path, capsys, monkeypatch):
    real, argv = codesgc.training.train, [*CELLS, "--out", str(tmp_path)]

    def train(graph, config, **options):
        if (graph.name, config.model) == ("texas", "L-CP"):
            raise KeyboardInterrupt
        return real(graph, config, **options)

    with monkeypatch.context() as patch:
        patch.setattr("codesgc.training.train", train)
        assert main(argv) == 130
    shown = capsys.readouterr()
    assert "interrupted, 2 of 4 cells done; the same command goes on from here" in shown.err and "cornell" in shown.out
    assert main(argv) == 0
    assert capsys.readouterr().err.startswith("2 cells of 4 found")


def test_a_cell_that_cannot_be_run_does_not_hold_up_the_others(short, tmp_path, capsys, monkeypatch):
    real = codesgc.training.train

    def train(graph, config, **options):
        if config.model == "L-CP":
            raise InputError("L-CP needs\nmore memory")
        return real(graph, config, **options)

    monkeypatch.setattr("codesgc.training.train", train)
    assert main([*CELLS, "--out", str(tmp_path), "--quiet"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"codesgc: {dataset} L-CP is left out: L-CP needs more memory" for dataset in ("cornell", "texas")
    ]
    assert len(list(tmp_path.rglob("SGC.json"))) == 2


def test_terminal_gets_a_bar_over_all_cells(tmp_path):
    argv = ["reproduce", "--datasets", "texas", "--models", "SGC", "GCN", "--runs", "1", "--out", tmp_path]
    shown, status = on_pty(*argv)
    text = shown.decode()
    assert status == 0
    assert re.search(r"1/2 texas SGC: 0/1 runs, epoch \d+, best validation [\d.]+ %, \d+ (s|min) left", text)
    assert re.search(r"\r1/2 texas SGC: [\d.]+, \d+ s\r\n", text) and "2/2 texas GCN: " in text


# --- recordings


def test_keep_records_the_first_run(short, trained, tmp_path):
    argv = ["reproduce", "--datasets", "texas", "--models", "H-CP", "--runs", "2", "--out", str(tmp_path)]
    assert main(argv) == 0
    assert main([*argv, "--keep"]) == 0 and len(trained) == 1  # the cell was there, its recording was not
    result = json.loads((tmp_path / "paper/texas/H-CP.json").read_text())
    data = json.loads((tmp_path / "paper/texas/H-CP.model.json").read_text())
    assert data["test_accuracy"] == result["runs"][0]["test_accuracy"] and data["config"] == result["config"]
    before = os.stat(tmp_path / "paper/texas/H-CP.model.json").st_mtime_ns
    assert main([*argv, "--keep"]) == 0
    assert os.stat(tmp_path / "paper/texas/H-CP.model.json").st_mtime_ns == before


@pytest.mark.parametrize("model", MODELS)
def test_every_model_can_be_recorded_and_the_report_reads_it(model):
    graph = load_dataset("texas")
    data = record(graph, preset("texas", model).updated({"epochs": 2}))
    text = json.dumps(data, allow_nan=False)
    assert len(text) < 300_000
    read = reading.recording(json.loads(text))
    assert len(read["layers"]) == (2 if model in ("ChebNet", "GCN") else 1)
    assert read["layers"][-1]["out"] == 5 and len(read["curve"]["loss"]) == 2
    assert sum(read["spectrum"]["share"]) == pytest.approx(1.0, abs=1e-3)


def test_a_recording_has_the_run_of_its_seed():
    graph, config = load_dataset("texas"), preset("texas", "L-CP").updated({"epochs": 20})
    run = train(graph, config, runs=2, seed=1, protocol="strict").runs[1]
    data = record(graph, config, seed=2, protocol="strict")
    assert (data["seed"], data["best_epoch"], data["test_accuracy"]) == (run.seed, run.best_epoch, run.test_accuracy)
    curve = data["curve"]
    assert curve["epoch"] == list(range(1, 21))
    assert curve["val"][run.best_epoch - 1] == max(curve["val"]) == pytest.approx(run.val_accuracy, rel=1e-3)
    assert curve["test"][run.best_epoch - 1] == pytest.approx(run.test_accuracy, rel=1e-3)


def test_long_curves_are_thinned():
    data = record(load_dataset("texas"), preset("texas", "SGC").updated({"epochs": 1000, "patience": 1000}))
    assert len(data["curve"]["epoch"]) == 500 and data["curve"]["epoch"][:3] == [1, 3, 5]


@pytest.mark.parametrize("model", ["H-CP", "GPR-GNN", "BernNet"])
def test_recorded_responses_are_what_the_convolution_does_to_eigenvectors(model):
    """conv(u e_i^T) = u h_ij(lambda) for an eigenvector u of S, without biases."""
    graph = load_dataset("texas")
    config = preset("texas", model).updated({"epochs": 2, "bias": False, "hidden": 8})
    data = record(graph, config)["layers"][0]
    jobs = [Job(config, 0, random_split(graph.y, 0))]
    (done,) = train_jobs(graph.row_normalised(), jobs, keep_best=True)
    conv = done.model.layers[0].double()
    S = conv.matrix(graph, dtype=torch.float64)
    values, vectors = np.linalg.eigh(S.to_dense().numpy())
    for n in (0, 50, 120, 182):
        u = torch.from_numpy(vectors[:, n])
        h = torch.stack([u @ conv(u[:, None] * unit, S) for unit in torch.eye(8, dtype=torch.float64)])  # (I, J)
        size = [np.interp(values[n], data["grid"], curve) for curve in data["size"]]
        np.testing.assert_allclose(h.detach().norm(dim=0), size, rtol=1e-2, atol=1e-4)


def test_responses_of_one_polynomial_are_that_polynomial():
    """W[i, j, k] = w_ij alpha_k: the main direction is +-|w_j| p, signed as its sum, and the size is its modulus."""
    alpha, w = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([[1.0], [-2.0], [2.0]]).double()
    points = torch.linspace(-1, 1, 21, dtype=torch.float64)
    P = torch.stack([points**0, points, points**2])
    size, main = responses(w[..., None] * alpha, P)
    torch.testing.assert_close(main[0], 3 * (alpha @ P))
    torch.testing.assert_close(size[0], main[0].abs())
    own = responses(w[..., None] * alpha, P.expand(3, 3, 21))  # the same polynomials, given for each channel
    torch.testing.assert_close(own[0], size)
    torch.testing.assert_close(own[1], main)


def test_recordings_of_a_graph_of_ones_own():
    graph = Graph([range(29), range(1, 30)], x=torch.eye(30), y=[0, 1] * 15, to_undirected=True)
    assert reading.recording(record(graph, Config(epochs=2)))["dataset"] == "graph"
