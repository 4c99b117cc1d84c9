"""The search: trials asked for as places become free, trained in one population, told as they end."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from codesgc.graph import Graph
from codesgc.training import Job, Slot, Split, population_size, random_split, train_jobs
from codesgc.training.protocol import check_trainable
from codesgc.training.signals import held_signals
from codesgc.tuning.sampler import rungs
from codesgc.tuning.study import Study, Trial

# Trials under way at once, unless a population is asked for: what is drawn does not know how they end. With 21 of them
# the search of L-CP on Texas was no faster than with 8, and its best validation accuracy a point lower.
IN_FLIGHT = 8
POLL = 0.5  # seconds between two looks while all that is left is done by others


@dataclass
class Search:
    """One worker's share of a study on a graph.

    `run` returns when the study has its trials, or `deadline` (of `time.monotonic`) is past and what was under way has
    ended. `watch` is called after every epoch, and while there is nothing to do.
    """

    graph: Graph
    study: Study
    population: int | None = None
    device: str = "cpu"
    deadline: float | None = None
    watch: Callable[["Search"], None] | None = None
    active: list[Trial] = field(default_factory=list)
    epochs: int = 0  # of all replicates together
    seconds: float = 0.0

    def __post_init__(self) -> None:
        check_trainable(self.graph)
        self.graph = self.graph.row_normalised()
        assert self.graph.y is not None
        self.splits: list[Split] = [random_split(self.graph.y, seed) for seed in range(self.study.runs)]
        most = self.study.trials * self.study.runs
        sizes = (population_size(self.graph, c, most, self.population) for c in self.study.space.largest())
        runs, size = self.study.runs, min(sizes)
        if self.population is None:
            size = min(size, IN_FLIGHT * runs)
        self.size = max(size - size % runs, min(size, runs))  # so that runs of a trial go together
        self.waiting: deque[Job] = deque()
        self.arrived: dict[int, Trial] = {}  # by id: trials with a run that has come to a rung, or has ended
        self.rungs = rungs(self.study.space.base().epochs)
        self.began = time.monotonic()

    def run(self) -> None:
        """Search; an interruption gives up the trials under way and is raised again."""
        began = time.perf_counter()
        try:
            with held_signals() as deliver:
                self.deliver = deliver
                while self._more():
                    self._train()
                    self._wait()
        finally:
            self.seconds += time.perf_counter() - began
            try:
                self.study.abandon(self.active)
            finally:
                self.study.leave()

    def _more(self) -> bool:
        """Whether the study lacks trials, and there is time for them."""
        late = self.deadline is not None and time.monotonic() > self.deadline
        return not late and self.study.count() < self.study.trials

    def _wait(self) -> None:
        """Until there is something to do, or nothing more to wait for."""
        while self._more() and not self.study.wants():
            self._look()
            time.sleep(POLL)

    def _look(self) -> None:
        if self.watch is not None:
            self.watch(self)
        self.deliver()

    def _train(self) -> None:
        device = torch.device(self.device)
        for done in train_jobs(self.graph, self._jobs(), size=self.size, device=device, on_epoch=self._on_epoch):
            trial = done.job.tag
            assert isinstance(trial, Trial)
            self.epochs += done.run.epochs
            trial.runs[done.run.seed] = done.run
            self.arrived[id(trial)] = trial
            if not trial.ended and len(trial.runs) == self.study.runs:
                self.study.complete(trial)
            if trial.ended and trial in self.active:
                self.active.remove(trial)

    def _jobs(self) -> Iterator[Job]:
        """The runs of one trial after the other, for as long as another is wanted."""
        while True:
            while self.waiting:
                job = self.waiting.popleft()
                if not job.tag.ended:
                    yield job
            late = self.deadline is not None and time.monotonic() > self.deadline
            if late or not self.study.wants():
                return
            trial = self.study.ask()
            if trial is not None:
                self.active.append(trial)
                self.waiting += [Job(trial.config, s, self.splits[s], tag=trial) for s in trial.seeds]
            self.deliver()

    def _on_epoch(self, slots: list[Slot]) -> None:
        if self.study.pruning:
            self._prune(slots)
        self._look()

    def _prune(self, slots: list[Slot]) -> None:
        """Note who has come to a rung, ask about trials all of whose runs have, and stop those that are pruned."""
        for slot in slots:
            trial, run = slot.job.tag, slot.run
            assert isinstance(trial, Trial)
            if run.epochs in self.rungs:
                trial.reached.setdefault(run.epochs, {})[run.seed] = run.val_accuracy
                self.arrived[id(trial)] = trial
        for trial in self.arrived.values():
            own = [slot for slot in slots if slot.job.tag is trial]
            while trial.reported < len(self.rungs) and not trial.ended:
                rung = self.rungs[trial.reported]
                value = trial.at(rung)
                if value is None:
                    break
                trial.reported += 1
                self.study.prune(trial, rung, value, {slot.run.seed: slot.run for slot in own})
            for slot in own:
                slot.stopped |= trial.ended
        self.arrived.clear()
