"""What is searched: for every model a space of configurations, as data, that the user may narrow, widen or fix.

A dimension has the key that `--set` knows a setting by. `lr`, `weight_decay` and `dropout` stand for those of every
factor and place of the model; `lr.C` is for one of them and counts more.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from codesgc import settings
from codesgc.errors import InputError, unknown
from codesgc.names import MAPPINGS, PARTS, fitted, names
from codesgc.tuning.ranges import Choices, Dimension, Range, Suggester, parse_dimension, read_dimension
from codesgc.zoo import MODELS, Config, find_model

__all__ = ["AUTO", "Choices", "Range", "Space", "make_space", "parse_space", "read_space"]

AUTO = "auto"  # in place of a model: search over the CoDeSGC families too
RATES = ("lr", "weight_decay", "dropout")


@cache
def _published() -> Any:
    return json.loads(files("codesgc.tuning").joinpath("spaces.json").read_text(encoding="utf-8"))


@cache
def published_ranges(model: str) -> dict[str, Dimension]:
    """The ranges of a model of the zoo by key."""
    kinds = (_published()["ranges"][kind] for kind in _published()["models"][model])
    return {key: read_dimension(key, data) for kind in kinds for key, data in kind.items() if key != "source"}


@dataclass(frozen=True)
class Space:
    """A set of configurations of one model, or of families of models, and how one is drawn from it.

    `parts` are the choices of architecture, decomposition and basis that are searched; they decide which dimensions
    there are. Of these the user's `own` count more than the model's published ones. What is not searched is as in the
    model with the user's `changes`.
    """

    model: str
    changes: Mapping[str, Any]
    parts: Mapping[str, Choices]
    own: Mapping[str, Dimension]

    def base(self, parts: Mapping[str, Any] | None = None) -> Config:
        """The configuration before anything is drawn, with these parts or the first ones."""
        parts = {key: dimension.values[0] for key, dimension in self.parts.items()} if parts is None else parts
        if self.model == AUTO:
            rows = (row for row in MODELS.values() if row.model[:2] in ("L-", "H-"))
            family = {"architecture": "linear", "decomposition": "cp"} | {**self.changes, **parts}
            found = [row for row in rows if all(getattr(row, part) == family[part] for part in PARTS[::2])]
            if not found:
                raise InputError(
                    f"family {family['architecture']} {family['decomposition']}: expected one of the CoDeSGC models; "
                    "give the model's name in place of auto"
                )
            config = found[0]
        else:
            config = find_model(self.model)
        changes = {**self.changes, **parts}
        for key, value in changes.items():
            config = config.updated({key: value})
        return fitted(config, changes)

    def families(self) -> Iterator[Config]:
        """The base of every combination of parts."""
        for values in itertools.product(*(dimension.values for dimension in self.parts.values())):
            yield self.base(dict(zip(self.parts, values, strict=True)))

    def dimensions(self, config: Config) -> dict[str, Dimension]:
        """What is drawn for a configuration with these parts."""
        fixed = {key.removeprefix("options.") for key in self.changes}
        found: dict[str, Dimension] = {}
        for key in keys(config):
            kind = key.partition(".")[0]
            if key in self.own:
                found[key] = self.own[key]
            elif not fixed & {key, kind}:
                ranges = {**published_ranges(config.model), **self.own}
                if key in ranges or kind in ranges:
                    found[key] = ranges[key] if key in ranges else ranges[kind]
        return found

    def suggest(self, trial: Suggester) -> Config:
        """Draw a configuration; equal parameters give an equal one."""
        parts = {key: dimension.suggest(trial, key) for key, dimension in self.parts.items()}
        config = self.base(parts)
        return config.updated({key: d.suggest(trial, key) for key, d in self.dimensions(config).items()})

    def check(self, in_channels: int, out_channels: int) -> None:
        """An error for a space with a point that makes no model: every family, and the ends of every dimension."""
        seen: set[str] = set()
        for config in self.families():
            dimensions = self.dimensions(config)
            config = config.updated({key: dimension.corners()[0] for key, dimension in dimensions.items()})
            settings.check(config, in_channels, out_channels)
            for key in dimensions.keys() - seen:
                for value in dimensions[key].corners()[1:]:
                    settings.check(config.updated({key: value}), in_channels, out_channels)
            seen |= dimensions.keys()

    def largest(self) -> list[Config]:
        """Of every shape of family, the configuration that needs most memory."""
        found = {}
        for config in self.families():
            sizes = {
                key: max(dimension.corners(), key=float)  # type: ignore[arg-type]
                for key, dimension in self.dimensions(config).items()
                if all(isinstance(value, int) and not isinstance(value, bool) for value in dimension.corners())
            }
            found[config.architecture, config.decomposition] = config.updated(sizes)
        return list(found.values())

    def to_json(self) -> dict[str, Any]:
        """Every dimension by its key, those of all families together."""
        found = {key: dimension.to_json() for key, dimension in self.parts.items()}
        for config in self.families():
            found |= {key: dimension.to_json() for key, dimension in self.dimensions(config).items()}
        return found


def keys(config: Config) -> list[str]:
    """Every setting of such a model that a dimension may have, but for the parts."""
    known = names(config)
    fields = [f.name for f in dataclasses.fields(config) if f.name not in (*MAPPINGS, *PARTS, "model")]
    entries = [f"dropout.{place}" for place in known.dropout]
    entries += [f"{rate}.{group}" for rate in RATES[:2] for group in known.groups]
    return [*fields, *known.options, *entries]


def parse_space(texts: Iterable[str]) -> dict[str, Dimension]:
    """`KEY=V1,V2`, `KEY=LOW:HIGH[:STEP]` and `KEY=VALUE` texts as dimensions by key."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals or not value:
            raise InputError(f"space {text!r}: expected KEY=V1,V2,... or KEY=LOW:HIGH[:STEP] or KEY=VALUE")
        found[key] = parse_dimension(key, value)
    return found


def read_space(file: str) -> dict[str, Dimension]:
    """The same from a JSON file: `{"lr": [0.01, 0.05], "dropout": {"low": 0.0, "high": 0.9, "step": 0.1}}`."""
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"--space-file {file} cannot be read: {error}; expected JSON as 'codesgc tune' shows"
        ) from None
    if not isinstance(data, dict):
        raise InputError(f"--space-file {file}: expected a JSON object with the settings' keys")
    return {key: read_dimension(key, value) for key, value in data.items()}


def make_space(
    model: str, changes: Mapping[str, Any] | None = None, own: Mapping[str, Dimension] | None = None
) -> Space:
    """The space of a model, or of `AUTO`, with the user's changes to settings and to dimensions.

    >>> make_space("L-Tucker", {"lr": 0.01}).to_json()["rank"]
    [4, 8, 16, 32]
    """
    changes, own = dict(changes or {}), dict(own or {})
    model = AUTO if model.lower() == AUTO else find_model(model).model
    for key in changes.keys() & own.keys():
        raise InputError(f"{key} is in --set and in --space: expected one of the two; leave one out")
    families = _published()["families"] if model == AUTO else {}
    parts: dict[str, Choices] = {}
    for key in PARTS:
        dimension = own.pop(key, None)
        if isinstance(dimension, Range):
            raise InputError(f"space {key}: expected names, as {key}=V1,V2")
        if dimension is not None:
            parts[key] = dimension
        elif key in families and key not in changes:
            parts[key] = Choices(tuple(families[key]))
    space = Space(model, changes, parts, own)
    known = {*PARTS, *RATES}.union(*(keys(config) for config in space.families()))
    for key in own:
        if key not in known:
            raise unknown(f"space key of {model}:", key, known)
    return space
