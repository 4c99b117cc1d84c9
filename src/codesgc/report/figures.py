"""Figures as plotly.js takes them: plain data, in which a colour "@name" is one of the page's, light or dark."""

import json
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from codesgc.report.reading import Cell, Study
from codesgc.report.tables import accuracy, mark, signed

Figure = dict[str, Any]
COLOURS = 8  # "@c0" to "@c7" in page.css; beyond them the dashes change
DASHES = ("solid", "dash", "dot")


def plain(text: str) -> str:
    """Text that plotly.js does not read as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def axis(title: str = "", **rest: Any) -> dict[str, Any]:
    return {"title": {"text": title, "standoff": 8}, "zeroline": False, **rest}


# --- the runs of a graph


def runs(cells: Sequence[Cell]) -> Figure:
    """Each model a row: its runs as points, our mean with its interval, and the paper's interval as a band."""
    names = [plain(cell.model) for cell in cells]
    rows = list(range(len(cells)))
    compared = [(y, cell.paper) for y, cell in zip(rows, cells, strict=True) if cell.paper is not None]
    points = [
        # five heights, so that equal accuracies do not hide one another
        (value, y + 0.07 * (i % 5 - 2), seed)
        for y, cell in zip(rows, cells, strict=True)
        for i, (seed, value) in enumerate(cell.runs)
    ]
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": "the paper's 95 % interval",
            "y": [y for y, _ in compared],
            "base": [mean - half for _, (mean, half) in compared],
            "x": [2 * half for _, (_, half) in compared],
            "width": 0.62,
            "marker": {"color": "@band", "line": {"width": 0}},
            "customdata": [f"{mean:.2f} ± {half:.2f}" for _, (mean, half) in compared],
            "hovertemplate": "paper: %{customdata}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "the paper's mean",
            "y": [y for y, _ in compared],
            "x": [mean for _, (mean, _) in compared],
            "marker": {"symbol": "line-ns", "size": 18, "line": {"width": 2, "color": "@muted"}},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "our runs",
            "x": [x for x, _, _ in points],
            "y": [y for _, y, _ in points],
            "customdata": [seed for _, _, seed in points],
            "marker": {"color": "@c0", "size": 7, "opacity": 0.6},
            "hovertemplate": "seed %{customdata}: %{x:.2f} %<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "our mean and 95 % interval",
            "x": [cell.mean for cell in cells],
            "y": rows,
            "error_x": {"type": "data", "array": [cell.half for cell in cells], "thickness": 2, "width": 5},
            "marker": {"symbol": "diamond", "size": 10, "color": "@ink"},
            "customdata": [spoken(cell) for cell in cells],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
    ]
    layout = {
        "height": 150 + 44 * len(cells),
        "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
        "xaxis": axis("test accuracy, per cent", automargin=True),
        "yaxis": {
            "tickvals": rows,
            "ticktext": names,
            "range": [len(cells) - 0.5, -0.5],
            "automargin": True,
            "zeroline": False,
            "showgrid": False,
        },
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
    }
    return {"data": data, "layout": layout}


def spoken(cell: Cell) -> str:
    """A cell in words, for hovering."""
    words = {"●": "intervals meet", "▲": "ours is higher", "▼": "ours is lower", "": ""}[mark(cell)]
    text = f"ours: {accuracy(cell)}"
    if cell.paper is None or cell.difference is None:
        return text
    return f"{text}, paper: {cell.paper[0]:.2f} ± {cell.paper[1]:.2f}, {signed(cell.difference)}: {words}"


# --- inside a model


def response(layer: dict[str, Any], spectrum: dict[str, Any], which: str, labels: Sequence[str]) -> Figure:
    """The frequency responses "size" or "main" of the output channels, with the graph's eigenvalues behind them."""
    edges, share = spectrum["edges"], spectrum["share"]
    top = 1.15 * cut(share)
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": "eigenvalues",
            "x": [(a + b) / 2 for a, b in pairwise(edges)],
            "width": [abs(b - a) for a, b in pairwise(edges)],
            "y": share,
            "yaxis": "y2",
            "customdata": [100 * s for s in share],
            "marker": {"color": "@band", "line": {"width": 0}},
            "hovertemplate": "%{customdata:.2f} %",
        }
    ]
    for i, (label, values) in enumerate(zip(labels, layer[which], strict=True)):
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label,
                "x": layer["grid"],
                "y": values,
                "line": {"color": f"@c{i % COLOURS}", "width": 2, "dash": DASHES[i // COLOURS % len(DASHES)]},
                "hovertemplate": "%{y:.4g}",
            }
        )
    low, high = min(layer["grid"]), max(layer["grid"])
    layout = {
        "height": 440,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "bargap": 0,
        "hovermode": "x unified",
        "xaxis": axis("eigenvalue λ of the graph matrix S", range=[low, high], automargin=True, hoverformat=".3f"),
        "yaxis": axis(
            "response",
            automargin=True,
            overlaying="y2",
            side="left",
            tickmode="auto",
            rangemode="tozero" if which == "size" else "normal",
            zeroline=which == "main",
        ),
        "yaxis2": {"range": [0, top], "side": "right", "visible": False, "fixedrange": True},
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0, "xanchor": "left"},
    }
    return {"data": data, "layout": layout}


def cut(share: Sequence[float]) -> float:
    """Height of the tallest bar, unless it stands out: a peak at one eigenvalue would hide the rest."""
    tall = sorted(share)
    usual = tall[int(0.97 * (len(tall) - 1))]
    return max(min(tall[-1], 2.5 * usual), 1e-12)


def heat(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], names: tuple[str, str]
) -> Figure:
    """A matrix as colours: around zero in two hues where it has both signs, in one hue where it has not."""
    flat = [value for row in values for value in row]
    both = min(flat) < 0 < max(flat)
    reach = max((abs(value) for value in flat), default=0.0) or 1.0
    trace = {
        "type": "heatmap",
        "z": values,
        "x": list(range(len(columns))),
        "y": list(range(len(rows))),
        "customdata": [[f"{names[0]} {r}, {names[1]} {c}" for c in columns] for r in rows],
        "hovertemplate": "%{customdata}: %{z:.4g}<extra></extra>",
        "colorscale": "@both" if both else "@one",
        "zmin": -reach if both else min(0.0, min(flat)),
        "zmax": reach if both or max(flat) > 0 else 0.0,
        "colorbar": {
            "thickness": 8,
            "outlinewidth": 0,
            "len": 1.0,
            "tickfont": {"size": 10},
            "nticks": min(len(rows) + 1, 5),
            "xpad": 4,
        },
    }
    layout = {
        "height": 74 + min(340, max(30, 18 * len(rows))),
        "margin": {"l": 8, "r": 8, "t": 6, "b": 8},
        "xaxis": {**axis(names[1]), **ticks(columns), "automargin": True, "showgrid": False},
        "yaxis": {
            **axis(names[0] if len(rows) > 1 else ""),
            **ticks(rows),
            "automargin": True,
            "showgrid": False,
            "autorange": "reversed",
            "showticklabels": len(rows) > 1,
        },
        "hovermode": "closest",
    }
    return {"data": [trace], "layout": layout}


def ticks(labels: Sequence[str]) -> dict[str, Any]:
    """At most a dozen labels on an axis."""
    step = max(1, math.ceil(len(labels) / 12))
    kept = list(range(0, len(labels), step))
    return {"tickvals": kept, "ticktext": [labels[i] for i in kept], "ticks": ""}


def training(recording: dict[str, Any]) -> Figure:
    """Accuracies above, loss below, and the epoch that was kept."""
    curve, best = recording["curve"], recording["best_epoch"]

    def line(name: str, key: str, colour: str, y: str, form: str) -> dict[str, Any]:
        return {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": curve["epoch"],
            "y": curve[key],
            "yaxis": y,
            "line": {"color": colour, "width": 1.6},
            "hovertemplate": f"%{{y:{form}}}",
        }

    layout = {
        "height": 420,
        "margin": {"l": 8, "r": 8, "t": 22, "b": 8},
        "hovermode": "x unified",
        "xaxis": axis("epoch", automargin=True, anchor="y2"),
        "yaxis": axis("accuracy, %", domain=[0.42, 1.0], automargin=True),
        "yaxis2": axis("training loss", domain=[0.0, 0.34], automargin=True, rangemode="tozero"),
        "shapes": [
            {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "x0": best,
                "x1": best,
                "y0": 0,
                "y1": 1,
                "line": {"color": "@muted", "width": 1, "dash": "dot"},
            }
        ],
        "annotations": [
            {
                "text": f"epoch {best} is kept",
                "x": best,
                "xref": "x",
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 11, "color": "@muted"},
            }
        ],
        "legend": {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0, "xanchor": "left"},
    }
    data = [
        line("validation", "val", "@c0", "y", ".2f"),
        line("test", "test", "@c1", "y", ".2f"),
        line("training loss", "loss", "@c2", "y2", ".4f"),
    ]
    return {"data": data, "layout": layout}


def model(recording: dict[str, Any]) -> dict[str, Any]:
    """Every figure of one recorded model: of each layer the responses, W and the factors; and the training curves."""
    found = []
    for layer in recording["layers"]:
        outputs = [str(j) for j in layer["outputs"]]
        labels = [f"output {j}" for j in outputs]
        orders = [str(k) for k in range(len(layer["W"]["norm"][0]))]
        parts = [("norm over all input channels", heat(layer["W"]["norm"], outputs, orders, ("output", "order k")))]
        for i, values in zip(layer["W"]["inputs"], layer["W"]["slices"], strict=True):
            parts.append((f"input channel {i}", heat(values, outputs, orders, ("output", "order k"))))
        found.append(
            {
                "title": f"{layer['in']} → {layer['out']} channels",
                "shown": f"the {len(outputs)} strongest of {layer['out']}" if len(outputs) < layer["out"] else "",
                "size": response(layer, recording["spectrum"], "size", labels),
                "main": response(layer, recording["spectrum"], "main", labels),
                "W": [{"title": title, "figure": figure} for title, figure in parts],
                "factors": [each for factor in layer["factors"] for each in factor_figures(factor)],
            }
        )
    return {"layers": found, "training": training(recording), "matrix": plain(recording["spectrum"]["matrix"])}


def factor_figures(factor: dict[str, Any]) -> list[dict[str, Any]]:
    """A factor's heat maps with their titles."""
    name, shape = factor["name"], " × ".join(map(str, factor["shape"]))

    def numbered(values: Sequence[Sequence[float]]) -> Figure:
        return heat(
            values, [str(i) for i in range(len(values))], [str(i) for i in range(len(values[0]))], ("row", "column")
        )

    if "values" in factor:
        few = len(factor["rows"]) < factor["shape"][0] and len(factor["shape"]) > 1
        title = f"{name} ({shape}" + (f"; the {len(factor['rows'])} strongest rows)" if few else ")")
        rows, columns = [str(i) for i in factor["rows"]], [str(i) for i in range(len(factor["values"][0]))]
        return [{"title": title, "figure": heat(factor["values"], rows, columns, ("row", "column"))}]
    axis_name = f"axis {factor['axis'] + 1}"
    figures = [{"title": f"{name} ({shape}): norm over {axis_name}", "figure": numbered(factor["norm"])}]
    for index, values in zip(factor["index"], factor["slices"], strict=True):
        figures.append({"title": f"{name}, slice {index} of {axis_name}", "figure": numbered(values)})
    return figures


# --- studies


def study(study: Study) -> list[dict[str, Any]]:
    """Optuna's own history and parameter importances of a search, or a note why they are not there."""
    try:
        import optuna
    except ImportError:
        return [{"note": "Figures of searches are Optuna's, which is not installed: pip install 'codesgc[tune]'"}]
    draw = optuna.visualization
    plots: dict[str, Callable[[Any], Any]] = {
        "History": draw.plot_optimization_history,
        "Importance of the settings": partial(
            draw.plot_param_importances, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        ),
    }
    verbosity, parts = optuna.logging.get_verbosity(), []
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            trials = rebuilt(study)
            for title, plot in plots.items():
                try:
                    parts.append({"title": title, "figure": tidied(json.loads(plot(trials).to_json()))})
                except (ValueError, RuntimeError, ImportError) as error:
                    parts.append({"note": f"{title}: Optuna cannot draw it ({brief(error)})."})
        parts += [{"note": note} for note in dict.fromkeys(f"Optuna says: {brief(w.message)}" for w in said)]
    finally:
        optuna.logging.set_verbosity(verbosity)
    return parts


def brief(message: object) -> str:
    """A message in one line."""
    return " ".join(str(message).split())[:200]


def rebuilt(study: Study) -> Any:
    """The trials as a study of Optuna's, in memory."""
    import optuna

    spaces, trials = distributions(study), optuna.create_study(direction="maximize")
    for _, state, value, params in study.trials:
        complete = state == "COMPLETE" and value is not None
        trials.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.COMPLETE if complete else optuna.trial.TrialState.FAIL,
                value=value if complete else None,
                params=dict(params),
                distributions={key: spaces[key] for key in params},
            )
        )
    return trials


def distributions(study: Study) -> dict[str, Any]:
    """For each parameter the range that its values span: numbers as an interval, anything else as choices."""
    import optuna

    values: dict[str, list[Any]] = {}
    for _, _, _, params in study.trials:
        for key, value in params.items():
            values.setdefault(key, []).append(value)
    spaces: dict[str, Any] = {}
    for key, found in values.items():
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in found):
            spaces[key] = optuna.distributions.FloatDistribution(min(found), max(found))
        else:
            spaces[key] = optuna.distributions.CategoricalDistribution(list(dict.fromkeys(found)))
    return spaces


def tidied(figure: Figure) -> Figure:
    """Without the title and the colours of a template of its own, which know one theme only."""
    layout = {key: value for key, value in figure["layout"].items() if key not in ("template", "title")}
    layout |= {"height": 400, "margin": {"l": 8, "r": 40, "t": 8, "b": 8}}
    layout["legend"] = {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0, "xanchor": "left"}
    for name in [name for name in layout if name.startswith(("xaxis", "yaxis"))]:
        layout[name] = {**layout[name], "automargin": True}
    traces = [{**trace, "cliponaxis": False} if trace.get("type") == "bar" else trace for trace in figure["data"]]
    return {"data": traces, "layout": layout}
