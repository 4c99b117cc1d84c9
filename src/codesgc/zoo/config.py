"""One model and how it is trained, as data."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from codesgc.errors import InputError, unknown

ARCHITECTURES = ("linear", "hybrid", "multi-layer")
PRIORS = ("training", "validation")
Numbers = Mapping[str, float]
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """The choices that make a model, and its training; every field is lossless in JSON.

    `options` are those of the basis and of the decomposition, as `a`, `b`, `rank`. `dropout` has a rate for each place
    in the model, `lr` and `weight_decay` a number for each factor; the key "default" stands for those not named, and is
    0 for dropout and weight decay if it is not named itself. `prior` says how frequent the classes are where the model
    will be used: as among the nodes that train it, as in the paper, or as among those that validate
    (`codesgc.training.splits.prior_shift`).

    >>> Config(model="mine", order=5).updated({"lr.C": 0.05, "rank": 8, "dropout": 0.5})
    Config(model='mine', order=5, options={'rank': 8}, dropout={'default': 0.5}, lr={'default': 0.01, 'C': 0.05})
    """

    model: str = "L-CP"
    architecture: str = "linear"
    decomposition: str = "cp"
    basis: str = "jacobi"
    matrix: str = "sym"
    order: int = 10
    hidden: int = 64
    layers: int = 2
    bias: bool = True
    options: Options = field(default_factory=dict)
    dropout: Numbers = field(default_factory=dict)
    lr: Numbers = field(default_factory=lambda: {"default": 0.01})
    weight_decay: Numbers = field(default_factory=dict)
    epochs: int = 1000
    patience: int = 200
    prior: str = "training"

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), kind))
        if self.architecture not in ARCHITECTURES:
            raise unknown("architecture", self.architecture, ARCHITECTURES)
        if self.prior not in PRIORS:
            raise unknown("prior", self.prior, PRIORS)
        for name, least in (("order", 0), ("hidden", 1), ("layers", 1), ("epochs", 1), ("patience", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} {getattr(self, name)}: expected a whole number >= {least}")
        for name, greatest in (("dropout", 1.0), ("lr", math.inf), ("weight_decay", math.inf)):
            for key, value in getattr(self, name).items():
                if not 0 <= value <= greatest or math.isinf(value):
                    raise InputError(f"{name}.{key} {value}: expected a number >= 0{' and <= 1' * (greatest == 1)}")

    def updated(self, changes: Mapping[str, Any]) -> "Config":
        """With some fields changed: `{"order": 5}`, one entry of a mapping `{"lr.C": 0.01}`, or an option `{"a": 0.5}`.

        A single number for `dropout`, `lr` or `weight_decay` is for all places and factors.
        """
        fields: dict[str, Any] = {}
        for key, value in changes.items():
            name, _, entry = key.partition(".")
            if name not in _KINDS:
                name, entry = "options", key
            if entry and _KINDS[name] in (Options, Numbers):
                fields[name] = {**fields.get(name, getattr(self, name)), entry: value}
            elif entry:
                raise InputError(f"{key!r}: {name!r} has no entries; expected {name}=VALUE")
            elif _KINDS[name] == Numbers and not isinstance(value, Mapping):
                fields[name] = {"default": value}
            else:
                fields[name] = value
        return dataclasses.replace(self, **fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `prior`, which is younger than many a result file, only where it is not the default."""
        found = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {key: value for key, value in found.items() if (key, value) != ("prior", "training")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Config":
        """The inverse of `to_dict`."""
        for key in data:
            if key not in _KINDS:
                raise unknown("configuration key", key, _KINDS)
        return cls(**data)

    def __repr__(self) -> str:
        default = {
            f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory() for f in _FIELDS
        }
        given = (f"{name}={getattr(self, name)!r}" for name in default if getattr(self, name) != default[name])
        return f"Config({', '.join(given)})"


_FIELDS = dataclasses.fields(Config)
_KINDS: dict[str, Any] = get_type_hints(Config)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value as the field's type, or an error that names it."""
    if kind == Numbers:
        if not isinstance(value, Mapping):
            raise InputError(f"{name} {value!r}: expected a mapping of names to numbers")
        return {key: _checked(f"{name}.{key}", number, float) for key, number in value.items()}
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        return float(value)
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str):
        return value
    if kind == Options and isinstance(value, Mapping):
        return dict(value)
    wanted = {float: "a number", int: "a whole number", bool: "true or false", str: "a name"}.get(kind, "a mapping")
    raise InputError(f"{name} {value!r}: expected {wanted}")
