"""What one run of a model has learned, as plain data for a report: see `record`."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from codesgc.bases.optbasis import OptBasis
from codesgc.conv import SpectralConv
from codesgc.engine import CSR, Operator
from codesgc.graph import Graph
from codesgc.models import SpectralModel
from codesgc.spectrum import spectral_density
from codesgc.training.population import Job, Scores, Slot, train_jobs
from codesgc.training.protocol import PROTOCOLS, check_trainable
from codesgc.training.signals import held_signals
from codesgc.training.splits import random_split
from codesgc.zoo import Config

FORMAT = "codesgc model 1"
OUTPUTS, INPUTS, ROWS, SLICES = 12, 6, 40, 4  # the strongest so many are written
POINTS, BINS, EPOCHS = 161, 81, 500  # an odd number of intervals: eigenvalues at the middle are not split


def rounded(values: Tensor) -> Any:
    """Nested lists with four digits that count, which is more than a picture shows."""

    def one(value: Any) -> Any:
        return [one(v) for v in value] if isinstance(value, list) else float(f"{value:.4g}")

    return one(values.detach().double().cpu().tolist())


def strongest(weights: Tensor, most: int) -> list[int]:
    """Indices of the `most` greatest, the greatest first; of equal ones, that with the lower index."""
    return torch.sort(weights, descending=True, stable=True).indices[:most].tolist()


def responses(W: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    """Frequency responses of each output channel j over the input channels i, h_ij = sum_k W[i, j, k] P_k:

        size[j]   the norm over i of h_ij, at each point
        main[j]   the curve that h_ij follows up to a factor for each i, as well as one curve can: s v of the first
                  singular triple u s v^T of the matrix (h_ij)_i; its sign is that of its sum

    W (I, J, K+1); P (K+1, n), or (I, K+1, n) where each input channel has its own polynomials. Both are (J, n).
    """
    size, main = [], []
    for j in range(W.shape[1]):
        if P.dim() == 2:  # h = W_j P has at most K+1 directions: W_j = Q R, and R P has the singular values of h
            h = torch.linalg.qr(W[:, j]).R @ P
        else:
            h = torch.linalg.qr(torch.einsum("ik,ikn->in", W[:, j], P)).R
        _, s, v = torch.linalg.svd(h, full_matrices=False)
        curve = s[0] * v[0]
        size.append(h.norm(dim=0))
        main.append(-curve if curve.sum() < 0 else curve)
    return torch.stack(size), torch.stack(main)


def factor(values: Tensor) -> dict[str, Any]:
    """A factor as a picture: the strongest rows of a matrix; where there are three axes, the norm over the longest one,
    "axis", and the strongest slices along it."""
    shape = list(values.shape)
    if values.dim() == 3:
        axis = shape.index(max(shape))
        others = [a for a in range(3) if a != axis]
        shown = strongest(values.norm(dim=others), SLICES)
        slices = values.movedim(axis, 0)[shown]
        return {
            "shape": shape,
            "axis": axis,
            "norm": rounded(values.norm(dim=axis)),
            "index": shown,
            "slices": rounded(slices),
        }
    matrix = values.reshape(1, -1) if values.dim() < 2 else values
    rows = strongest(matrix.norm(dim=1), ROWS) if len(matrix) > ROWS else list(range(len(matrix)))
    return {"shape": shape, "rows": rows, "values": rounded(matrix[rows])}


def interval(S: Operator, points: int) -> Tensor:
    """Evenly spaced, increasing, from one end to the other of the interval that holds the spectrum of S."""
    return (S.scale * torch.linspace(-1, 1, points, dtype=torch.float64) + S.shift).sort().values


def layer(conv: SpectralConv, S: Operator, x: Tensor | CSR) -> dict[str, Any]:
    """One convolution: its responses on the matrix's interval, its coefficient tensor and its factors."""
    W = conv.coefficients().detach().double().cpu()  # (I, J, K+1)
    grid = interval(S, POINTS)
    basis = conv.basis
    if isinstance(basis, OptBasis):
        basis = basis.fit(S, x.to_dense() if isinstance(x, CSR) else x, conv.order)
    outputs = sorted(strongest(W.flatten(2).norm(dim=(0, 2)), OUTPUTS))
    size, main = responses(W[:, outputs], basis.evaluate(grid, conv.order).detach().cpu())
    inputs = strongest(W.norm(dim=(1, 2)), INPUTS)
    return {
        "in": conv.in_channels,
        "out": conv.out_channels,
        "outputs": outputs,
        "grid": rounded(grid),
        "size": rounded(size),
        "main": rounded(main),
        "W": {
            "norm": rounded(W[:, outputs].norm(dim=0)),
            "inputs": inputs,
            "slices": rounded(W[inputs][:, outputs]),
        },
        "factors": {
            name: factor(value.detach().double().cpu())
            for name, value in conv.decomposition.named_parameters(recurse=False)
        },
    }


def layers(model: SpectralModel, graph: Graph) -> list[dict[str, Any]]:
    """Every convolution of a trained model, with the signals that reach it on this graph."""
    assert graph.x is not None
    S = model.operator(graph)
    h: Any = graph.x if graph.x.layout == torch.strided else CSR.from_tensor(graph.x)
    found = []
    with torch.no_grad():
        h = h if model.encoder is None else model.encoder(h)
        for i, conv in enumerate(model.layers):
            h = h.relu() if i else h
            found.append(layer(conv, S, h))
            h = conv(h, S)
    return found


def curve(epochs: Sequence[Scores]) -> dict[str, Any]:
    """Loss, validation and test accuracy of every epoch, or of every n-th where there are many."""
    step = max(1, math.ceil(len(epochs) / EPOCHS))
    kept = range(0, len(epochs), step)
    columns = torch.tensor([epochs[i] for i in kept], dtype=torch.float64).T
    return {
        "epoch": [i + 1 for i in kept],
        **{name: rounded(c) for name, c in zip(Scores._fields, columns, strict=True)},
    }


def spectrum(graph: Graph, model: SpectralModel) -> dict[str, Any]:
    """The graph matrix of the model, and which share of its eigenvalues lies in each of `BINS` equal intervals."""
    S = model.operator(graph, torch.float64)
    density = spectral_density(S)
    edges = interval(S, BINS + 1)
    share = density.share_below(edges).diff().clamp_min(0)
    return {"matrix": S.name, "edges": rounded(edges), "share": rounded(share)}


def record(graph: Graph, config: Config, *, seed: int = 0, protocol: str = "paper") -> dict[str, Any]:
    """Train one run as `codesgc.train` does, and say what its model has learned.

    A run has the same numbers alone as among others, so this is the run of that seed in the result file, too. Of long
    axes only the strongest entries are written, so that a file stays below 300 kB on any graph:

        layers      of each convolution: frequency responses ("size", "main": see `responses`), the coefficient tensor
                    ("W": norm over the input channels, and the slices of some), and the factors
        spectrum    share of the matrix's eigenvalues in equal intervals
        curve       training loss, validation and test accuracy by epoch
    """
    check_trainable(graph)
    graph = graph.row_normalised()
    assert graph.y is not None
    seed += PROTOCOLS[protocol]
    epochs: list[Scores] = []
    with held_signals() as deliver:

        def on_epoch(slots: Sequence[Slot]) -> None:
            assert slots[0].latest is not None
            epochs.append(slots[0].latest)
            deliver()

        jobs = [Job(config, seed, random_split(graph.y, seed))]
        (done,) = train_jobs(graph, jobs, keep_best=True, on_epoch=on_epoch)
    run, model = done.run, done.model
    assert model is not None
    return {
        "format": FORMAT,
        "dataset": graph.name or "graph",
        "model": config.model,
        "protocol": protocol,
        "config": config.to_dict(),
        "seed": seed,
        "best_epoch": run.best_epoch,
        "test_accuracy": run.test_accuracy,
        "classes": graph.num_classes,
        "curve": curve(epochs),
        "spectrum": spectrum(graph, model),
        "layers": layers(model, graph),
    }
