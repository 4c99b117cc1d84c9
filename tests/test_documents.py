"""What the README shows and the examples do runs as it stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from codesgc.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_readme_python_runs_from_top_to_bottom():
    assert len(blocks("python")) >= 3
    namespace: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)


@pytest.mark.parametrize("line", [line[2:] for block in blocks("console") for line in block.splitlines()])
def test_readme_commands_run(line, capsys):
    program, *arguments = shlex.split(line)
    assert program == "codesgc"
    assert main(arguments) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_example_runs(example):
    done = subprocess.run([sys.executable, "-W", "error", example], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout
