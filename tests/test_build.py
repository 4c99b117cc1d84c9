"""The native build where there is nothing to build with, and the engine without its kernels."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_configuring_without_a_compiler_warns_and_succeeds(tmp_path):
    tools = Path(sys.executable).parent
    environment = {"PATH": str(tools), "CXX": str(tmp_path / "no-compiler")}
    done = subprocess.run(
        [tools / "cmake", "-G", "Ninja", "-S", ROOT / "native", "-B", tmp_path / "build"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "no C++ compiler was found" in done.stderr
    assert not list((tmp_path / "build").rglob("_native*"))


def run_without_kernels(*arguments: str) -> str:
    environment = {**os.environ, "CODESGC_ENGINE": "portable", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "codesgc.cli", *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_names_the_engine():
    assert "portable engine" in run_without_kernels("--version")
    native = subprocess.run([sys.executable, "-m", "codesgc.cli", "--version"], capture_output=True, text=True)
    assert "native kernels (" in native.stdout


def test_portable_engine_trains_as_the_native_one():
    arguments = ["train", "texas", "--runs", "2", "--set", "epochs=15", "--json", "-"]
    assert '"engine": "portable engine' in run_without_kernels(*arguments)
