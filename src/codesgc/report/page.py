"""One self-contained HTML file: tables as HTML, figures as data for the inlined plotly.js. It requests nothing."""

import html
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import codesgc
from codesgc.datasets.registry import DATASETS
from codesgc.errors import InputError
from codesgc.report import figures
from codesgc.report.reading import Cell, Material
from codesgc.report.tables import PROTOCOLS, Table, accuracy, count, mark, ordered, signed, tables
from codesgc.zoo import MODELS

CLASSES = {"●": "meet", "▲": "higher", "▼": "lower", "": ""}
WORDS = {"●": "intervals meet", "▲": "ours is higher", "▼": "ours is lower", "": ""}
NAMED = 8  # cells that the summary names


def plotly_js() -> str:
    """The library that draws, as text."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InputError("a report needs plotly, which is not installed: pip install 'codesgc[report]'") from None
    script: str = get_plotlyjs()
    return script.replace("</script", "<\\/script")


def text(value: object) -> str:
    return html.escape(str(value))


def embedded(data: Any) -> str:
    """JSON that no HTML parser takes for anything else."""
    dumped = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return dumped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def page(material: Material, title: str, command: str) -> str:
    """The whole file: a function of the material, the title and the command alone."""
    cells = list(material.cells.values())
    groups = grouped(cells)
    models = [material.recordings[key] for key in sorted(material.recordings, key=by_registry)]
    parts = [*(table_section(table) for table in tables(cells))]
    if parts:
        parts.insert(0, legend(cells))
    if groups:
        parts.append(runs_section([label for label, _ in groups]))
    if models:
        parts.append(model_section(models))
    if material.studies:
        parts.append(study_section(material))
    if not parts:
        parts.append("<p class='note'>There is nothing to show: none of the files that were given holds a result.</p>")
    data = {
        "runs": [figures.runs(group) for _, group in groups],
        "models": [figures.model(each) for each in models],
        "studies": [figures.study(each) for each in material.studies],
    }
    home = files("codesgc.report")
    values = {
        "title": text(title),
        "lead": lead(material),
        "sections": "\n".join(parts),
        "footer": footer(material, command),
        "data": embedded(data),
        "plotly": plotly_js(),
        **{kind: home.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")},
    }
    template = home.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda match: values[match[1]], template)


def by_registry(key: tuple[str, str, str]) -> tuple[Any, ...]:
    """Protocols, graphs and models in the order of their registries, unknown ones after them."""
    registries: tuple[Sequence[str], ...] = (PROTOCOLS, list(DATASETS), list(MODELS))
    return tuple(
        (known.index(name) if name in known else len(known), name) for name, known in zip(key, registries, strict=True)
    )


def grouped(cells: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """The cells of each graph under each protocol, with a label."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: by_registry(cell.key)):
        found.setdefault((cell.protocol, cell.dataset), []).append(cell)
    several = len({protocol for protocol, _ in found}) > 1
    return [(f"{dataset} ({protocol})" if several else dataset, group) for (protocol, dataset), group in found.items()]


# --- what stands above and below


def listed(cells: Sequence[Cell]) -> str:
    """A few cells by name.

    >>> listed([])
    ''
    """
    named = [text(f"{cell.dataset} {cell.model}") for cell in cells[:NAMED]]
    rest = len(cells) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def lead(material: Material) -> str:
    """The page in one paragraph."""
    cells = list(material.cells.values())
    if not cells:
        return "No result files."
    summary = count(cells)
    graphs, models = len({cell.dataset for cell in cells}), len({cell.model for cell in cells})
    lengths = sorted({len(cell.runs) for cell in cells})
    each = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    protocols = " and ".join(ordered((cell.protocol for cell in cells), PROTOCOLS))
    what = (
        f"Test accuracy of {models} model{'s' * (models > 1)} on {graphs} graph{'s' * (graphs > 1)}, {each} "
        f"run{'s' * (lengths != [1])} each, {text(protocols)} protocol."
    )
    if summary.total == 0:
        return f"{what} The paper has no values for these."
    parts = [f"{what} The 95&nbsp;% <strong>{summary}</strong>."]
    if summary.lower:
        parts.append(f"Ours is lower in {len(summary.lower)}: {listed(summary.lower)}.")
    if summary.higher:
        parts.append(f"Ours is higher in {len(summary.higher)}: {listed(summary.higher)}.")
    return " ".join(parts)


def footer(material: Material, command: str) -> str:
    """What made the page, from what, and what was left out."""
    versions = sorted({", ".join(f"{k} {v}" for k, v in cell.versions.items()) for cell in material.cells.values()})
    lines = [f"Made by <code>{text(command)}</code>, codesgc {text(codesgc.__version__)}."]
    lines += [f"Results from {text(version)}." for version in versions[:6] if version]
    stopped = [cell for cell in material.cells.values() if cell.interrupted]
    if stopped:
        lines.append(f"Interrupted before all runs were done: {listed(stopped)}.")
    lines += [f"Left out: <code>{text(source)}</code>: {text(reason)}." for source, reason in material.skipped[:50]]
    if len(material.skipped) > 50:
        lines.append(f"Left out: {len(material.skipped) - 50} more.")
    return "\n".join(f"<p>{line}</p>" for line in lines)


# --- tables


def legend(cells: Iterable[Cell]) -> str:
    used = {mark(cell) for cell in cells} - {""}
    items = "".join(f"<li class='{CLASSES[m]}'><b>{m}</b> {WORDS[m]}</li>" for m in CLASSES if m in used)
    return f"<ul class='legend'>{items}</ul>" if items else ""


def table_section(table: Table) -> str:
    """A sortable table; the best mean of a row is bold."""
    note = "A click on a header sorts."
    summary = count(table.cells.values())
    if summary.total:
        note = f"{str(summary).capitalize()}. Below each accuracy is the difference to the paper's. {note}"
    head = "".join(f"<th scope='col'><button type='button'>{text(model)}</button></th>" for model in table.models)
    rows = "\n".join(table_row(table, dataset) for dataset in table.datasets)
    return (
        f"<section><h2>{text(table.title)}, {text(table.protocol)} protocol</h2><p class='note'>{note}</p>\n"
        "<div class='scroll' tabindex='0'><table class='sortable'>"
        f"<thead><tr><th scope='col'><button type='button'>graph</button></th>{head}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table></div></section>"
    )


def table_row(table: Table, dataset: str) -> str:
    cells = [table.cells.get((dataset, model)) for model in table.models]
    greatest = max(cell.mean for cell in cells if cell is not None)
    best = [cell is not None and cell.mean == greatest and len(cells) > 1 for cell in cells]
    return (
        f"<tr><th scope='row' data-value='{text(dataset)}'>{text(dataset)}</th>"
        + "".join(map(table_cell, cells, best))
        + "</tr>"
    )


def table_cell(cell: Cell | None, best: bool) -> str:
    if cell is None:
        return "<td></td>"
    mean, _, half = accuracy(cell).partition(" ")
    sign = mark(cell)
    kind = f"{CLASSES[sign]} best".strip() if best else CLASSES[sign]
    interval = f" <span class='ci'>{half}</span>" if half else ""
    difference = ""
    if cell.paper is not None and cell.difference is not None:
        difference = (
            f"<span class='d'>{signed(cell.difference)} <span aria-hidden='true'>{sign}</span>"
            f"<span class='sr'>{WORDS[sign]}</span></span>"
        )
    return (
        f"<td class='{kind}' data-value='{cell.mean!r}' title='{text(figures.spoken(cell))}'>"
        f"<span class='m'>{mean}</span>{interval}{difference}</td>"
    )


# --- sections with figures


def choice(name: str, label: str, options: Iterable[str]) -> str:
    items = "".join(f"<option value='{i}'>{text(option)}</option>" for i, option in enumerate(options))
    return f"<label>{label} <select id='{name}-choice'>{items}</select></label>"


def runs_section(labels: Sequence[str]) -> str:
    return (
        "<section><h2>Every run</h2><p class='note'>Each point is one run, with a split and a start of its own. The "
        "diamond is our mean with its 95&nbsp;% bootstrap interval, the band is the paper's interval.</p>"
        f"<div class='choices'>{choice('runs', 'Graph', labels)}</div><div class='figure' id='runs'></div></section>"
    )


def model_section(models: Sequence[dict[str, Any]]) -> str:
    several = len({each["protocol"] for each in models}) > 1
    labels = [
        f"{each['dataset']}: {each['model']}{', ' + each['protocol'] if several else ''}, seed {each['seed']}"
        for each in models
    ]
    kinds = (
        "<label>Response <select id='response-choice'><option value='size'>size: norm over input channels</option>"
        "<option value='main'>signed: main direction of the input channels</option></select></label>"
    )
    return (
        "<section><h2>Inside a model</h2><p class='note'>What one run has learned. Its coefficients are the tensor W "
        "(inputs × outputs × orders); with the polynomials P<sub>k</sub> they make, for each input i and output j, the "
        "frequency response Σ<sub>k</sub> W<sub>ijk</sub> P<sub>k</sub>(λ).</p>"
        f"<div class='choices'>{choice('model', 'Model', labels)}{choice('layer', 'Layer', [])}</div>"
        "<h3>Frequency responses</h3><p class='note'>One curve for each output channel; behind them, the share of "
        "the eigenvalues of the graph matrix <code id='matrix'></code> in each interval. A curve matters where there "
        "are eigenvalues; a tall bar at a single value may be cut off. "
        f"<span id='layer-note'></span></p><div class='choices'>{kinds}</div><div class='figure' id='response'></div>"
        "<h3>Training</h3><div class='figure' id='training'></div>"
        "<h3>Coefficient tensor W</h3><p class='note'>The norm over all input channels, then the slices of the "
        "strongest input channels.</p><div class='grid' id='coefficients'></div>"
        "<h3>Factors</h3><div class='grid' id='factors'></div></section>"
    )


def study_section(material: Material) -> str:
    labels = [
        f"{study.dataset}: {study.model}, {len(study.trials)} trials"
        + ("" if study.best is None else f", best {study.best:.2f}")
        for study in material.studies
    ]
    return (
        "<section><h2>Searches</h2><p class='note'>How the settings were found: the value of every trial and the best "
        "so far, and how much each setting mattered.</p>"
        f"<div class='choices'>{choice('study', 'Study', labels)}</div><p class='note' id='study-note'></p>"
        "<div class='grid' id='study'></div></section>"
    )
