"""Training of many replicates as one model on one graph."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from codesgc.engine import CSR
from codesgc.engine.native import leaving_torch_one_thread
from codesgc.engine.ops import cross_entropy, engine
from codesgc.graph import Graph
from codesgc.models import SpectralModel, rates
from codesgc.training.adam import Adam
from codesgc.training.splits import Split
from codesgc.zoo import Config


@dataclass(frozen=True)
class Job:
    """One training: a configuration, a seed for initialisation and dropout, and a split."""

    config: Config
    seed: int
    split: Split


@dataclass
class Run:
    """What came of a job. Accuracies in per cent, at the epoch that early stopping keeps; epochs count from 1."""

    seed: int
    val_accuracy: float = -1.0
    test_accuracy: float = -1.0
    best_epoch: int = 0
    epochs: int = 0


@dataclass
class Slot:
    """A place in a population: the job in it, how far it is, and its best epoch's parameters if they are kept."""

    job: Job
    run: Run
    best: list[Tensor] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """More epochs in a row than `patience` were worse than the best, or all `epochs` are done."""
        config = self.job.config
        return self.run.epochs - self.run.best_epoch > config.patience or self.run.epochs >= config.epochs

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
    start with. Configurations may differ in numbers (rates, dropout, options such as a and b), not in shapes or names.
    """

    def __init__(
        self,
        graph: Graph,
        config: Config,
        size: int,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        keep_best: bool = False,
    ) -> None:
        assert graph.x is not None and graph.y is not None
        device = device or torch.device("cpu")
        self.keep_best = keep_best
        self.classes = graph.num_classes
        x = graph.x if graph.x.layout == torch.strided else CSR.from_tensor(graph.x)
        self.x = x.to(device, dtype) if isinstance(x, Tensor) else x.to(dtype).to(device)
        self.y = graph.y.clamp_min(0).to(device)  # unlabelled nodes are in no part of a split
        self.device, self.dtype, self.config = device, dtype, config
        self._make(size)
        self.S = self.model.operator(graph, dtype).to(device)

    def _make(self, size: int) -> None:
        self.model = SpectralModel(self.x.shape[-1], self.classes, self.config, replicates=size)
        self.model.to(self.device, self.dtype)
        self.groups = [(name, p) for name, ps in self.model.groups().items() for p in ps]
        self.optimizer = Adam([p for _, p in self.groups], size)
        self.slots: list[Slot] = []
        self.nodes: list[Tensor] = []

    @torch.no_grad()
    def start(self, slot: int, job: Job) -> None:
        """Put a new replicate into a slot; the slots are first filled in order."""
        alone = new_model(job, self.x.shape[-1], self.classes)
        for target, source in zip(_tensors(self.model), _tensors(alone), strict=True):
            target[slot].copy_(source)
        for tensor in self.optimizer.state():
            tensor[slot].zero_()
        for i, (group, _) in enumerate(self.groups):
            self.optimizer.lr[i, slot], self.optimizer.weight_decay[i, slot] = rates(job.config, group)
        parts = [part.to(self.device) for part in (job.split.train, job.split.val, job.split.test)]
        if not self.nodes:
            self.nodes = [part.repeat(self.optimizer.step_count.numel(), 1) for part in parts]
        for nodes, part in zip(self.nodes, parts, strict=True):
            nodes[slot] = part
        self.slots[slot : slot + 1] = [Slot(job, Run(job.seed))]

    @torch.no_grad()
    def keep(self, kept: list[int]) -> None:
        """Go on with these slots alone."""
        tensors, states, slots, nodes = _tensors(self.model), self.optimizer.state(), self.slots, self.nodes
        self._make(len(kept))
        index = torch.tensor(kept, device=self.device)
        for target, source in zip(_tensors(self.model), tensors, strict=True):
            target.copy_(source[index])
        for target, source in zip(self.optimizer.state(), states, strict=True):
            target.copy_(source[index])
        self.slots, self.nodes = [slots[i] for i in kept], [part[index] for part in nodes]

    def epoch(self) -> None:
        """One step of every replicate, then its accuracies with the parameters after the step."""
        with leaving_torch_one_thread():
            self._epoch()

    def _epoch(self) -> None:
        train, val, test = self.nodes
        self.model.train()
        losses, _ = cross_entropy(self.model(self.x, self.S), self.y, train)
        losses.sum().backward()  # the sum's gradient is 1 for each: replicates do not mix
        self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            scores = self.model(self.x, self.S)  # (B, N, classes)
            right = [engine(scores).correct(scores, self.y, part).tolist() for part in (val, test)]
        for i, (slot, r_val, r_test) in enumerate(zip(self.slots, *right, strict=True)):
            improved = slot.note(100 * r_val / val.shape[1], 100 * r_test / test.shape[1])
            if improved and self.keep_best:
                slot.best = [tensor[i].detach().clone() for tensor in _tensors(self.model)]

    def trained(self, slot: int) -> SpectralModel:
        """The model of a slot at its best epoch, on its own and in evaluation mode."""
        done = self.slots[slot]
        model = new_model(done.job, self.x.shape[-1], self.classes).to(self.device, self.dtype)
        with torch.no_grad():
            for target, source in zip(_tensors(model), done.best, strict=True):
                target.copy_(source)
        return model.eval()


def train_jobs(
    graph: Graph,
    jobs: Iterable[Job],
    *,
    size: int = 1,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    keep_best: bool = False,
    on_epoch: Callable[[list[Slot]], None] | None = None,
) -> Iterator[tuple[Run, SpectralModel | None]]:
    """Train jobs of one shape, `size` of them at a time, and yield each as it ends.

    A replicate that stops leaves, and a waiting one takes its slot at once; when none waits, the population shrinks.
    """
    waiting = deque(jobs)
    if not waiting:
        return
    population = Population(
        graph, waiting[0].config, min(size, len(waiting)), device=device, dtype=dtype, keep_best=keep_best
    )
    for slot in range(min(size, len(waiting))):
        population.start(slot, waiting.popleft())
    while population.slots:
        population.epoch()
        if on_epoch is not None:
            on_epoch(population.slots)
        done = [i for i, slot in enumerate(population.slots) if slot.finished]
        left = set(done)
        for i in done:
            yield population.slots[i].run, population.trained(i) if keep_best else None
            if waiting:
                population.start(i, waiting.popleft())
                left.remove(i)
        if left:
            kept = [i for i in range(len(population.slots)) if i not in left]
            if not kept:
                return
            population.keep(kept)
