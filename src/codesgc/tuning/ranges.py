"""What a setting may be while it is searched: one of some values, or a number of a range."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from codesgc.errors import InputError
from codesgc.settings import scalar

Value = str | int | float | bool | None


class Suggester(Protocol):
    """What is needed of an `optuna.Trial`."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None, log: bool) -> float: ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int: ...


@dataclass(frozen=True)
class Choices:
    """One of these values; a single one is fixed, and no dimension of the search."""

    values: tuple[Value, ...]

    def suggest(self, trial: Suggester, name: str) -> Value:
        return self.values[0] if len(self.values) == 1 else trial.suggest_categorical(name, self.values)

    def corners(self) -> tuple[Value, ...]:
        """Values that stand for all of them where a setting is checked."""
        return self.values

    def to_json(self) -> Any:
        return list(self.values)


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`, on a grid from `low` on where there is a step; whole if all of them are."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    @property
    def whole(self) -> bool:
        return all(isinstance(n, int) for n in (self.low, self.high, 1 if self.step is None else self.step))

    def suggest(self, trial: Suggester, name: str) -> float:
        if self.whole:
            step = 1 if self.step is None else int(self.step)
            return trial.suggest_int(name, int(self.low), int(self.high), step=step, log=self.log)
        # a grid point such as 3 * 0.1 as the number that a user would write
        return round(trial.suggest_float(name, self.low, self._last(), step=self.step, log=self.log), 10)

    def _last(self) -> float:
        """The last point of the grid."""
        if self.step is None:
            return self.high
        return round(self.low + math.floor((self.high - self.low) / self.step + 1e-9) * self.step, 10)

    def corners(self) -> tuple[Value, ...]:
        return self.low, self._last()

    def to_json(self) -> Any:
        extra = {"log": True} if self.log else {} if self.step is None else {"step": self.step}
        return {"low": self.low, "high": self.high, **extra}


Dimension = Choices | Range


def make_range(key: str, low: Any, high: Any, step: Any = None, log: Any = False) -> Range:
    """A range, or an error that names its key."""
    numbers = [n for n in (low, high, step) if n is not None]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers):
        raise InputError(f"space {key}: a range has {low!r}, {high!r}, {step!r}: expected numbers, LOW:HIGH[:STEP]")
    if low > high:
        raise InputError(f"space {key}={low}:{high} is empty: expected LOW <= HIGH; exchange them")
    if step is not None and step <= 0:
        raise InputError(f"space {key}: step {step}: expected a number > 0")
    if not isinstance(log, bool) or (log and (low <= 0 or step is not None)):
        raise InputError(f"space {key}: a logarithmic range takes no step and begins above 0; give LOW:HIGH:log")
    return Range(low, high, step, log)


def parse_dimension(key: str, text: str) -> Dimension:
    """`V1,V2` chooses, `LOW:HIGH`, `LOW:HIGH:STEP` or `LOW:HIGH:log` is a range, `VALUE` fixes.

    >>> parse_dimension("order", "5,10"), parse_dimension("lr.C", "0.001:0.1:log"), parse_dimension("rank", "8")
    (Choices(values=(5, 10)), Range(low=0.001, high=0.1, step=None, log=True), Choices(values=(8,)))
    """
    parts = text.split(":")
    if len(parts) in (2, 3):
        low, high, *rest = (part if part == "log" else scalar(key, part) for part in parts)
        return make_range(key, low, high, None if rest in ([], ["log"]) else rest[0], rest == ["log"])
    words = text.split(",")
    if len(parts) > 3 or not all(words):
        raise InputError(f"space {key}={text}: expected V1,V2,... or LOW:HIGH[:STEP] or one VALUE")
    return Choices(tuple(dict.fromkeys(scalar(key, word) for word in words)))


def read_dimension(key: str, data: Any) -> Dimension:
    """From JSON: a list of values, `{"low": L, "high": H, "step": S}`, the same with `"log": true`, or one value."""
    if isinstance(data, dict):
        if not {"low", "high"} <= data.keys() <= {"low", "high", "step", "log"}:
            raise InputError(f"space {key} {data!r}: expected the keys low and high, and step or log")
        return make_range(key, **data)
    values = data if isinstance(data, list) else [data]
    if not values:
        raise InputError(f"space {key} is empty: expected at least one value")
    if any(isinstance(value, list | dict) for value in values):
        raise InputError(f"space {key} {data!r}: expected numbers and words")
    return Choices(tuple(values))
