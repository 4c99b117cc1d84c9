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


def preset(dataset: str | None, model: str) -> Config:
    """The model with the settings its authors published for that dataset, or as the zoo has it where there are none."""
    config = find_model(model)
    published = _read("published.json")["settings"].get(dataset or "", {}).get(config.model)
    return config if published is None else config.updated(published)


def is_published(dataset: str | None, model: str) -> bool:
    """Whether `preset` has published settings for this pair."""
    return find_model(model).model in _read("published.json")["settings"].get(dataset or "", {})


def paper_value(dataset: str | None, model: str) -> tuple[float, float] | None:
    """(mean, half-width of the 95 % interval) of the test accuracy in the paper's Tables 2 and 3, in per cent."""
    cell = _read("paper.json")["accuracy"].get(dataset or "", {}).get(find_model(model).model)
    return None if cell is None else (cell[0], cell[1])


def paper_datasets() -> list[str]:
    """The graphs of these tables, as the paper orders them."""
    return list(_read("paper.json")["accuracy"])
