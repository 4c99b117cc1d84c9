"""What the entries of a configuration may be called: a function of its architecture, basis and decomposition."""

import dataclasses
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from codesgc.bases import BASES, make_basis
from codesgc.decompositions import DECOMPOSITIONS, make_decomposition
from codesgc.errors import InputError, unknown
from codesgc.zoo import Config

MAPPINGS = ("options", "dropout", "lr", "weight_decay")
PARTS = ("architecture", "basis", "decomposition")  # the choices that decide which names there are


@dataclass(frozen=True)
class Names:
    """Options of the basis and of the decomposition, places of dropout, and groups of parameters."""

    basis: Mapping[str, inspect.Parameter]
    decomposition: Mapping[str, inspect.Parameter]
    dropout: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        return {**self.basis, **self.decomposition}


def _options(part: type) -> dict[str, inspect.Parameter]:
    """Keyword arguments of a constructor, its parents' included, that have a default and are no fields of `Config`."""
    ours = {field.name for field in dataclasses.fields(Config)} | {"replicates", *getattr(part, "reserved", ())}
    found: dict[str, inspect.Parameter] = {}
    for cls in reversed(part.__mro__):
        if "__init__" in vars(cls) and cls.__module__.startswith("codesgc"):
            found |= inspect.signature(vars(cls)["__init__"]).parameters
    return {name: p for name, p in found.items() if p.default is not p.empty and name not in ours}


def names(config: Config) -> Names:
    """The names that such a model knows, or an error for a part that does not exist."""
    if config.basis not in BASES:
        raise unknown("basis", config.basis, BASES)
    if config.decomposition not in DECOMPOSITIONS:
        raise unknown("decomposition", config.decomposition, DECOMPOSITIONS)
    basis, decomposition = BASES[config.basis], DECOMPOSITIONS[config.decomposition]
    groups = [*make_decomposition(config.decomposition, 1, 1, 1).groups]
    groups += ["basis"] if [*make_basis(config.basis, 1, 1, None).parameters()] else []
    hybrid = config.architecture == "hybrid"
    return Names(
        _options(basis),
        _options(decomposition),
        ("features", *decomposition.dropouts) if hybrid else decomposition.dropouts,
        (*groups, "encoder") if hybrid else tuple(groups),
    )


def check_names(config: Config) -> Names:
    """The names, or an error for an entry that has none of them or an option of the wrong kind."""
    known = names(config)
    for name, value in config.options.items():
        if name not in known.options:
            others = {field.name for field in dataclasses.fields(config)} - {"model", "options"}
            raise unknown(f"option of {config.model}:", name, known.options.keys() | others)
        if not _fits(value, known.options[name].annotation):
            raise InputError(f"{name} {value!r}: expected a number")
    for label, entries, accepted in (
        ("dropout", config.dropout, known.dropout),
        ("lr", config.lr, known.groups),
        ("weight_decay", config.weight_decay, known.groups),
    ):
        for name in entries:
            if name not in accepted and name != "default":
                raise unknown(f"{label} of {config.model}:", name, accepted)
    return known


def takes_number(annotation: Any) -> bool:
    """Whether an option is a number, and not a size or a switch."""
    return float in (get_args(annotation) or (annotation,))


def _fits(value: Any, annotation: Any) -> bool:
    if takes_number(annotation):
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return not isinstance(value, str)  # whole numbers: the part checks those itself


def fitted(config: Config, changes: Mapping[str, Any]) -> Config:
    """Without entries for parts that the changes put others in place of; what the changes name stays.

    L-CP has Jacobi's a and b: with `basis="chebyshev"` they have no meaning any more.
    """
    if not any(part in changes for part in PARTS):
        return config
    known = names(config)
    accepted = {
        "options": {*known.options},
        "dropout": {*known.dropout, "default"},
        "lr": {*known.groups, "default"},
        "weight_decay": {*known.groups, "default"},
    }
    given = {key if "." in key else f"options.{key}" for key in changes}
    given |= {f"{key}.{name}" for key, value in changes.items() if isinstance(value, Mapping) for name in value}
    kept: dict[str, Any] = {
        mapping: {
            name: value
            for name, value in getattr(config, mapping).items()
            if name in accepted[mapping] or f"{mapping}.{name}" in given
        }
        for mapping in MAPPINGS
    }
    return dataclasses.replace(config, **kept)
