"""The search: exact numbers of trials, values that training repeats, and nothing lost whatever ends a process."""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from test_cli import on_pty

from codesgc import Config, Graph, cli_study, cli_tune, train
from codesgc.cli import main
from codesgc.tuning import make_space
from codesgc.tuning.driver import Search
from codesgc.tuning.sampler import PRUNERS
from codesgc.tuning.storage import Journal, open_storage, without_password
from codesgc.tuning.study import Study, reading

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from codesgc.cli import main; sys.exit(main())"
)
SHORT = ["--set", "epochs=6", "order=2", "rank=4"]
LONG = ["--set", "epochs=200", "patience=200", "order=2", "rank=4", "--population", "6"]


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("graphs") / "ring.npz"
    start, draw = np.arange(60), np.random.default_rng(0)
    edges = np.stack([np.r_[start, (start + 1) % 60], np.r_[(start + 1) % 60, start]])
    x = draw.random((60, 5)) + (start[:, None] % 2 == np.arange(5) % 2) * 0.4
    np.savez(file, edge_index=edges, x=x, y=start % 2)
    return str(file)


def spawn(*argv: object, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, *map(str, argv)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, **options
    )


def finish(process: subprocess.Popen) -> tuple[str, str]:
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    return out, err


def read(storage: str, name: str = "ring.npz-L-CP-paper") -> list:
    """All trials of a study, finished or not."""
    with reading(storage, name) as study:
        return study.get_trials()


def trials_of(out: Path) -> list:
    return read(str(out / "study.log"))


def done_of(trials) -> list:
    return [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]


def tune(ring: str, out: Path, *options: object) -> int:
    return main(["tune", ring, "--out", str(out), "--quiet", *map(str, options)])


# --- one worker


def test_a_search_ends_with_its_trials_and_a_result(ring, tmp_path, capsys):
    assert tune(ring, tmp_path, "--trials", 9, "--runs", 2, "--final-runs", 4, *SHORT) == 0
    shown = capsys.readouterr()
    assert "ring.npz, L-CP, paper protocol: 9 complete trials" in shown.out and shown.err == ""
    assert sorted(os.listdir(tmp_path)) == ["options.json", "result.json", "study.json", "study.log"]
    study, result = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("study", "result"))
    best = max(study["all"], key=lambda row: (row["value"], -row["number"]))
    assert study["best"]["number"] == best["number"] == result["search"]["trial"]
    assert study["best"]["config"] == result["config"]
    assert all(len(row["val_accuracy"]) == len(row["epochs"]) == 2 for row in study["all"])
    assert all(row["value"] == pytest.approx(sum(row["val_accuracy"]) / 2) for row in study["all"])
    assert [run["seed"] for run in result["runs"]] == [0, 1, 2, 3]
    assert result["search"]["search_seeds"] == [0, 1] and "2 in both" in result["search"]["splits"]
    assert 0 < study["this_worker"]["driver_seconds"] < study["this_worker"]["seconds"]
    for trial in trials_of(tmp_path):
        assert Config.from_dict(trial.user_attrs["config"]).epochs == 6
        assert trial.user_attrs["result"]["seeds"] == [0, 1]
        assert "test" not in json.dumps(trial.user_attrs)


def test_a_trials_value_is_what_training_gives(ring, tmp_path):
    assert tune(ring, tmp_path, "--trials", 7, "--final-runs", 0, "--population", 5, *SHORT) == 0
    graph = Graph.from_npz(ring)
    for trial in trials_of(tmp_path):
        result = train(graph, Config.from_dict(trial.user_attrs["config"]), runs=3)
        assert [run.val_accuracy for run in result.runs] == trial.user_attrs["result"]["val_accuracy"]
        assert [run.epochs for run in result.runs] == trial.user_attrs["result"]["epochs"]
        assert trial.value == sum(run.val_accuracy for run in result.runs) / 3


def test_equal_seeds_give_equal_studies_and_others_do_not(ring, tmp_path):
    found = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert tune(ring, tmp_path / name, "--trials", 16, "--seed", seed, "--final-runs", 0, *SHORT) == 0
        found.append([(trial.params, trial.value) for trial in trials_of(tmp_path / name)])
    assert found[0] == found[1] != found[2]
    assert len({str(params) for params, _ in found[0]}) == 16


def test_strict_reports_on_splits_that_the_search_has_not_seen(ring, tmp_path):
    assert tune(ring, tmp_path, "--trials", 2, "--protocol", "strict", "--final-runs", 2, *SHORT) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["search"]["report_seeds"] == [1000, 1001] and "0 in both" in result["search"]["splits"]


def test_the_best_are_looked_at_again_on_splits_that_did_not_choose_them(ring, tmp_path, capsys):
    options = ("--trials", 9, "--runs", 2, "--final-runs", 2, "--confirm", 3, "--protocol", "strict", *SHORT)
    assert tune(ring, tmp_path, *options) == 0
    assert "first of the 3 best on 10 more splits: " in capsys.readouterr().out
    study, result = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("study", "result"))
    confirmed = study["confirmed"]
    values = {row["number"]: row["value"] for row in study["all"]}
    settings = {row["number"]: str(sorted(row["params"].items())) for row in study["all"]}
    best = sorted({settings[n]: v for n, v in sorted(values.items(), key=lambda item: item[1])}.values())[-3:]
    assert sorted(values[row["number"]] for row in confirmed) == pytest.approx(best)
    assert len({settings[row["number"]] for row in confirmed}) == 3
    assert [row["confirmed"] for row in confirmed] == sorted((row["confirmed"] for row in confirmed), reverse=True)
    assert study["best"]["number"] == confirmed[0]["number"] == result["search"]["trial"]
    assert study["best"]["config"] == result["config"]
    assert result["search"]["confirm_seeds"] == [*range(2, 12)] and "0 in both" in result["search"]["splits"]
    assert tune(ring, tmp_path, *options) == 0  # nothing is searched, and what the search took is still known
    assert json.loads((tmp_path / "study.json").read_text()) == study
    capsys.readouterr()
    again = train(Graph.from_npz(ring), Config.from_dict(result["config"]), runs=10, seed=2)
    assert [run.val_accuracy for run in again.runs] == confirmed[0]["val_accuracy"]
    assert main(["best", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == study["best"]


def test_a_setting_that_was_tried_is_not_trained_again(ring, tmp_path):
    assert tune(ring, tmp_path, "--trials", 12, "--final-runs", 0, "--space", "a=0", "b=0", "dropout=0", "lr=0.01",
                "weight_decay=0", "bias=true,false", "--population", 3, *SHORT) == 0  # fmt: skip
    study = json.loads((tmp_path / "study.json").read_text())
    trained = [row for row in study["all"] if "as_trial" not in row]
    assert len(study["all"]) == 12 and len(trained) == 2
    assert len({(row["params"]["bias"], row["value"]) for row in study["all"]}) == 2
    assert study["epochs"] == 2 * 3 * 6


def test_a_space_of_one_point(ring, tmp_path):
    space = ["a=0", "b=0", "dropout=0", "lr=0.01", "weight_decay=0"]
    assert tune(ring, tmp_path, "--trials", 3, "--final-runs", 1, "--space", *space, *SHORT) == 0
    assert [trial.params for trial in trials_of(tmp_path)] == [{}] * 3


def test_a_time_budget_ends_a_search(ring, tmp_path):
    assert tune(ring, tmp_path, "--time-budget", "1.5s", "--final-runs", 1, *SHORT) == 0
    trials = trials_of(tmp_path)
    assert len(trials) > 5 and all(trial.state == TrialState.COMPLETE for trial in trials)
    before = len(trials)
    assert main(["tune", "--resume", str(tmp_path), "--quiet"]) == 0
    assert len(trials_of(tmp_path)) > before


# --- pruning


def test_the_command_line_names_every_pruner():
    assert list(cli_study.PRUNERS) == list(PRUNERS)


@pytest.mark.parametrize("pruner", cli_study.PRUNERS[1:])
def test_pruning_saves_epochs_and_counts_trials(ring, tmp_path, pruner, capsys):
    settings = ["--set", "epochs=100", "patience=100", "order=2", "rank=4", "--population", "9"]
    assert tune(ring, tmp_path, "--trials", 40, "--final-runs", 1, "--pruner", pruner, *settings) == 0
    trials = trials_of(tmp_path)
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    assert len(done_of(trials)) == len(trials) == 40 and 3 < len(pruned) < 40
    for trial in pruned:
        result, rung = trial.user_attrs["result"], trial.last_step
        assert len(result["epochs"]) == 3 and max(result["epochs"]) < 100
        assert min(result["epochs"]) == rung and trial.value == trial.intermediate_values[rung]
    for trial in trials:
        if trial.state == TrialState.COMPLETE:
            assert trial.user_attrs["result"]["epochs"] == [100] * 3
    assert f"{len(pruned)} pruned" in capsys.readouterr().out


# --- families


def test_a_search_over_families_says_which_won_and_by_how_much(ring, tmp_path, capsys):
    assert tune(ring, tmp_path, "--model", "auto", "--trials", 24, "--final-runs", 3, "--space", "rank=2,3",
                "basis=jacobi,chebyshev", "--set", "epochs=4", "hidden=8") == 0  # fmt: skip
    shown = capsys.readouterr().out
    study, result = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("study", "result"))
    families = study["families"]
    assert sum(row["trials"] for row in families) == 24 and len(families) > 3
    assert families[0]["model"] == result["model"] and families[0]["margin_test"] == {"mean": 0.0, "ci95": 0.0}
    assert [row["value"] for row in families] == sorted((row["value"] for row in families), reverse=True)
    for row in families[1:]:
        assert row["margin_test"]["mean"] == pytest.approx(families[0]["test_mean"] - row["test_mean"])
    assert "behind the winner" in shown and all(row["model"] in shown for row in families)


# --- stopping and going on


def test_a_finished_search_trains_nothing_again(ring, tmp_path, monkeypatch):
    assert tune(ring, tmp_path, "--trials", 4, "--final-runs", 1, *SHORT) == 0
    before = trials_of(tmp_path)

    def train_jobs(*args, **options):
        raise AssertionError

    monkeypatch.setattr("codesgc.tuning.driver.train_jobs", train_jobs)
    assert main(["tune", "--resume", str(tmp_path), "--quiet"]) == 0
    assert tune(ring, tmp_path, "--trials", 4, "--final-runs", 1, *SHORT) == 0
    assert trials_of(tmp_path) == before


def test_more_trials_go_on_from_those_there_are(ring, tmp_path):
    assert tune(ring, tmp_path, "--trials", 4, "--final-runs", 0, *SHORT) == 0
    before = trials_of(tmp_path)
    assert main(["tune", "--resume", str(tmp_path), "--quiet", "--trials", "9"]) == 0
    assert trials_of(tmp_path)[:4] == before and len(trials_of(tmp_path)) == 9


def wait_for(out: Path, done: int, process: subprocess.Popen) -> None:
    """Until so many trials are done."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (out / "study.log").exists() and (out / "study.log").read_text().count('"datetime_complete":"') >= done:
            return
        time.sleep(0.01)
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_says_how_to_go_on(ring, tmp_path, number, status):
    process = spawn("tune", ring, "--out", tmp_path, "--trials", 1000, *LONG)
    wait_for(tmp_path, 3, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert f"codesgc tune --resume {tmp_path} goes on" in err and "Traceback" not in err
    trials = trials_of(tmp_path)
    done = len(done_of(trials))
    assert f"interrupted, {done} of 1000 trials done" in err
    assert not any(trial.state == TrialState.RUNNING for trial in trials)
    assert not (tmp_path / "study.log.workers").exists()


def test_kill_at_random_moments_and_resume(ring, tmp_path):
    """What was done stays as it was; of what was under way nothing counts."""
    draw, before = random.Random(0), []
    options = [ring, "--out", tmp_path, "--trials", 24, "--final-runs", 1, "--quiet", *LONG]
    for round_ in range(3):
        process = spawn("tune", *options)
        wait_for(tmp_path, len(before) + 1, process)
        time.sleep(draw.random() * 0.4)
        process.kill()
        process.communicate()
        with (tmp_path / "study.log").open("ab") as log:  # as if the power had gone in mid-write
            log.write(b'{"op_code":5,"worker_id":"x","tri'[: 40 * (round_ % 2)])
        now = trials_of(tmp_path)
        assert [now[trial.number] for trial in before] == before
        before = done_of(now)
    out, _ = finish(spawn("tune", "--resume", tmp_path))
    trials = trials_of(tmp_path)
    assert len(done_of(trials)) == 24 and [trials[trial.number] for trial in before] == before
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    assert 1 <= len(failed) <= 3 * 6 and len(failed) + 24 == len(trials)
    assert f"24 complete, {len(failed)} failed" in out


# --- several workers


@pytest.mark.parametrize("scheme", ["", "sqlite:///"])
def test_workers_share_a_study_to_the_last_trial(ring, tmp_path, scheme):
    """One of them comes late, one is killed in mid-trial; the trials are as many as were asked for."""
    storage = f"{scheme}{tmp_path}/study.log"
    options = ["--storage", storage, "--trials", 24, "--final-runs", 1, "--quiet", *LONG]
    first, second = (spawn("tune", ring, "--out", tmp_path / str(i), *options) for i in range(2))
    trials: list = []
    while len(done_of(trials)) < 3:
        assert first.poll() is None and second.poll() is None
        time.sleep(0.1)
        with contextlib.suppress(ValueError):  # not yet begun
            trials = read(storage)
    first.kill()
    first.communicate()
    late = spawn("tune", ring, "--out", tmp_path / "2", *options)
    finish(second)
    finish(late)
    trials = read(storage)
    assert len(done_of(trials)) == 24
    assert not any(trial.state == TrialState.RUNNING for trial in trials)
    assert len({trial.user_attrs["worker"] for trial in done_of(trials)}) >= 2
    results = [json.loads((tmp_path / str(i) / "result.json").read_text()) for i in (1, 2)]
    assert results[0]["runs"] == results[1]["runs"] and results[0]["search"] == results[1]["search"]


def test_a_trial_too_many_is_given_up(ring, tmp_path):
    """Two workers that both saw one trial missing."""
    identity = {"runs": 1, "base": {"epochs": 5}}
    space = make_space("L-CP", {"epochs": 5})
    studies = [Study(str(tmp_path / "log"), "s", identity, space, trials=3) for _ in range(2)]
    assert all(study.wants() for study in studies)
    asked = [studies[0].ask(), studies[1].ask(), studies[0].ask(), studies[1].ask()]
    assert [trial is not None for trial in asked] == [True, True, True, False]
    assert not any(study.wants() for study in studies)
    studies[1].abandon([asked[1]])
    assert studies[0].wants() and studies[0].ask() is not None
    for study in studies:
        study.leave()


def test_a_trial_that_others_gave_up_is_dropped_quietly(ring, tmp_path):
    identity, space = {"runs": 3, "base": {"epochs": 5}}, make_space("L-CP", {"epochs": 5, "order": 2})
    study = Study(str(tmp_path / "log"), "s", identity, space, trials=4)
    search = Search(Graph.from_npz(ring), study, population=3)
    given_up = []

    def watch(search: Search) -> None:
        if not given_up:
            given_up.append(search.active[0].handle.number)
            optuna.load_study(study_name="s", storage=open_storage(str(tmp_path / "log"))).tell(
                given_up[0], state=TrialState.FAIL
            )

    search.watch = watch
    search.run()
    states = [trial.state for trial in read(str(tmp_path / "log"), "s")]
    assert states[given_up[0]] == TrialState.FAIL and states.count(TrialState.COMPLETE) == 4


# --- the journal


def test_a_journal_goes_on_after_a_torn_line(tmp_path):
    path = str(tmp_path / "log")
    study = optuna.create_study(storage=open_storage(path), study_name="s")
    whole = Path(path).read_bytes()
    for torn in (b'{"op_code":4', b"\0" * 5000, b"{"):
        with open(path, "ab") as log:
            log.write(torn)
        study = optuna.load_study(study_name="s", storage=open_storage(path))
        study.ask()
        text = Path(path).read_bytes()
        assert text.startswith(whole) and text.endswith(b"\n") and torn not in text[len(whole) :].splitlines()
        whole = text
    assert len(study.trials) == 3


def test_a_line_that_does_not_fit_is_taken_back(tmp_path, monkeypatch):
    """The kernel writes what fits, and says so only at the next call."""
    path = str(tmp_path / "log")
    journal = Journal(path)
    journal.append_logs([{"op_code": 0, "n": 1}])
    before = Path(path).read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limit[1]))
        with pytest.raises(OSError, match="too large"):
            journal.append_logs([{"op_code": 0, "n": "x" * 100}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("scheme", ["", "sqlite:///"])
def test_a_full_disk_is_one_line_and_damages_nothing(ring, tmp_path, scheme):
    disk = tmp_path / "disk"
    disk.mkdir()
    size = 100 if not scheme else 300
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        options = ["--storage", f"{scheme}{disk}/log", "--trials", 1000, "--final-runs", 1, "--quiet", *SHORT]
        process = spawn("tune", ring, "--out", tmp_path, *options)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2 and err.startswith("codesgc: error: storage ") and err.count("\n") == 1, err
        assert "No space left" in err or "full" in err
        before = done_of(read(f"{scheme}{disk}/log"))
        assert len(before) > 3
        subprocess.run(["mount", "-o", "remount,size=20M", disk], check=True)
        finish(spawn("tune", "--resume", tmp_path, "--trials", len(before) + 5))
        trials = read(f"{scheme}{disk}/log")
        assert [trials[trial.number] for trial in before] == before and len(done_of(trials)) == len(before) + 5
    finally:
        subprocess.run(["umount", disk], check=True)


# --- mistakes

MISTAKES = [
    ("tune", "DATASET is missing"),
    ("tune RING", "--out DIR is missing"),
    ("tune RING --out OUT --model L-PC", "did you mean 'L-CP'?"),
    ("tune RING --out OUT --pruner mediam", "did you mean 'median'?"),
    ("tune RING --out OUT --trials 0", "--trials '0': expected a whole number >= 1"),
    ("tune RING --out OUT --time-budget soon", "'soon': expected seconds"),
    ("tune RING --out OUT --protocol strct", "did you mean 'strict'?"),
    ("tune RING --out OUT --space a=1:0", "is empty"),
    ("tune RING --out OUT --space rnk=1", "did you mean 'rank'?"),
    ("tune RING --out OUT --space dropout.C=2", "expected a number >= 0 and <= 1"),
    ("tune RING --out OUT --space-file OUT/none.json", "cannot be read"),
    ("tune RING --out OUT --storage mysql://x/y", "storage 'mysql://' is unknown"),
    ("tune RING --out OUT --storage postgresql://u:secret@127.0.0.1:9/x", "storage postgresql://u:***@127.0.0.1:9/x: "),
    ("tune RING --out OUT --storage postgresql://u:secret@127.0.0.1:port/x", "it cannot be read"),
    ("tune RING --out OUT --storage sqlite:///OUT/none/x.db", "there is no folder"),
    ("tune RING --out OUT --storage sqlite://", "expected the path of a file"),
    ("tune RING --out OUT --storage OUT", "that is a folder"),
    ("tune RING --out OUT --storage OUT/none/log", "there is no folder"),
    ("tune RING --out OUT --storage OUT/text", "is no journal of Optuna's"),
    ("tune RING --out OUT --storage sqlite:///OUT/text", "file is not a database"),
    ("tune RING --resume OUT", "leave out RING"),
    ("tune --resume OUT", "holds no search"),
    ("best OUT", "holds no search"),
    ("tune RING --out OUT --set lr=0.1 --space lr=0.1,0.2", "in --set and in --space"),
]


@pytest.mark.parametrize("line, message", MISTAKES, ids=[line for line, _ in MISTAKES])
def test_mistake_is_one_line_and_changes_nothing(line, message, ring, tmp_path, capsys):
    (tmp_path / "text").write_text("mine, and not of Optuna")
    words = [word.replace("RING", ring).replace("OUT", str(tmp_path)) for word in line.split()]
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("codesgc: error: ") and shown.err.count("\n") == 1 and shown.out == ""
    assert message.replace("RING", ring) in shown.err and "secret" not in shown.err
    assert (tmp_path / "text").read_text() == "mine, and not of Optuna"
    assert sorted(os.listdir(tmp_path)) in (["text"], ["study.log", "text"])


@pytest.mark.parametrize(
    "options, message",
    [
        (["--model", "L-Tucker"], "has model L-CP, and L-Tucker was asked for"),
        (["--runs", "1"], "has runs 2, and 1"),
        (["--seed", "1"], "has seed 0, and 1"),
        (["--protocol", "strict"], "has protocol paper, and strict"),
        (["--space", "a=0,1"], "has space a="),
        (["--set", "order=3"], "has base order=2, and order=3"),
        (["--pruner", "median"], "has pruner none, and median"),
    ],
)
def test_a_study_of_something_else_is_left_alone(ring, tmp_path, capsys, options, message):
    base = ["--study", "mine", "--runs", 2, "--trials", 2, "--final-runs", 0, *SHORT]
    assert tune(ring, tmp_path, *base) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    capsys.readouterr()
    assert tune(ring, tmp_path, *base, *options) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_without_optuna_it_says_what_to_install(ring, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert tune(ring, tmp_path) == 2
    assert "pip install 'codesgc[tune]'" in capsys.readouterr().err


def test_passwords_are_not_written_down(tmp_path):
    assert without_password("postgresql://u:secret@host/db") == "postgresql://u@host/db"
    assert without_password("postgresql://host/db") == "postgresql://host/db"


# --- what is shown


def test_best_of_a_search_that_goes_on_and_of_one_that_has_ended(ring, tmp_path, capsys):
    assert tune(ring, tmp_path, "--trials", 3, "--final-runs", 2, *SHORT) == 0
    capsys.readouterr()
    assert main(["best", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "3 complete trials" in shown and "2 runs with it: test accuracy" in shown and "  lr.C=" in shown
    assert main(["best", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["number"] in range(3)
    (tmp_path / "study.json").unlink()
    (tmp_path / "result.json").unlink()
    assert main(["best", str(tmp_path)]) == 0
    assert "runs with it" not in capsys.readouterr().out


def test_a_pipe_gets_a_line_now_and_then(ring, tmp_path, capsys, monkeypatch):
    real = cli_tune.Progress.__init__

    def often(self, *args):
        real(self, *args)
        self.pause = 0.0

    monkeypatch.setattr(cli_tune.Progress, "__init__", often)
    assert main(["tune", ring, "--out", str(tmp_path), "--trials", "4", "--final-runs", "0", *SHORT]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any("/4 trials, best " in line and "/min" in line for line in lines)


def test_a_terminal_gets_a_line_that_vanishes(ring, tmp_path):
    shown, status = on_pty("tune", ring, "--out", tmp_path, "--trials", 12, "--final-runs", 2, *LONG)
    assert status == 0
    before, _, after = shown.decode().partition("ring.npz, L-CP, paper protocol: 12 complete")
    assert "L-CP: starting" in before and "/12 trials, best " in before and "/min, " in before and " left" in before
    assert before.split("\r")[-2].strip() == "" and "test accuracy" in after


# --- what a review found


def test_best_says_whose_runs_it_shows(ring, tmp_path, capsys):
    assert tune(ring, tmp_path, "--trials", 2, "--final-runs", 2, *SHORT) == 0
    first = json.loads((tmp_path / "result.json").read_text())["search"]["trial"]
    assert main(["tune", "--resume", str(tmp_path), "--trials", "25", "--final-runs", "0", "--quiet"]) == 0
    number = json.loads((tmp_path / "study.json").read_text())["best"]["number"]
    capsys.readouterr()
    assert main(["best", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"best: trial {number}," in shown and number != first
    assert f"2 runs with trial {first}, the best before: test accuracy" in shown


@pytest.mark.parametrize(
    "text", ["[]", "null", "3", '{"dataset": 3}', '{"dataset": "x"}', '{"study": "x", "runs": "3"}']
)
def test_damaged_options_are_one_line(ring, tmp_path, capsys, text):
    (tmp_path / "options.json").write_text(text)
    for command in (["best", str(tmp_path)], ["tune", "--resume", str(tmp_path)]):
        assert main(command) == 2
        err = capsys.readouterr().err
        assert "options.json is damaged" in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["study.json", "result.json"])
@pytest.mark.parametrize("text", ["{", "null", "{}", "[1]"])
def test_damaged_outcomes_are_one_line(ring, tmp_path, capsys, name, text):
    assert tune(ring, tmp_path, "--trials", 1, "--final-runs", 1, *SHORT) == 0
    (tmp_path / name).write_text(text)
    capsys.readouterr()
    assert main(["best", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert f"{name} is damaged" in err and err.count("\n") == 1
