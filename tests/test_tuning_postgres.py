"""Many workers on a real PostgreSQL server, which the test starts and stops."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState

from codesgc.cli import main
from codesgc.tuning.study import reading

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error", "PGPASSWORD": "secret"}
NAME = "ring.npz-L-CP-paper"


def programs() -> Path | None:
    """The folder of initdb and postgres: Debian keeps them off the PATH."""
    found = [Path(p).parent for p in [shutil.which("initdb")] if p]
    return next(iter([*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *found]), None)


def as_postgres(*command: object) -> list[str]:
    """Root may not run the server."""
    return [*(["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []), *map(str, command)]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[str]:
    """The URL of an empty database on a port of 127.0.0.1 that is free."""
    folder = programs()
    if folder is None:
        pytest.fail("no PostgreSQL is installed: apt-get install postgresql")
    data = Path("/tmp") / f"codesgc-postgres-{os.getpid()}"  # pytest's own folders are closed to other users
    data.mkdir(mode=0o700)
    password = data.with_suffix(".password")
    password.write_text("secret")
    if os.getuid() == 0:
        shutil.chown(data, "postgres")
        shutil.chown(password, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["-U", "tuner", "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--no-sync"]
    subprocess.run(as_postgres(folder / "initdb", "-D", data, *options), check=True, capture_output=True, cwd="/")
    command = as_postgres(folder / "postgres", "-D", data, "-h", "127.0.0.1", "-p", port, "-k", data)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    try:
        import psycopg

        for _ in range(300):
            try:
                psycopg.connect(f"postgresql://tuner:secret@127.0.0.1:{port}/postgres").close()
                break
            except psycopg.OperationalError:
                time.sleep(0.1)
        yield f"postgresql://tuner:secret@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run(
            as_postgres(folder / "pg_ctl", "-D", data, "-m", "immediate", "stop"), capture_output=True, cwd="/"
        )
        process.wait(timeout=30)
        shutil.rmtree(data)
        password.unlink()


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("graphs") / "ring.npz"
    start = np.arange(60)
    edges = np.stack([np.r_[start, (start + 1) % 60], np.r_[(start + 1) % 60, start]])
    np.savez(file, edge_index=edges, x=np.random.default_rng(0).random((60, 5)), y=start % 2)
    return str(file)


def worker(ring: str, url: str, out: Path, *options: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "codesgc.cli", "tune", ring, "--storage", url, "--out", out, "--quiet", *options]
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def read(url: str, name: str) -> list:
    with reading(url, name) as study:
        return study.get_trials()


def of(trial: FrozenTrial, process: subprocess.Popen) -> bool:
    """Whether that worker is at the trial, or has done it."""
    return trial.user_attrs.get("worker", "::").split(":")[1] == str(process.pid)


def test_workers_that_die_and_come_late_end_with_the_trials_asked_for(server, ring, tmp_path):
    """Four begin at once on an empty database, one is killed in mid-trial, a fifth comes late."""
    options = ["--trials", 60, "--final-runs", 1, "--heartbeat", 1, "--population", 3]
    options += ["--set", "epochs=100", "patience=100", "order=2", "rank=4"]
    workers = [worker(ring, server, tmp_path / str(i), *options) for i in range(4)]
    trials: list = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            assert all(process.poll() is None for process in workers), [p.communicate() for p in workers if p.poll()]
            time.sleep(0.1)
            with contextlib.suppress(ValueError):  # not yet begun
                trials = read(server, NAME)
            if sum(t.state == TrialState.COMPLETE for t in trials) < 3:
                continue
            workers[0].send_signal(signal.SIGSTOP)  # so that it is at a trial when it is killed
            if any(t.state == TrialState.RUNNING and of(t, workers[0]) for t in read(server, NAME)):
                break
            workers[0].send_signal(signal.SIGCONT)
        workers[0].kill()
        workers[0].communicate()
        workers.append(worker(ring, server, tmp_path / "late", *options))
        for process in workers[1:]:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
    finally:
        for process in workers:
            process.kill()
            process.communicate()
    trials = read(server, NAME)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    assert len(complete) == 60 and {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.FAIL}
    killed = [t for t in trials if of(t, workers[0])]
    assert [t.state for t in killed].count(TrialState.FAIL) == 1  # that which it was at, by its heartbeats
    assert any(of(t, workers[-1]) for t in complete)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("1", "2", "3", "late")]
    assert all(result["runs"] == results[0]["runs"] for result in results)
    assert "secret" not in (tmp_path / "late" / "options.json").read_text()


def test_wrong_passwords_and_databases_are_one_line(server, ring, tmp_path, capsys):
    for url, message in (
        (server.replace("secret", "wrong"), "password authentication failed"),
        (server.replace("/postgres", "/nowhere"), 'database "nowhere" does not exist'),
    ):
        assert main(["tune", ring, "--storage", url, "--out", str(tmp_path)]) == 2
        shown = capsys.readouterr()
        assert message in shown.err and shown.err.count("\n") == 1 and "wrong" not in shown.err


def test_connections_that_are_cut_lose_nothing(server, ring, tmp_path):
    """The worker connects again, or ends with one line; the same command then does what is left."""
    import psycopg

    options = ["--trials", 30, "--study", "cut", "--final-runs", 0, "--population", 3, "--heartbeat", 1]
    options += ["--set", "epochs=30", "order=2", "rank=4"]
    process = worker(ring, server, tmp_path, *options)
    with psycopg.connect(server, autocommit=True) as connection:
        for _ in range(20):
            time.sleep(0.5)
            others = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
            connection.execute(others + " and usename = 'tuner' and state = 'idle'")
    _, err = process.communicate()
    assert process.returncode == 0 or (err.startswith("codesgc: error: storage ") and err.count("\n") == 1), err
    last = worker(ring, server, tmp_path, *options)
    assert last.communicate(timeout=60) and last.returncode == 0
    trials = read(server, "cut")
    assert sum(trial.state == TrialState.COMPLETE for trial in trials) == 30
    assert not any(trial.state == TrialState.RUNNING for trial in trials)
