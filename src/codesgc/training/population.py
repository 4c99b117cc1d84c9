"""Training of many replicates as one model on one graph."""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor

from codesgc.bases import Tabulated
from codesgc.engine.native import keeping_freed_memory, leaving_torch_one_thread
from codesgc.engine.ops import called_directly, cross_entropy, engine
from codesgc.graph import Graph
from codesgc.models import SpectralModel, rates
from codesgc.training.adam import Adam
from codesgc.training.inputs import Inputs
from codesgc.training.splits import Split, prior_shift
from codesgc.zoo import Config


@dataclass(frozen=True)
class Job:
    """One training: a configuration, a seed for initialisation and dropout, and a split; `tag` is the caller's."""

    config: Config
    seed: int
    split: Split
    tag: Any = None


@dataclass
class Run:
    """What came of a job. Accuracies in per cent, at the epoch that early stopping keeps; epochs count from 1."""

    seed: int
    val_accuracy: float = -1.0
    test_accuracy: float = -1.0
    best_epoch: int = 0
    epochs: int = 0


class Done(NamedTuple):
    """A job that has ended, what came of it, its model at the best epoch if models are kept, and how it ended."""

    job: Job
    run: Run
    model: SpectralModel | None
    diverged: bool = False


class Scores(NamedTuple):
    """Of one epoch: training loss before the step, accuracies in per cent after it."""

    loss: float
    val: float
    test: float


@dataclass
class Slot:
    """A place in a population: the job in it, how far it is, and its best epoch's parameters if they are kept.

    Whoever watches the epochs may set `stopped`, and the run ends there. One that has `diverged` ends, too.
    """

    job: Job
    run: Run
    latest: Scores | None = None
    stopped: bool = False
    best: list[Tensor] = field(default_factory=list)

    @property
    def diverged(self) -> bool:
        """The loss of the last epoch was no finite number: there is nothing to be hoped for any more."""
        return self.latest is not None and not isfinite(self.latest.loss)

    @property
    def finished(self) -> bool:
        """More epochs in a row than `patience` were worse than the best, or all `epochs` are done."""
        config = self.job.config
        worse = self.run.epochs - self.run.best_epoch
        return self.stopped or self.diverged or worse > config.patience or self.run.epochs >= config.epochs

    def note(self, val: float, test: float) -> bool:
        """Count an epoch; keep its accuracies, and say so, where validation is not worse than the best so far."""
        run = self.run
        run.epochs += 1
        if val < run.val_accuracy:
            return False
        run.val_accuracy, run.test_accuracy, run.best_epoch = val, test, run.epochs
        return True


def new_model(job: Job, in_channels: int, out_channels: int) -> SpectralModel:
    """The job's model, untrained: a function of its configuration and seed."""
    model = SpectralModel(in_channels, out_channels, job.config)
    model.reset_parameters(torch.Generator().manual_seed(job.seed))
    return model


def _tensors(model: SpectralModel) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


class Population:
    """B replicates of one shape in training: `epoch` trains and scores them all once.

    A replicate's model is built alone and copied into a slot, so that what a slot holds is what training alone would
    start with. Fixed bases become tables of Chebyshev coefficients, so that replicates may have different ones.
    """

    def __init__(self, inputs: Inputs, config: Config, size: int, *, keep_best: bool = False) -> None:
        self.inputs, self.config, self.keep_best = inputs, config, keep_best
        self.x, self.y, self.device, self.dtype = inputs.x, inputs.y, inputs.device, inputs.dtype
        self.S = inputs.matrix(SpectralModel(inputs.channels, inputs.classes, config))
        self.slots: list[Slot] = []
        self.given: list[Tensor] = []  # of every slot: the nodes of each part, and what training adds to its scores
        self._make(size)

    def _make(self, size: int) -> None:
        self.model = SpectralModel(self.inputs.channels, self.inputs.classes, self.config, replicates=size)
        self._tabulate(self.model.to(self.device, self.dtype), size)
        self.modules = list(self.model.modules())
        self.groups = [(name, p) for name, ps in self.model.groups().items() for p in ps]
        self.optimizer = Adam([p for _, p in self.groups], size)

    def _tabulate(self, model: SpectralModel, *leading: int) -> SpectralModel:
        """The model with its fixed bases as tables, one for each replicate."""
        for conv in model.layers:
            if conv.basis.fixed:
                B = conv.basis.to_chebyshev(conv.order, self.S.scale, self.S.shift)
                table = B.expand(*leading, *B.shape[-2:]).clone().to(self.device)
                conv.basis = Tabulated(table, self.S.scale, self.S.shift)
        return model

    @torch.no_grad()
    def start(self, slot: int, job: Job) -> None:
        """Put a new replicate into a slot; the slots are first filled in order."""
        alone = self._tabulate(new_model(job, self.inputs.channels, self.inputs.classes))
        for target, source in zip(_tensors(self.model), _tensors(alone), strict=True):
            target[slot].copy_(source)
        for tensor in self.optimizer.state():
            tensor[slot].zero_()
        for i, (group, _) in enumerate(self.groups):
            self.optimizer.lr[i, slot], self.optimizer.weight_decay[i, slot] = rates(job.config, group)
        split, classes = job.split, self.inputs.classes
        shift = torch.zeros(classes) if job.config.prior == "training" else prior_shift(self.y, split, classes)
        parts = [part.to(self.device) for part in (split.train, split.val, split.test, shift.to(self.dtype))]
        if not self.given:
            self.given = [part.repeat(self.optimizer.step_count.numel(), 1) for part in parts]
        for given, part in zip(self.given, parts, strict=True):
            given[slot] = part
        self.slots[slot : slot + 1] = [Slot(job, Run(job.seed))]

    @torch.no_grad()
    def keep(self, kept: list[int], new: Sequence[Job] = ()) -> None:
        """Go on with these slots and with new jobs behind them."""
        if not kept and not new:
            self.slots = []
            return
        tensors, states, slots = _tensors(self.model), self.optimizer.state(), self.slots
        self._make(len(kept) + len(new))
        index = torch.tensor(kept, dtype=torch.int64, device=self.device)
        for target, source in zip(_tensors(self.model), tensors, strict=True):
            target[: len(kept)] = source[index]
        for target, source in zip(self.optimizer.state(), states, strict=True):
            target[: len(kept)] = source[index]
        self.slots = [slots[i] for i in kept]
        self.given = [torch.cat([part[index], part[:1].expand(len(new), -1)]) for part in self.given]
        for slot, job in enumerate(new, start=len(kept)):
            self.start(slot, job)

    def replace(self, jobs: Sequence[Job]) -> None:
        """Put jobs into the slots of finished ones; the population grows or shrinks where their numbers differ."""
        free = [i for i, slot in enumerate(self.slots) if slot.finished]
        for i, job in zip(free, jobs, strict=False):
            self.start(i, job)
        left = set(free[len(jobs) :])
        if left or len(jobs) > len(free):
            self.keep([i for i in range(len(self.slots)) if i not in left], jobs[len(free) :])

    def epoch(self) -> None:
        """One step of every replicate, then its accuracies with the parameters after the step."""
        with leaving_torch_one_thread(), called_directly():
            self._epoch()

    def _epoch(self) -> None:
        train, val, test, shift = self.given
        self._mode(training=True)
        scores = self.model(self.x, self.S)  # (B, N, classes)
        if self.config.prior != "training":
            scores = scores + shift[:, None, :]
        losses, _ = cross_entropy(scores, self.y, train)
        loss = losses.sum()  # its gradient is 1 for each: replicates do not mix
        for conv in self.model.layers:
            if conv.decomposition.penalised:
                loss = loss + conv.decomposition.penalty().sum()
        loss.backward()
        self.optimizer.step()
        self._mode(training=False)
        with torch.no_grad():
            scores = self.model(self.x, self.S)
            right = [engine(scores).correct(scores, self.y, part).tolist() for part in (val, test)]
        for i, (slot, loss, r_val, r_test) in enumerate(zip(self.slots, losses.tolist(), *right, strict=True)):
            slot.latest = Scores(loss, 100 * r_val / val.shape[1], 100 * r_test / test.shape[1])
            improved = slot.note(slot.latest.val, slot.latest.test)
            if improved and self.keep_best:
                slot.best = [tensor[i].detach().clone() for tensor in _tensors(self.model)]

    def _mode(self, training: bool) -> None:
        """`model.train(training)`; a module's own way of setting an attribute takes longer than small kernels."""
        for module in self.modules:
            vars(module)["training"] = training

    def trained(self, slot: int) -> SpectralModel:
        """The model of a slot at its best epoch, on its own and in evaluation mode."""
        done = self.slots[slot]
        model = new_model(done.job, self.inputs.channels, self.inputs.classes).to(self.device, self.dtype)
        bases = [conv.basis for conv in model.layers]
        with torch.no_grad():
            for target, source in zip(_tensors(self._tabulate(model)), done.best, strict=True):
                target.copy_(source)
        for conv, basis in zip(model.layers, bases, strict=True):
            conv.basis = basis
        return model.eval()


@contextmanager
def looking_for_garbage_in_what_is_new() -> Iterator[None]:
    """Python's search for cycles leaves out what is there now: with torch loaded that is more than epochs leave."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def train_jobs(
    graph: Graph,
    jobs: Iterable[Job],
    *,
    size: int = 1,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    keep_best: bool = False,
    on_epoch: Callable[[list[Slot]], None] | None = None,
) -> Iterator[Done]:
    """Train jobs, `size` of them at a time, and yield each as it ends.

    A job is asked for when a place is free for it, so that the next one may depend on how others ended. A replicate
    that stops leaves, and a waiting one takes its slot at once; jobs of one kind form one population.
    """
    with keeping_freed_memory(), looking_for_garbage_in_what_is_new():
        yield from _train_jobs(Inputs(graph, device=device, dtype=dtype), iter(jobs), size, keep_best, on_epoch)


def _train_jobs(
    inputs: Inputs,
    waiting: Iterator[Job],
    size: int,
    keep_best: bool,
    on_epoch: Callable[[list[Slot]], None] | None,
) -> Iterator[Done]:
    populations: dict[Hashable, Population] = {}
    active = 0
    while True:
        new: dict[Hashable, list[Job]] = {key: [] for key in populations}
        for job in islice(waiting, size - active):
            new.setdefault(inputs.kind(job.config), []).append(job)
            active += 1
        if not active:
            return
        for key, arrivals in new.items():
            if key in populations:
                populations[key].replace(arrivals)
            else:
                populations[key] = Population(inputs, arrivals[0].config, len(arrivals), keep_best=keep_best)
                for place, job in enumerate(arrivals):
                    populations[key].start(place, job)
        populations = {key: population for key, population in populations.items() if population.slots}
        for population in populations.values():
            population.epoch()
        if on_epoch is not None:
            on_epoch([slot for population in populations.values() for slot in population.slots])
        for population in populations.values():
            for i, slot in enumerate(population.slots):
                if slot.finished:
                    active -= 1
                    yield Done(slot.job, slot.run, population.trained(i) if keep_best else None, slot.diverged)
