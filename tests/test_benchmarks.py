"""The benchmarks compare the same mathematics, and every script runs."""

import doctest
import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from codesgc import Graph, load_dataset, preset
from codesgc.training.inputs import Inputs
from codesgc.training.population import Job, Population, new_model
from codesgc.training.splits import random_split

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import common
from textbook import MODELS, Training

# Arguments that keep a script short on Cora, which is in the package, and columns that hold measurements.
SCRIPTS = {
    "epoch": (["--population", "2"], ("textbook", "alone", "population", "ratio")),
    "conv": ([], ("pyg", "ours", "ratio")),
    "memory": (["--layers", "L-CP"], ("bytes",)),
    "roofline": ([], ("gather",)),
    "shares": (["--population", "2"], ("bare", "watched")),
    "tables": ([], ("seconds", "textbook", "hours", "ratio")),
    "tune": ([], ("seconds", "textbook", "hours", "ratio")),
}


@pytest.mark.parametrize("name", MODELS)
def test_textbook_trains_the_same_model(name):
    """Without dropout: the same outputs from the same weights, and after three epochs still."""
    graph = load_dataset("cora").row_normalised()
    config = preset("cora", name).updated({"dropout": 0.0})
    job = Job(config, 3, random_split(graph.y, 3))
    ours = Population(Inputs(graph, dtype=torch.float64), config, 1)
    ours.start(0, job)
    textbook = Training(graph, config, new_model(job, graph.num_features, graph.num_classes), job.split, torch.float64)

    def outputs():
        with torch.no_grad():
            return ours.model.eval()(ours.x, ours.S)[0], textbook.model.eval()(textbook.x, textbook.S)

    before = outputs()
    torch.testing.assert_close(*before, rtol=1e-6, atol=1e-7 * float(before[1].abs().max()))
    for _ in range(3):
        ours.epoch()
        _, val, test = textbook.epoch()
    after = outputs()
    assert float((after[1] - before[1]).abs().max()) > 1e-3  # they have moved
    torch.testing.assert_close(*after, rtol=1e-6, atol=1e-6 * float(after[1].abs().max()))
    best = after[1].argmax(1) == graph.y
    assert [val, test] == pytest.approx([best[part].double().mean().item() for part in (job.split.val, job.split.test)])


def test_textbook_drops_out_in_training_alone():
    graph = load_dataset("cora").row_normalised()
    for name in MODELS:
        job = Job(preset("cora", name), 0, random_split(graph.y, 0))
        training = Training(graph, job.config, new_model(job, graph.num_features, graph.num_classes), job.split)
        for mode in (True, False):
            training.model.train(mode)
            with torch.no_grad():
                first, second = (training.model(training.x, training.S) for _ in range(2))
            assert torch.equal(first, second) is not mode, name


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs(name, tmp_path, capsys):
    arguments, measured = SCRIPTS[name]
    file = tmp_path / "out.json"
    import_module(name).main(["--quick", "--datasets", "cora", "--json", str(file), *arguments])
    out = json.loads(file.read_text())
    assert out["rows"] and out["machine"]["versions"]["torch"] == torch.__version__
    for row in out["rows"]:
        assert all(number > 0 for column in measured for number in row[column]), row
    table = capsys.readouterr().out
    assert table.count("\n| cora") == len(out["rows"])
    assert out["title"] in table and out["machine"]["cpu"] in table and str(out["summary"] or "") in table


def test_memory_has_a_training_step_of_every_layer():
    memory = import_module("memory")
    graph = Graph([[0, 1], [1, 0]], x=torch.eye(2).to_sparse_csr(), y=[0, 1])
    for kind in memory.LAYERS:
        memory.training(kind, 3, graph)()


def test_shares_add_up():
    clock = import_module("shares").Clock()
    graph = load_dataset("cora").row_normalised()
    jobs = [Job(preset("cora", "H-CP"), seed, random_split(graph.y, seed)) for seed in range(2)]
    population = import_module("epoch").filled(graph, jobs)
    with clock.watching():
        seconds = clock.epoch(population.epoch)
    assert set(seconds) == set(import_module("shares").OPERATIONS)
    assert all(value > 0 for value in seconds.values())
    assert seconds["rest"] < 0.8 * sum(seconds.values())


def test_rounds_are_interleaved_and_cut_by_the_budget():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    taken = common.interleaved(calls, 3, least=0.0)
    assert [len(seconds) for seconds in taken.values()] == [3, 3]
    assert order == ["a", "b"] * 2 + ["a", "b", "b", "a", "a", "b"]
    assert [len(seconds) for seconds in common.interleaved(calls, 3, budget=0.0).values()] == [1, 1]


def test_numbers_are_shown_with_their_spread():
    assert doctest.testmod(common).failed == 0
    assert common.spread([0.25]) == "0.25"
    assert common.ratios([4.0, 9.0], [2.0, 3.0]) == [2.0, 3.0]
    assert "a 2 (smallest 1, x)" in common.summary({"a": [("x", 1.0), ("y", 4.0)]})
