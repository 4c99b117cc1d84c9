"""What the command line shows: tables, a progress bar, and text that any terminal can print."""

import codecs
import os
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self, TextIO

from codesgc.zoo import Config


class RunLike(Protocol):
    """What is read of a `codesgc.training.Run`, which cannot be imported here without torch."""

    val_accuracy: float
    best_epoch: int
    epochs: int


def show(text: str, stream: TextIO | None = None) -> None:
    """Print a line; what the stream's encoding lacks is escaped."""
    stream = sys.stdout if stream is None else stream
    if stream is not None:  # it is None where the process was started with it closed
        encoding = getattr(stream, "encoding", None) or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def on_terminal(stream: TextIO | None) -> bool:
    """Whether somebody is watching."""
    return stream is not None and stream.isatty()


def width(stream: TextIO) -> int:
    """Columns of the terminal, less the last one, where a character would begin a new line on some."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return (columns or 80) - 1


def plus_minus(stream: TextIO | None) -> str:
    """The sign ± where the stream is UTF-8, +- elsewhere."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return "±" if codecs.lookup(encoding).name == "utf-8" else "+-"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns: those that hold numbers to the right, others to the left.

    >>> print(table(["name", "nodes"], [["cora", 2708], ["texas", 183]]))
    name    nodes
    cora     2708
    texas     183
    """
    numeric = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(header))]
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "   ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def intervals(values: Sequence[tuple[float, float | None] | None], sign: str) -> list[str]:
    """A column of mean and half-width, aligned at the sign; a half-width of None is left out, a missing value a dash.

    >>> intervals([(90.5, 2.25), None, (100.0, None)], "+-")
    [' 90.50 +- 2.25', '     -', '100.00']
    """
    means = ["-" if value is None else f"{value[0]:.2f}" for value in values]
    halves = ["" if value is None or value[1] is None else f"{value[1]:.2f}" for value in values]
    left, right = max(map(len, means)), max(map(len, halves))
    return [f"{m:>{left}}" + (f" {sign} {h:>{right}}" if h else "") for m, h in zip(means, halves, strict=True)]


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Roughly how long.

    >>> duration(0.3), duration(75), duration(600), duration(4000)
    ('1 s', '75 s', '10 min', '1 h 7 min')
    """
    if seconds < 120:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def remaining(config: Config, runs: int, done: Sequence[RunLike], active: Sequence[RunLike]) -> tuple[int, float]:
    """(epochs done, epochs left), if runs take as long as the finished ones did, and at least until they may stop.

    A run stops when more than `patience` epochs in a row were worse than its best; before any run is finished, the
    waiting ones are taken to be as long as the active ones.
    """
    least = [min(config.epochs, run.best_epoch + config.patience + 1) for run in active]
    past = [run.epochs for run in done]
    usual = sum(past or least) / max(len(past or least), 1)
    waiting = max(runs - len(done) - len(active), 0)
    left = sum(max(usual, float(n)) - run.epochs for n, run in zip(least, active, strict=True)) + waiting * usual
    return sum(past) + sum(run.epochs for run in active), max(left, 0.0)


class Bar:
    """A line on a terminal that is drawn over, and gone at the end."""

    def __init__(self, text: str, stream: TextIO) -> None:
        from tqdm import tqdm

        class Line(tqdm):  # type: ignore[misc]  # tqdm has no types
            monitor_interval = 0  # no thread that redraws on its own

        self.stream = stream
        self.began = self.drawn = time.monotonic()
        self.bar = Line(
            total=1.0,
            file=stream,
            leave=False,
            ncols=width(stream),
            nrows=20,  # tqdm draws nothing where a terminal says that it has no rows
            bar_format="{bar:10} {desc}",
            desc=text,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.close()

    def draw(self, share: float, text: str) -> None:
        """So much of it is done."""
        self.bar.n, self.bar.ncols = share, width(self.stream)
        self.bar.set_description_str(text)


class ProgressBar(Bar):
    """The `progress` of `codesgc.training.train` on a terminal, redrawn a few times a second.

    `after` is work that follows in multiples of this one's: the time left is until its end.
    """

    def __init__(self, label: str, runs: int, config: Config, stream: TextIO, after: float = 0.0) -> None:
        super().__init__(f"{label}: starting", stream)
        self.label, self.runs, self.config, self.after = label, runs, config, after

    def __call__(self, done: Sequence[RunLike], active: Sequence[RunLike]) -> None:
        now = time.monotonic()
        if active and (now - self.drawn >= 0.1 or self.bar.n == 0):
            self.drawn = now
            past, left = remaining(self.config, self.runs, done, active)
            seconds = (now - self.began) / max(past, 1) * (left + self.after * (past + left))
            self.draw(
                past / (past + left) if past else 0.0,
                f"{self.label}: {len(done)}/{self.runs} runs, epoch {max(run.epochs for run in active)}, "
                f"best validation {max(run.val_accuracy for run in active):.1f} %, {duration(seconds)} left",
            )
