"""Published settings and published results, read from JSON files that state their source."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from codesgc.zoo.config import Config
from codesgc.zoo.models import find_model

#: the columns of the paper's Tables 2 and 3; the last two of Table 2 stand in Table 3 again
TABLES = {
    "2": ("ChebNet", "GCN", "APPNP", "GPR-GNN", "BernNet", "JacobiConv", "L-Tucker", "L-CP"),
    "3": ("H-Tucker2", "H-Tucker1", "H-Tucker", "H-CP", "L-Tucker2", "L-Tucker1", "L-Tucker", "L-CP"),
}


@cache
def _read(name: str) -> Any:
    return json.loads(files("codesgc.zoo").joinpath(name).read_text(encoding="utf-8"))


#: files of settings, the first that has a pair counts, and what they are called
SOURCES = {"published.json": "published", "found.json": "found by our search"}


def preset(dataset: str | None, model: str) -> Config:
    """The model with the settings that its authors published for that dataset, else those that a search of ours found.

    Where there are neither, it is as the zoo has it.
    """
    return find_model(model).updated(_settings(dataset, model)[1])


def origin(dataset: str | None, model: str) -> str:
    """Where the preset of this pair comes from: "published", "found by our search", or "default"."""
    return _settings(dataset, model)[0]


def _settings(dataset: str | None, model: str) -> tuple[str, dict[str, Any]]:
    for file, known_as in SOURCES.items():
        settings = _read(file)["settings"].get(dataset or "", {}).get(find_model(model).model)
        if settings is not None:
            return known_as, settings
    return "default", {}


def paper_value(dataset: str | None, model: str) -> tuple[float, float] | None:
    """(mean, half-width of the 95 % interval) of the test accuracy in the paper's Tables 2 and 3, in per cent."""
    cell = _read("paper.json")["accuracy"].get(dataset or "", {}).get(find_model(model).model)
    return None if cell is None else (cell[0], cell[1])


def paper_datasets() -> list[str]:
    """The graphs of these tables, as the paper orders them."""
    return list(_read("paper.json")["accuracy"])
