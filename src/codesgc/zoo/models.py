"""The zoo: each model of the paper is one row of choices (paper, Table 1).

The four CoDeSGC decompositions exist as linear (L-) and hybrid (H-) models. Training numbers here are sensible starting
points; `codesgc.zoo.preset` has the published ones per dataset.
"""

from typing import Any

from codesgc.errors import unknown
from codesgc.zoo.config import Config


def _row(model: str, architecture: str, decomposition: str, basis: str, matrix: str, **rest: Any) -> Config:
    rest.setdefault("weight_decay", {"default": 5e-4})
    return Config(
        model=model, architecture=architecture, decomposition=decomposition, basis=basis, matrix=matrix, **rest
    )


_HALF = {"features": 0.5, "input": 0.5}
_CODESGC = {"cp": ("C", "Z"), "tucker": ("C", "G", "Z"), "tucker2": ("G", "Z"), "tucker1": ("G",)}

_ROWS = [
    _row("ChebNet", "multi-layer", "full", "chebyshev", "scaled_laplacian", order=2, dropout={"input": 0.5}),
    _row("GCN", "multi-layer", "gcn", "monomial", "gcn", order=1, dropout={"input": 0.5}),
    _row("SGC", "linear", "sgc", "monomial", "gcn", order=2, lr={"default": 0.05}),
    _row("S2GC", "linear", "s2gc", "monomial", "gcn", options={"alpha": 0.05}, lr={"default": 0.05}),
    _row("APPNP", "hybrid", "appnp", "monomial", "gcn", options={"alpha": 0.1}, dropout=_HALF),
    _row("GPR-GNN", "hybrid", "gpr", "monomial", "gcn", options={"alpha": 0.1}, dropout={**_HALF, "W": 0.5}),
    _row("BernNet", "hybrid", "nonnegative", "bernstein", "half_laplacian", dropout={**_HALF, "W": 0.5}),
    _row("ChebNetII", "hybrid", "interpolated", "chebyshev", "shifted_laplacian", dropout={**_HALF, "W": 0.5}),
    _row(
        "JacobiConv",
        "linear",
        "per_output_bounded",
        "jacobi",
        "sym",
        options={"a": 1.0, "b": 1.0, "gamma": 1.0},
        dropout={"input": 0.5, "W": 0.5},
    ),
    _row("FavardGNN", "hybrid", "per_input", "favard", "sym", options={"channels": True}, dropout=_HALF),
    _row("OptBasisGNN", "hybrid", "per_input", "optbasis", "sym", dropout=_HALF),
]
_ROWS += [
    _row(
        f"{prefix}-{'CP' if decomposition == 'cp' else decomposition.capitalize()}",
        architecture,
        decomposition,
        "jacobi",
        "sym",
        options={"a": 1.0, "b": 1.0},
        dropout={**({"features": 0.5} if prefix == "H" else {}), "input": 0.5, **dict.fromkeys(places, 0.2)},
        weight_decay={"default": 1e-4},
    )
    for prefix, architecture in (("L", "linear"), ("H", "hybrid"))
    for decomposition, places in _CODESGC.items()
]

MODELS: dict[str, Config] = {row.model: row for row in _ROWS}


def find_model(name: str) -> Config:
    """The row of that name, whatever its capitals."""
    if not isinstance(name, str):
        raise TypeError(f"model is {type(name).__name__}: expected the name of a model of the zoo, as 'L-CP'")
    rows = {key.lower(): row for key, row in MODELS.items()}
    if name.lower() not in rows:
        raise unknown("model", name, MODELS)
    return rows[name.lower()]
