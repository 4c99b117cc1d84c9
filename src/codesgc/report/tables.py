"""Results in the layout of the paper's tables: graphs as rows, models as columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from codesgc.datasets.registry import DATASETS
from codesgc.report.reading import Cell
from codesgc.zoo import MODELS
from codesgc.zoo.published import TABLES

PROTOCOLS = ("paper", "strict")  # in this order, others after them
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


@dataclass(frozen=True)
class Table:
    """Some cells of one protocol; `cells` has one for each (dataset, model) that was run."""

    title: str
    protocol: str
    datasets: Sequence[str]
    models: Sequence[str]
    cells: dict[tuple[str, str], Cell]


def ordered(names: Iterable[str], first: Iterable[str]) -> list[str]:
    """The names without repetition: those of `first` in its order, then the others by the alphabet."""
    given = set(names)
    known = [name for name in dict.fromkeys(first) if name in given]
    return known + sorted(given - set(known))


def tables(cells: Iterable[Cell]) -> list[Table]:
    """For each protocol the paper's Tables 2 and 3, as far as they were run, and one with every other model.

    A table without a cell that another one does not have is left out: L-Tucker and L-CP stand in both.
    """
    cells = list(cells)
    found: list[Table] = []
    published = {model for models in TABLES.values() for model in models}
    every = [name for model in MODELS for name in (model, f"{model}, searched", f"{model}, changed")]
    for protocol in ordered((cell.protocol for cell in cells), PROTOCOLS):
        own = [cell for cell in cells if cell.protocol == protocol]
        layouts = [(f"Table {n}", list(models)) for n, models in TABLES.items()]
        layouts.append(("Other models", ordered({cell.model for cell in own} - published, every)))
        for title, models in layouts:
            there = {(cell.dataset, cell.model): cell for cell in own if cell.model in models}
            if there:
                columns = ordered((model for _, model in there), models)
                rows = ordered((dataset for dataset, _ in there), DATASETS)
                found.append(Table(title, protocol, rows, columns, there))
    return [table for i, table in enumerate(found) if not any(repeats(table, t, i < j) for j, t in enumerate(found))]


def repeats(table: Table, other: Table, before: bool) -> bool:
    """Whether the other table has these cells and more, or just these and comes first."""
    if table is other or table.protocol != other.protocol:
        return False
    same, there = len(table.cells) == len(other.cells), table.cells.keys() <= other.cells.keys()
    return there and not (same and before)


@dataclass(frozen=True)
class Count:
    """Of the cells that the paper has, too: in how many the intervals meet, and which are higher or lower."""

    total: int
    meet: int
    higher: tuple[Cell, ...]
    lower: tuple[Cell, ...]

    def __str__(self) -> str:
        return f"intervals meet the paper's in {self.meet} of {self.total} cell{'' if self.total == 1 else 's'}"


def count(cells: Iterable[Cell]) -> Count:
    """Each cell once, whatever the tables it stands in."""
    compared = [cell for cell in {cell.key: cell for cell in cells}.values() if cell.meets is not None]
    apart = [cell for cell in compared if not cell.meets]
    higher = tuple(cell for cell in apart if (cell.difference or 0.0) > 0)
    lower = tuple(cell for cell in apart if (cell.difference or 0.0) <= 0)
    return Count(len(compared), len(compared) - len(apart), higher, lower)


def signed(number: float) -> str:
    """A difference with its sign, the minus sign as long as the plus.

    >>> signed(0.25), signed(-0.25), signed(-0.001)
    ('+0.25', '−0.25', '±0.00')
    """
    text = f"{abs(number):.2f}"
    return f"±{text}" if text == "0.00" else f"{'+' if number > 0 else '−'}{text}"


def mark(cell: Cell) -> str:
    """How a cell compares: ● where the intervals meet, ▲ or ▼ where ours is higher or lower; "" without a paper."""
    if cell.meets is None:
        return ""
    return "●" if cell.meets else "▲" if (cell.difference or 0.0) > 0 else "▼"


def accuracy(cell: Cell) -> str:
    """Mean and half-width; one run has no interval."""
    return f"{cell.mean:.2f}" + (f" ± {cell.half:.2f}" if len(cell.runs) > 1 else "")


# --- Markdown


def escaped(text: str) -> str:
    """Text that Markdown shows as it is.

    >>> escaped("a|b<c>")
    'a\\\\|b&lt;c&gt;'
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\|`*_[]" else c for c in text)


def markdown(cells: Iterable[Cell]) -> str:
    """Every table, and the count, as Markdown; the same text for the same results."""
    cells = list(cells)
    if not cells:
        return "No results yet.\n"
    parts = []
    for table in tables(cells):
        summary = count(table.cells.values())
        lines = [f"**{table.title}**, {escaped(table.protocol)} protocol" + (f": {summary}." if summary.total else ".")]
        lines += ["", "| | " + " | ".join(map(escaped, table.models)) + " |", "|---" * (len(table.models) + 1) + "|"]
        for dataset in table.datasets:
            row = [table.cells.get((dataset, model)) for model in table.models]
            lines.append(f"| {escaped(dataset)} | " + " | ".join(map(markdown_cell, row)) + " |")
        parts.append("\n".join(lines))
    note = "In brackets the difference to the paper; ▲ and ▼ where the 95 % intervals do not meet."
    return "\n\n".join([note, *parts]) + "\n"


def markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.difference is None:
        return accuracy(cell)
    text = f"{accuracy(cell)} ({signed(cell.difference)})"
    return text if cell.meets else f"**{text} {mark(cell)}**"


def updated(document: str, text: str) -> str | None:
    """The document with this text between its two markers, or None if it does not have them in that order."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n{text.rstrip()}\n{end}{after}" if begin and end else None
