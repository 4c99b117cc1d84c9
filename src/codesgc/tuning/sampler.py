"""Optuna's sampler and pruners as they are used here."""

import hashlib
import math
import warnings
from collections.abc import Callable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
)
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from codesgc.tuning.workers import Worker

FIRST_RUNG = 10


class Sampler(BaseSampler):
    """Optuna's TPE, which takes running trials for bad ones, seeded anew for each trial.

    What trial number n is drawn from is (seed, n) and the trials before it: a study that is resumed does not repeat
    itself, and two workers do not propose the same.
    """

    def __init__(self, seed: int, worker: Worker, conditional: bool) -> None:
        self.seed, self.worker, self.conditional = seed, worker, conditional
        self.inner = self._make(0)

    def _make(self, number: int) -> TPESampler:
        digest = hashlib.sha256(f"{self.seed}:{number}".encode()).digest()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return TPESampler(seed=int.from_bytes(digest[:4], "little"), constant_liar=True, group=self.conditional)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self.worker.begin(trial)
        self.inner = self._make(trial.number)
        self.inner.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.inner.sample_relative(study, trial, search_space)

    def sample_independent(self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution) -> Any:
        return self.inner.sample_independent(study, trial, name, distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Any) -> None:
        self.inner.after_trial(study, trial, state, values)


def rungs(epochs: int) -> list[int]:
    """Epochs after which a trial may be pruned: 10, 20, 40, ... below the last.

    >>> rungs(100)
    [10, 20, 40, 80]
    """
    return [FIRST_RUNG << k for k in range(max(0, math.ceil(math.log2(epochs / FIRST_RUNG))))]


def make_pruner(name: str, epochs: int) -> BasePruner:
    """The pruner of that name; "none" is the paper's search.

    They begin at a twelfth of the epochs: on Cora the ranks of 80 trials after 10 or 20 of 1000 epochs say little of
    those at the end, and halving that began there lost the best ones.
    """
    first = max([rung for rung in rungs(epochs) if rung <= epochs / 12], default=FIRST_RUNG)
    return PRUNERS[name](first, epochs)


PRUNERS: dict[str, Callable[[int, int], BasePruner]] = {
    "none": lambda first, epochs: NopPruner(),
    "median": lambda first, epochs: MedianPruner(n_startup_trials=10, n_warmup_steps=first),
    "percentile": lambda first, epochs: PercentilePruner(25.0, n_startup_trials=10, n_warmup_steps=first),
    "halving": lambda first, epochs: SuccessiveHalvingPruner(min_resource=first, reduction_factor=3),
    "hyperband": lambda first, epochs: HyperbandPruner(min_resource=first, max_resource=epochs, reduction_factor=4),
}
