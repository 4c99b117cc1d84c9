"""A study in its storage: what it is a study of, which trials it still wants, and how they are asked for and told."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from codesgc.errors import InputError
from codesgc.training import Run
from codesgc.tuning.sampler import Sampler, make_pruner
from codesgc.tuning.spaces import AUTO, Space
from codesgc.tuning.storage import closing, open_storage, shown, storage_errors
from codesgc.tuning.workers import Worker, make_worker
from codesgc.zoo import Config

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
COUNTED = (*DONE, TrialState.RUNNING, TrialState.WAITING)  # all but the failed ones


@dataclass(eq=False)
class Trial:
    """A configuration under way: its runs by seed as they end, and what they had reached at each rung."""

    handle: optuna.Trial
    config: Config
    seeds: Sequence[int]
    began: float = field(default_factory=time.perf_counter)
    runs: dict[int, Run] = field(default_factory=dict)
    reached: dict[int, dict[int, float]] = field(default_factory=dict)
    reported: int = 0  # how many rungs the pruner knows
    ended: bool = False

    def at(self, rung: int) -> float | None:
        """Mean best validation accuracy after that many epochs, or None while a run is not so far."""
        ended = {seed: run.val_accuracy for seed, run in self.runs.items()}
        values = {**ended, **self.reached.get(rung, {})}  # a run that ended before the rung has its final value there
        return sum(values.values()) / len(values) if len(values) == len(self.seeds) else None

    @property
    def value(self) -> float:
        """The objective: mean best validation accuracy of the runs, in per cent."""
        return sum(self.runs[seed].val_accuracy for seed in self.seeds) / len(self.seeds)

    def result(self) -> dict[str, Any]:
        """What is kept of it besides configuration and value; test accuracies are not looked at in a search."""
        runs = [self.runs[seed] for seed in self.seeds if seed in self.runs]
        return {
            "seeds": [run.seed for run in runs],
            "val_accuracy": [run.val_accuracy for run in runs],
            "best_epoch": [run.best_epoch for run in runs],
            "epochs": [run.epochs for run in runs],
            "seconds": round(time.perf_counter() - self.began, 3),
        }


@contextmanager
def reading(where: str, name: str) -> Iterator[optuna.Study]:
    """A study that is there, to be read."""
    with storage_errors(where), _quiet(), closing(open_storage(where)) as storage:
        try:
            study = optuna.load_study(study_name=name, storage=storage)
        except KeyError:
            raise InputError(f"storage {shown(where)} has no study {name!r}: expected one that was begun") from None
        yield study


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's advice on heartbeats, which are sent by the worker here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


class Study:
    """The study of one identity, with `trials` of them to be done by all workers together.

    A trial counts if fewer than `trials` that have not failed came before it. Failed ones never come back, so the ones
    that count are at most `trials` at any time; and as long as they are fewer, somebody asks for another.
    """

    def __init__(
        self,
        where: str,
        name: str,
        identity: Mapping[str, Any],
        space: Space,
        *,
        trials: int,
        seed: int = 0,
        pruner: str = "none",
        beat: int = 20,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.where, self.name, self.space, self.trials = where, name, space, trials
        self.runs = int(identity["runs"])
        self.pruning = pruner != "none"
        self.seconds = 0.0  # spent here
        self.known = trials  # how many trials counted when the last one was asked for
        with self._at_work(), ExitStack() as on_failure:
            self.storage = on_failure.enter_context(closing(open_storage(where, beat)))
            pruning = make_pruner(pruner, int(identity["base"]["epochs"]))
            self.study = self._open(self.storage, identity, pruning)
            self.worker: Worker = make_worker(where, self.storage)
            self.study.sampler = Sampler(seed, self.worker, space.model == AUTO or bool(space.parts))
            self.worker.bury(self.study)
            self.at_the_end = on_failure.pop_all()
        self.looked = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.at_the_end:
            self.leave()

    def _open(
        self, storage: BaseStorage, identity: Mapping[str, Any], pruner: optuna.pruners.BasePruner
    ) -> optuna.Study:
        try:
            study = optuna.load_study(study_name=self.name, storage=storage, pruner=pruner)
        except KeyError:
            study = optuna.create_study(
                storage=storage, study_name=self.name, direction="maximize", pruner=pruner, load_if_exists=True
            )
        if "codesgc" not in study.user_attrs:
            if study.get_trials(deepcopy=False):
                raise InputError(
                    f"study {self.name!r} in {shown(self.where)} is not of codesgc: choose another --study"
                )
            study.set_user_attr("codesgc", dict(identity))
        found = study.user_attrs["codesgc"]
        for key, value in identity.items():
            if found.get(key) != value:
                was, now = (_short(data) for data in _difference(found.get(key), value))
                raise InputError(
                    f"study {self.name!r} in {shown(self.where)} has {key} {was}, and {now} was asked for: "
                    "give what it has, or choose another --study or --out"
                )
        return study

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            with storage_errors(self.where), _quiet():
                yield
        finally:
            self.seconds += time.perf_counter() - began

    def get(self, *states: TrialState) -> list[FrozenTrial]:
        """The trials in these states, by number."""
        with self._at_work():
            return self.study.get_trials(deepcopy=False, states=states)

    def count(self) -> int:
        """How many trials are done."""
        return len(self.get(*DONE))

    def best_value(self) -> float | None:
        """The greatest value so far."""
        return max((t.value for t in self.get(TrialState.COMPLETE) if t.value is not None), default=None)

    def wants(self) -> bool:
        """Whether another trial should be asked for."""
        with self._at_work():
            if time.monotonic() - self.looked > self.worker.look:
                self.worker.bury(self.study)
                self.looked = time.monotonic()
        # far from the end the last look is enough: one that is asked for in vain is noticed
        return self.known < 0.9 * self.trials or len(self.get(*COUNTED)) < self.trials

    def ask(self) -> Trial | None:
        """A new trial to be trained, or None if it turned out to be one too many or had been done before."""
        with self._at_work():
            handle = self.study.ask()
            # from Optuna's cache of one trial, which its sampler then finds filled: on a server every look costs 15 ms
            there = self.study._get_trials(deepcopy=False, states=COUNTED, use_cache=True)
            before = [trial for trial in there if trial.number < handle.number]
            self.known = len(before) + 1
            if len(before) >= self.trials:
                handle.set_user_attr("surplus", True)
                self._end(handle, TrialState.FAIL)
                return None
            config = self.space.suggest(handle)
            trial = Trial(handle, config, range(self.runs))
            handle.set_user_attr("config", config.to_dict())
            for other in before:
                if other.state == TrialState.COMPLETE and other.params == handle.params:
                    handle.set_user_attr("result", {**other.user_attrs["result"], "as_trial": other.number})
                    self._end(handle, TrialState.COMPLETE, other.value)
                    return None
            return trial

    def complete(self, trial: Trial) -> None:
        """Its last run has ended."""
        with self._at_work():
            self._finish(trial, TrialState.COMPLETE, trial.value)

    def prune(self, trial: Trial, rung: int, value: float, runs: Mapping[int, Run]) -> bool:
        """Report what a trial has reached; whether it is to end here, with its active runs as they are."""
        with self._at_work():
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                trial.handle.report(value, rung)
                if trial.handle.should_prune():
                    trial.runs |= runs
                    self._finish(trial, TrialState.PRUNED)
            return trial.ended

    def abandon(self, trials: Sequence[Trial]) -> None:
        """Give up what is under way."""
        with self._at_work():
            for trial in trials:
                self._finish(trial, TrialState.FAIL)

    def _finish(self, trial: Trial, state: TrialState, value: float | None = None) -> None:
        trial.ended = True
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # given up by others, which took us for dead
            trial.handle.set_user_attr("result", trial.result())
            self._end(trial.handle, state, value)
        self.worker.end(trial.handle)

    def _end(self, handle: optuna.Trial, state: TrialState, value: float | None = None) -> None:
        self.study.tell(handle, value, state=state, skip_if_finished=True)
        self.worker.end(handle)

    def leave(self) -> None:
        """Show no signs of life any more; the study can still be read."""
        self.worker.close()


def _difference(found: Any, asked: Any) -> tuple[Any, Any]:
    """The entries in which two mappings differ; other values as they are."""
    if not isinstance(found, Mapping) or not isinstance(asked, Mapping):
        return found, asked
    keys = [key for key in (*found, *asked) if found.get(key) != asked.get(key)]
    return {key: found[key] for key in keys if key in found}, {key: asked[key] for key in keys if key in asked}


def _short(data: Any) -> str:
    text = ", ".join(f"{k}={v}" for k, v in data.items()) or "nothing" if isinstance(data, Mapping) else str(data)
    return text if len(text) < 100 else f"{text[:97]}..."
