"""Result files, recordings and studies to test reports with."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import torch

from codesgc import Config, Graph, preset
from codesgc.recording import record
from codesgc.zoo import MODELS, paper_value


def result(
    dataset: str = "texas", model: str = "L-CP", *, mean: float = 90.0, protocol: str = "paper"
) -> dict[str, Any]:
    """A result as `codesgc train --json` writes it, of four runs with this mean."""
    offsets = (-1.5, -0.5, 0.5, 1.5)
    paper = paper_value(dataset, model) if model in MODELS else None
    return {
        "dataset": dataset,
        "model": model,
        "protocol": protocol,
        "config": (preset(dataset, model) if model in MODELS else Config()).to_dict(),
        "runs": [
            {"seed": seed, "val_accuracy": 91.0, "test_accuracy": mean + offset, "best_epoch": 3, "epochs": 5}
            for seed, offset in enumerate(offsets)
        ],
        "test_mean": mean,
        "test_ci95": 1.0,
        "interrupted": False,
        "seconds": 1.5,
        "versions": {"codesgc": "0.1.0", "torch": "2.0"},
        "paper": None if paper is None else {"mean": paper[0], "ci95": paper[1]},
    }


@cache
def _recorded(model: str) -> str:
    graph = Graph([range(39), range(1, 40)], x=torch.eye(40), y=[0, 1] * 20, to_undirected=True, name="texas")
    return json.dumps(record(graph, preset("texas", model).updated({"epochs": 30, "hidden": 8})))


def recording(model: str = "L-CP") -> dict[str, Any]:
    """What a model learned on a path of 40 nodes."""
    found: dict[str, Any] = json.loads(_recorded(model))
    return found


def study(trials: int = 30) -> dict[str, Any]:
    """A search with numbers and words, and a trial without a value."""
    draw = random.Random(0)
    return {
        "dataset": "texas",
        "model": "L-CP",
        "trials": {"complete": trials - 1, "pruned": 1},
        "all": [
            {
                "number": i,
                "state": "pruned" if i == 3 else "complete",
                "value": None if i == 3 else 80 + 10 * draw.random(),
                "params": {"a": draw.uniform(-1, 2), "rank": draw.choice([8, 16]), "basis": draw.choice(["x", "y"])},
            }
            for i in range(trials)
        ],
    }


def write(folder: Path, **contents: Any) -> str:
    """Each content as the file NAME.json; the folder as text."""
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder)
