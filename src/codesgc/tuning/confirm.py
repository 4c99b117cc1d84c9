"""A second look at the best settings, on splits that did not choose them.

The best of 400 trials owes part of its value to luck, and the more so the fewer nodes validate: 37 on Texas. So the few
best are trained again on more splits, where none of them has been favoured yet, and the greatest mean validation
accuracy there decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from optuna.trial import FrozenTrial, TrialState

from codesgc.graph import Graph
from codesgc.training import Job, bootstrap_interval, population_size, random_split, train_jobs
from codesgc.training.signals import held_signals
from codesgc.tuning.report import config_of

SPLITS = 10  # of seeds behind those of the search


@dataclass(frozen=True)
class Confirmed:
    """A trial and its validation accuracies on the new splits."""

    trial: FrozenTrial
    val_accuracy: tuple[float, ...]

    @property
    def value(self) -> float:
        return sum(self.val_accuracy) / len(self.val_accuracy)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `value` is the trial's in the search."""
        return {
            "number": self.trial.number,
            "value": self.trial.value,
            "confirmed": self.value,
            "ci95": bootstrap_interval(self.val_accuracy),
            "val_accuracy": list(self.val_accuracy),
        }


def candidates(trials: Sequence[FrozenTrial], count: int) -> list[FrozenTrial]:
    """The complete trials with the greatest values, the best first, each setting once."""
    found: dict[str, FrozenTrial] = {}
    for trial in sorted(trials, key=lambda trial: (-(trial.value or 0.0), trial.number)):
        if trial.state == TrialState.COMPLETE:
            found.setdefault(str(sorted(trial.params.items())), trial)
    return list(found.values())[:count]


def confirm(
    graph: Graph,
    trials: Sequence[FrozenTrial],
    seeds: Sequence[int],
    *,
    population: int | None = None,
    device: str = "cpu",
) -> list[Confirmed]:
    """The trials with what they reach on the splits of these seeds, the best first; of equal ones the first given."""
    graph = graph.row_normalised()
    assert graph.y is not None
    splits = {seed: random_split(graph.y, seed) for seed in seeds}
    jobs = [Job(config_of(trial), seed, splits[seed], tag=i) for i, trial in enumerate(trials) for seed in seeds]
    size = min(population_size(graph, config_of(trial), len(jobs), population) for trial in trials)
    found: list[dict[int, float]] = [{} for _ in trials]
    with held_signals() as deliver:
        for done in train_jobs(graph, jobs, size=size, device=torch.device(device), on_epoch=lambda slots: deliver()):
            found[done.job.tag][done.job.seed] = done.run.val_accuracy
    looked = [Confirmed(t, tuple(values[seed] for seed in seeds)) for t, values in zip(trials, found, strict=True)]
    return sorted(looked, key=lambda c: -c.value)
