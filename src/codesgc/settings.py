"""Settings as text, KEY=VALUE: those that the command line is given, and those that a model has.

The first half does without torch, so that a slip in a name or a number is answered at once.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from codesgc.errors import InputError
from codesgc.zoo import Config, preset
from codesgc.zoo.config import ARCHITECTURES, PRIORS


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE texts as a mapping; a value is a JSON scalar, or else a word.

    >>> parse_settings(["order=5", "lr.C=1e-2", "bias=false", "basis=chebyshev"])
    {'order': 5, 'lr.C': 0.01, 'bias': False, 'basis': 'chebyshev'}
    """
    changes: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not value:
            raise InputError(f"setting {text!r}: expected KEY=VALUE, as order=5 or lr.C=0.01")
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", key):
            raise InputError(f"setting {text!r}: {key!r} is no key; expected one like order or lr.C")
        if key == "model":
            raise InputError(f"setting {text!r}: the model is not a setting of itself; pass --model {value}")
        changes.pop(key, None)  # given twice: the later one counts, and comes after whatever stands between the two
        changes[key] = scalar(key, value)
    return changes


def scalar(key: str, text: str) -> Any:
    """A JSON scalar, a number as Python writes it, or else a word.

    >>> scalar("lr", "1e-2"), scalar("dropout.C", ".5"), scalar("bias", "true"), scalar("basis", "jacobi")
    (0.01, 0.5, True, 'jacobi')
    """

    def not_json(word: str) -> Any:
        raise ValueError(word)

    try:
        value = json.loads(text, parse_constant=not_json)
    except (ValueError, RecursionError):
        if not re.fullmatch(r"[+-]?(\d+\.|\.\d+|\d+\.\d+)([eE][+-]?\d+)?", text):
            return text
        value = float(text)  # .5, 5. and +0.5 are no JSON
    if isinstance(value, list | dict):
        return text
    if not isinstance(value, str) and value is not None and not abs(value) < 2**31:
        raise InputError(f"{key} {text}: expected a number of a size that makes sense, below 2**31")
    return value


def requested(dataset: str | None, model: str, changes: Mapping[str, Any]) -> Config:
    """The preset of that dataset and model with the changes applied one after the other."""
    config = preset(dataset, model)
    for key, value in changes.items():
        config = config.updated({key: value})
    return config


def check(config: Config, in_channels: int, out_channels: int) -> None:
    """Any error that building and calling such a model would raise; the model is built, called on two nodes, let go."""
    import torch

    from codesgc.models import SpectralModel

    model = SpectralModel(in_channels, out_channels, config)
    model(torch.ones(2, in_channels), torch.tensor([[0, 1], [1, 0]]))


def choices() -> dict[str, list[str]]:
    """The registered names of the settings that take a name."""
    from codesgc.bases import BASES
    from codesgc.decompositions import DECOMPOSITIONS
    from codesgc.matrices import MATRICES

    registries = {"architecture": ARCHITECTURES, "decomposition": DECOMPOSITIONS, "basis": BASES, "matrix": MATRICES}
    return {key: sorted(registry) for key, registry in registries.items()} | {"prior": list(PRIORS)}


def listed(config: Config) -> list[tuple[str, str]]:
    """Every setting of the model as KEY and VALUE, those that it leaves at their defaults included.

    >>> dict(listed(preset("cora", "L-CP")))["lr.C"]
    '0.05'
    """
    from codesgc.models import rates
    from codesgc.names import MAPPINGS, names

    known, otherwise = names(config), config.dropout.get("default", 0.0)
    rows: list[tuple[str, Any]] = [
        (f.name, getattr(config, f.name))
        for f in dataclasses.fields(config)
        if f.name != "model" and f.name not in MAPPINGS
    ]
    rows += [(name, config.options.get(name, p.default)) for name, p in known.options.items()]
    rows += [(f"dropout.{place}", config.dropout.get(place, otherwise)) for place in known.dropout]
    for i, mapping in enumerate(("lr", "weight_decay")):
        rows += [(f"{mapping}.{group}", rates(config, group)[i]) for group in known.groups]
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in rows]
