"""The paper's protocol: repeats over seeds, early stopping, and a bootstrap interval (paper, section 4)."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

import codesgc
from codesgc.errors import InputError, unknown, whole
from codesgc.graph import Graph
from codesgc.models import SpectralModel
from codesgc.training.capacity import population_size
from codesgc.training.population import Job, Run, Slot, train_jobs
from codesgc.training.signals import held_signals
from codesgc.training.splits import random_split
from codesgc.zoo import Config, find_model

#: first seed of the splits on which each protocol reports. Hyper-parameters are searched on the seeds 0 to 2, here and
#: by the paper's authors: "paper" repeats that overlap, "strict" reports on splits that no search has touched.
PROTOCOLS = {"paper": 0, "strict": 1000}

Progress = Callable[[Sequence[Run], Sequence[Run]], None]


@dataclass(frozen=True)
class Result:
    """Runs of one configuration on one graph, with all that is needed to repeat them; accuracies in per cent."""

    dataset: str
    model: str
    protocol: str
    config: Config
    runs: tuple[Run, ...]
    seconds: float
    versions: Mapping[str, str]
    interrupted: bool = False
    models: tuple[SpectralModel, ...] = field(default=(), compare=False, repr=False)
    diverged: tuple[int, ...] = field(default=(), repr=False)  # seeds of runs that ended with a loss that is no number

    @property
    def test_mean(self) -> float:
        """Mean test accuracy over the runs."""
        return float(np.mean([run.test_accuracy for run in self.runs]))

    @property
    def test_ci95(self) -> float:
        """Half-width of the 95 % bootstrap interval of that mean."""
        return bootstrap_interval([run.test_accuracy for run in self.runs])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "dataset": self.dataset,
            "model": self.model,
            "protocol": self.protocol,
            "config": self.config.to_dict(),
            "runs": [asdict(run) for run in self.runs],
            "test_mean": self.test_mean,
            "test_ci95": self.test_ci95,
            "interrupted": self.interrupted,
            **({"diverged": list(self.diverged)} if self.diverged else {}),
            "seconds": self.seconds,
            "versions": dict(self.versions),
        }


def bootstrap_interval(values: Sequence[float], resamples: int = 1000) -> float:
    """The larger side of the 95 % interval of the mean over bootstrap resamples; always the same for the same values.

    >>> round(bootstrap_interval([88.0, 89.0, 90.0]), 2)
    1.0
    """
    sample = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(0).integers(len(sample), size=(resamples, len(sample)))
    low, high = np.percentile(sample[draws].mean(axis=1), [2.5, 97.5])
    return float(max(sample.mean() - low, high - sample.mean()))


def versions() -> dict[str, str]:
    """What the numbers may depend on besides the configuration."""
    return {
        "codesgc": codesgc.__version__,
        "engine": codesgc.engine_name(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def check_trainable(graph: Graph) -> None:
    """An error for a graph that has nothing to learn from, or nothing to learn."""
    if graph.x is None:
        raise InputError("the graph has no features: expected x with a row for each node; pass x=torch.eye(num_nodes)")
    if graph.y is None or graph.num_classes == 0:
        raise InputError("the graph has no labels: expected y with a class for each node, -1 where it is unknown")
    counts = torch.bincount(graph.y[graph.labelled], minlength=graph.num_classes)
    if bool((counts == 0).any()):
        empty = (counts == 0).nonzero().flatten()
        raise InputError(
            f"no node has label {int(empty[0])}, and the largest one is {graph.num_classes - 1}: expected nodes of "
            "every label up to it; renumber the labels, as numpy.unique(y, return_inverse=True) does"
        )


def train(
    graph: Graph,
    model: str | Config = "L-CP",
    *,
    runs: int = 10,
    seed: int = 0,
    protocol: str = "paper",
    device: str | torch.device = "cpu",
    population: int | None = None,
    keep_models: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Train a model `runs` times, on splits and initialisations of consecutive seeds, and score it.

    Feature rows are divided by their sum. Each run takes up to `config.epochs` full-batch Adam steps; after each, an
    epoch whose validation accuracy is not below the best is kept with its test accuracy, and more than
    `config.patience` epochs in a row without one end the run. An interruption (Ctrl-C) returns the runs that are done.

    Args:
        model: a name of the zoo, or a `Config`; `codesgc.preset(dataset, name)` has published settings.
        runs: how many seeds.
        seed: the first of them; "strict" counts from seed 1000.
        protocol: "paper" or "strict"; they differ in the splits that are reported on.
        population: how many runs train at once; by default as many as suit the graph and the machine.
        keep_models: put the trained models, at their best epochs, into `result.models`.
        progress: called after each epoch with the finished and the active runs.

    >>> graph = Graph([range(29), range(1, 30)], x=torch.eye(30), y=[0, 1] * 15, to_undirected=True)
    >>> result = train(graph, Config(epochs=5), runs=2)
    >>> [run.epochs for run in result.runs]
    [5, 5]
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"graph is {type(graph).__name__}: expected a Graph; load_dataset(name) gives one")
    if isinstance(model, SpectralModel):
        raise TypeError("model is a SpectralModel: expected what it is built from; pass model.config")
    config = model if isinstance(model, Config) else find_model(model)
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
    runs = whole("runs", runs)
    population = None if population is None else whole("population", population)
    check_trainable(graph)
    graph = graph.row_normalised()
    assert graph.y is not None
    first = PROTOCOLS[protocol] + seed
    jobs = [Job(config, s, random_split(graph.y, s)) for s in range(first, first + runs)]
    done: list[Run] = []
    models: dict[int, SpectralModel] = {}
    diverged: list[int] = []
    began, interrupted = time.perf_counter(), False
    size = population_size(graph, config, runs, population)
    try:
        with held_signals() as deliver:

            def on_epoch(slots: Sequence[Slot]) -> None:
                if progress is not None:
                    progress(done, [slot.run for slot in slots])
                deliver()

            for _, run, trained, ended_badly in train_jobs(
                graph, jobs, size=size, device=torch.device(device), keep_best=keep_models, on_epoch=on_epoch
            ):
                done.append(run)
                diverged += [run.seed] * ended_badly
                if trained is not None:
                    models[run.seed] = trained
    except KeyboardInterrupt:
        if not done:
            raise
        interrupted = True
    done.sort(key=lambda run: run.seed)
    return Result(
        dataset=graph.name or "graph",
        model=config.model,
        protocol=protocol,
        config=config,
        runs=tuple(done),
        seconds=time.perf_counter() - began,
        versions=versions(),
        interrupted=interrupted,
        diverged=tuple(sorted(diverged)),
        models=tuple(models[run.seed] for run in done) if keep_models else (),
    )
