"""Replicates that train together: what becomes of each is what would become of it alone."""

import functools
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from codesgc import DECOMPOSITIONS, MODELS, Config, Graph, SpectralModel
from codesgc.models import rates
from codesgc.training import Job, Run, Split, random_split, train_jobs
from codesgc.training.inputs import Inputs, shape
from codesgc.training.population import Population, Slot, new_model

CONFIG = Config(order=3, epochs=25, patience=8, hidden=7, options={"rank": 5}, lr={"default": 0.05})


def community_graph(nodes: int = 61, sparse: bool = True, classes: int = 3) -> Graph:
    """Neighbours are mostly of one class, features mostly noise: something to learn, with mistakes to be made."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % classes
    chance = torch.where(y[:, None] == y, 0.12, 0.04)
    edges = (torch.rand(nodes, nodes, generator=g) < chance).triu(1).nonzero().T
    x = (torch.rand(nodes, 33, generator=g) < 0.15 + 0.15 * (torch.arange(33) % classes == y[:, None])).float()
    return Graph(edges, x=x.to_sparse_csr() if sparse else x, y=y, to_undirected=True)


def job(graph: Graph, seed: int, **changes: object) -> Job:
    assert graph.y is not None
    return Job(CONFIG.updated(changes), seed, random_split(graph.y, seed))


def various(graph: Graph) -> list[Job]:
    """Five jobs that differ in all that may differ within a population, and stop at different epochs."""
    return [
        job(graph, 0, a=0.5, b=-0.25, dropout={"input": 0.5, "C": 0.2}),
        job(graph, 1, a=-0.75, b=1.5, dropout={"Z": 0.7}, lr={"default": 0.01, "M": 0.1}),
        job(graph, 2, dropout=0.3, weight_decay={"default": 0.01, "P": 0.0}, patience=2),
        job(graph, 3, a=0.0, dropout={"input": 0.9, "C": 0.9, "Z": 0.9}, patience=0),
        job(graph, 4, b=0.0, dropout=0.1, lr=0.2, epochs=7),
    ]


def runs_of(graph: Graph, jobs: list[Job], size: int, **options: object) -> dict[int, tuple[Run, list[Tensor]]]:
    """Each job's run and final parameters, by seed."""
    done = train_jobs(graph, jobs, size=size, keep_best=True, **options)
    return {run.seed: (run, [p.detach() for p in model.parameters()]) for _, run, model, _ in done}


# --- together and alone


@pytest.mark.parametrize("sparse", [True, False])
def test_a_job_ends_the_same_in_a_population_of_any_size_and_order(sparse: bool) -> None:
    """To the last bit; slots are taken over when a job stops, and the population shrinks at the end."""
    graph = community_graph(sparse=sparse)
    jobs = [*various(graph), job(graph, 5, prior="validation"), job(graph, 6, prior="validation", dropout={"C": 0.5})]
    alone = runs_of(graph, jobs, 1)
    assert len({run.epochs for run, _ in alone.values()}) >= 3
    for size, order in ((2, [*range(7)]), (3, [4, 2, 6, 0, 3, 5, 1]), (9, [1, 0, 3, 6, 2, 4, 5])):
        together = runs_of(graph, [jobs[i] for i in order], size)
        for seed, (run, parameters) in alone.items():
            assert together[seed][0] == run
            for p, q in zip(parameters, together[seed][1], strict=True):
                assert torch.equal(p, q), f"seed {seed} in a population of {size}"


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_neighbours_dropout_does_not_change_a_job_without(rate: float) -> None:
    graph = community_graph()
    jobs = [job(graph, 0), job(graph, 1, dropout={"C": rate, "Z": rate})]
    alone, together = runs_of(graph, jobs[:1], 1), runs_of(graph, jobs, 2)
    assert alone[0][0] == together[0][0]
    assert all(torch.equal(p, q) for p, q in zip(alone[0][1], together[0][1], strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_in_a_population_as_alone(name: str) -> None:
    graph, config = community_graph(), MODELS[name]
    config = config.updated({"order": min(3, config.order), "hidden": 7, "epochs": 6, "patience": 3})
    assert graph.y is not None
    jobs = [Job(config, seed, random_split(graph.y, seed)) for seed in range(3)]
    alone, together = (runs_of(graph, jobs, size) for size in (1, 3))
    for seed in range(3):
        assert alone[seed][0] == together[seed][0]
        for p, q in zip(alone[seed][1], together[seed][1], strict=True):
            assert torch.equal(p, q)
        assert any(not torch.equal(p, q) for p, q in zip(alone[seed][1], _start(graph, jobs[seed]), strict=True))


MIXED = [
    {},
    {"basis": "chebyshev", "options": {"rank": 5}, "dropout": 0.4},
    {"basis": "bernstein", "options": {"rank": 5}},
    {"options": {"rank": 3}, "dropout": {"C": 0.5}},
    {"decomposition": "tucker", "options": {"rank": 2, "rank_in": 3, "rank_out": 4}, "dropout": {"Z": 0.5}},
    {"decomposition": "tucker", "options": {"rank": 2, "rank_in": 3, "rank_out": 4}, "basis": "legendre", "epochs": 4},
    {"architecture": "hybrid", "matrix": "laplacian", "basis": "favard", "options": {"rank": 5}, "order": 2},
    {"decomposition": "gpr", "matrix": "gcn", "basis": "monomial", "options": {"alpha": 0.2}, "patience": 1},
    {"basis": "chebyshev2", "order": 1, "options": {"rank": 5}},  # 1 and 2 t: a multiple of Chebyshev's polynomials
    {"basis": "jacobi", "order": 1, "options": {"rank": 5, "a": 0.3, "b": 0.7}},
    {"decomposition": "tucker", "options": {"rank": 2, "rank_in": 3, "rank_out": 4}, "dropout": {"G": 0.5}},
    {"decomposition": "tucker", "options": {"rank": 2, "rank_in": 3, "rank_out": 4}, "dropout": 0.0},
    {"decomposition": "tucker2", "options": {"rank": 9, "rank_out": 2}, "dropout": {"Z": 0.5}},
]


@functools.cache
def mixed_alone(seed: int) -> tuple[Run, list[Tensor]]:
    graph = community_graph()
    return runs_of(graph, [job(graph, seed, **MIXED[seed])], 1)[seed]


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(len(MIXED))), st.integers(1, 9), st.sampled_from([1, 2]), st.integers(1, len(MIXED)))
def test_bits_do_not_depend_on_neighbours_order_slots_or_threads(
    order: list[int], size: int, threads: int, count: int
) -> None:
    """Jobs of several shapes and bases, in any order, any number at once."""
    graph, before = community_graph(), torch.get_num_threads()
    alone = {seed: mixed_alone(seed) for seed in order[:count]}
    torch.set_num_threads(threads)
    try:
        together = runs_of(graph, [job(graph, seed, **MIXED[seed]) for seed in order[:count]], size)
    finally:
        torch.set_num_threads(before)
    for seed, (run, parameters) in alone.items():
        assert together[seed][0] == run
        assert all(torch.equal(p, q) for p, q in zip(parameters, together[seed][1], strict=True))


def test_who_drops_nothing_takes_another_route_than_who_does() -> None:
    """One kind for each order of computation, and no more."""
    inputs = Inputs(community_graph())
    tucker = CONFIG.updated({"decomposition": "tucker", "options": {"rank": 9}})
    rates = [{"G": 0.5}, {"G": 0.1, "Z": 0.3}, {"G": 0.0, "Z": 0.3}, {"Z": 0.9}]
    masked, both, folded, again = (inputs.kind(tucker.updated({"dropout": rate})) for rate in rates)
    assert masked == both and folded == again and masked != folded


def test_penalties_hold_back_their_own_replicate() -> None:
    """To the bits that it has alone, beside others with other penalties, and beside one without any."""
    graph = community_graph()
    jobs = [job(graph, 0), job(graph, 1, ridge=0.1), job(graph, 2, smoothness=0.5), job(graph, 3, ridge=0.01)]
    together = runs_of(graph, jobs, len(jobs))
    for one in jobs:
        ((seed, (run, parameters)),) = runs_of(graph, [one], 1).items()
        assert together[seed][0] == run
        assert all(torch.equal(p, q) for p, q in zip(parameters, together[seed][1], strict=True))

    def size(ridge: float) -> float:
        ((_, _, model, _),) = train_jobs(graph, [job(graph, 0, ridge=ridge, patience=50)], keep_best=True)
        return model.layers[0].coefficients().norm().item()

    assert size(0.1) < size(0.01) < size(0.0)


def test_replicates_with_different_bases_form_one_population() -> None:
    graph, sizes = community_graph(), []
    jobs = [job(graph, 0), job(graph, 1, basis="chebyshev", options={"rank": 5})]
    list(train_jobs(graph, jobs, size=2, on_epoch=lambda slots: sizes.append(len(slots))))
    assert shape(jobs[0].config) == shape(jobs[1].config) and sizes[0] == 2


def test_a_job_is_asked_for_when_a_place_is_free() -> None:
    graph, asked = community_graph(), []

    def jobs() -> Iterator[Job]:
        for it in various(graph):
            asked.append(it.seed)
            yield it

    ended = 0
    for done in train_jobs(graph, jobs(), size=2):
        ended += 1
        assert len(asked) <= ended + 1
        assert done.job.seed in asked
    assert (ended, asked) == (5, [0, 1, 2, 3, 4])


def test_a_stopped_slot_ends_after_its_epoch() -> None:
    graph = community_graph()

    def stop(slots: list[Slot]) -> None:
        for slot in slots:
            assert slot.latest is not None and slot.latest.val <= slot.run.val_accuracy
            slot.stopped = slot.job.seed == 0 and slot.run.epochs == 2

    ended = {done.job.seed: done.run.epochs for done in train_jobs(graph, various(graph), size=3, on_epoch=stop)}
    assert ended[0] == 2 and ended[4] == 7


def _start(graph: Graph, job: Job) -> list[Tensor]:
    return list(new_model(job, graph.num_features, graph.num_classes).parameters())


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_low_orders_train(decomposition: str, order: int) -> None:
    train_two_epochs(Config(decomposition=decomposition, order=1 if decomposition == "gcn" else order, epochs=2))


def test_a_parameter_without_a_say_stays_where_it_is() -> None:
    """gamma of a Favard basis of order 0 has no gradient."""
    train_two_epochs(Config(basis="favard", order=0, epochs=2))


def train_two_epochs(config: Config) -> None:
    graph = community_graph(21)
    assert graph.y is not None
    ((_, run, *_),) = train_jobs(graph, [Job(config, 0, random_split(graph.y, 0))])
    assert run.epochs == 2


# --- one job, written out with torch's own optimizer and loss


@pytest.mark.parametrize("prior", ["training", "validation"])
def test_a_population_of_one_is_a_plain_training_loop(prior: str) -> None:
    """Cross-entropy on the training nodes, torch.optim.Adam with the groups' rates, evaluation after each step."""
    graph = community_graph().to(dtype=torch.float64)
    numbers = {"lr": {"default": 0.05, "M": 0.01, "P": 0.002}, "weight_decay": {"C": 0.01, "M": 0.002}}
    it = job(graph, 5, dropout={"input": 0.4, "C": 0.2, "Z": 0.3}, prior=prior, **numbers)
    model = new_model(it, graph.num_features, graph.num_classes).double()
    optimizer = torch.optim.Adam(
        [
            {"params": ps, "lr": rates(it.config, name)[0], "weight_decay": rates(it.config, name)[1]}
            for name, ps in model.groups().items()
        ]
    )
    expected, best = Run(5), None
    split, x, y = it.split, graph.x, graph.y
    for epoch in range(1, it.config.epochs + 1):
        model.train()
        optimizer.zero_grad()
        scores = model(x, graph)[split.train]
        if prior == "validation":  # log of the shares of the classes, each with one node more
            counts = torch.stack(
                [(y[part, None] == torch.arange(3)).sum(0).double() + 1 for part in (split.train, split.val)]
            )
            scores = scores + (counts / counts.sum(1, keepdim=True)).log().diff(dim=0).neg()
        F.cross_entropy(scores, y[split.train]).backward()
        optimizer.step()
        with torch.no_grad():
            right = (model.eval()(x, graph).argmax(1) == y).double() * 100
        val, test = float(right[split.val].mean()), float(right[split.test].mean())
        expected.epochs = epoch
        if val >= expected.val_accuracy:
            expected.val_accuracy, expected.test_accuracy, expected.best_epoch = val, test, epoch
            best = [p.detach().clone() for p in model.parameters()]
        elif epoch - expected.best_epoch > it.config.patience:
            break
    ((_, run, trained, _),) = train_jobs(graph, [it], dtype=torch.float64, keep_best=True)
    assert (run.seed, run.best_epoch, run.epochs) == (5, expected.best_epoch, expected.epochs)
    assert run.val_accuracy == pytest.approx(expected.val_accuracy, abs=1e-9)
    assert run.test_accuracy == pytest.approx(expected.test_accuracy, abs=1e-9)
    for p, q in zip(trained.parameters(), best, strict=True):
        torch.testing.assert_close(p.detach(), q, rtol=1e-6, atol=1e-8)


def test_a_trained_model_scores_what_its_run_says() -> None:
    graph = community_graph()
    for _, run, model, _ in train_jobs(graph, various(graph), size=3, keep_best=True):
        assert isinstance(model, SpectralModel) and not model.training
        split = random_split(graph.y, run.seed)
        right = (model(graph.x, graph).argmax(1) == graph.y).double() * 100
        assert float(right[split.test].mean()) == pytest.approx(run.test_accuracy)
        assert float(right[split.val].mean()) == pytest.approx(run.val_accuracy)


def test_models_are_kept_only_if_asked() -> None:
    graph = community_graph()
    assert [done.model for done in train_jobs(graph, various(graph)[:2])] == [None, None]


def test_a_start_is_a_function_of_the_seed_alone() -> None:
    graph = community_graph()
    it = job(graph, 3)
    first = _start(graph, it)
    torch.rand(9)
    assert all(torch.equal(p, q) for p, q in zip(first, _start(graph, it), strict=True))
    assert not torch.equal(first[0], _start(graph, job(graph, 4))[0])


# --- slots


def test_a_new_job_in_a_slot_starts_from_nothing_and_leaves_its_neighbours() -> None:
    graph = community_graph()
    jobs = various(graph)
    population = Population(Inputs(graph), CONFIG, 2)
    population.start(0, jobs[0])
    population.start(1, jobs[1])
    for _ in range(3):
        population.epoch()
    neighbour = [p[0].detach().clone() for p in population.model.parameters()]
    population.start(1, jobs[2])
    assert all(torch.equal(p[0], q) for p, q in zip(population.model.parameters(), neighbour, strict=True))
    for p, q in zip(population.model.parameters(), _start(graph, jobs[2]), strict=True):
        assert torch.equal(p[1], q)
    assert population.optimizer.step_count.tolist() == [3, 0]
    assert not any(m[1].any() for m in (*population.optimizer.m, *population.optimizer.v))
    drops = [b[1] for name, b in population.model.named_buffers() if name.endswith("step")]
    assert drops and not any(drops)
    assert population.slots[1].run == Run(2)


def test_shrinking_keeps_the_jobs_that_go_on() -> None:
    graph = community_graph()
    jobs = various(graph)
    population = Population(Inputs(graph), CONFIG, 3)
    for slot in range(3):
        population.start(slot, jobs[slot])
    population.epoch()
    kept = [p[[0, 2]].detach().clone() for p in (*population.model.parameters(), *population.model.buffers())]
    moments = [m[[0, 2]].clone() for m in population.optimizer.m]
    population.keep([0, 2])
    now = (*population.model.parameters(), *population.model.buffers())
    assert all(torch.equal(p, q) for p, q in zip(now, kept, strict=True))
    assert all(torch.equal(p, q) for p, q in zip(population.optimizer.m, moments, strict=True))
    assert [slot.job for slot in population.slots] == [jobs[0], jobs[2]]
    population.epoch()
    assert [slot.run.epochs for slot in population.slots] == [2, 2]


# --- early stopping


def script(patience: int, epochs: int, accuracies: list[float]) -> Run:
    """A slot that is told these validation accuracies until it is finished; test accuracies are the epochs' numbers."""
    nodes = torch.zeros(1, dtype=torch.int64)
    slot = Slot(Job(Config(patience=patience, epochs=epochs), 0, Split(nodes, nodes, nodes)), Run(0))
    for epoch, accuracy in enumerate(accuracies, start=1):
        assert not slot.finished
        slot.note(accuracy, epoch)
        if slot.finished:
            break
    return slot.run


def test_ties_keep_the_later_epoch() -> None:
    assert script(10, 5, [50, 60, 60, 55, 60]) == Run(0, 60, 5, 5, 5)
    assert script(10, 4, [50, 60, 60, 55]) == Run(0, 60, 3, 3, 4)


def test_training_stops_when_more_epochs_than_patience_were_worse() -> None:
    """Two worse epochs are patience, the third is one too many."""
    assert script(2, 100, [60, 50, 50, 50, 99]) == Run(0, 60, 1, 1, 4)
    assert script(2, 100, [60, 50, 50, 60, 50, 50, 50, 99]) == Run(0, 60, 4, 4, 7)
    assert script(0, 100, [60, 60, 59, 99]) == Run(0, 60, 2, 2, 3)


def test_training_stops_at_the_last_epoch() -> None:
    assert script(200, 3, [10, 20, 15, 99]) == Run(0, 20, 2, 2, 3)


def test_an_accuracy_of_zero_is_an_accuracy() -> None:
    assert script(2, 3, [0, 0, 0]) == Run(0, 0, 3, 3, 3)


def test_note_says_whether_the_epoch_is_kept() -> None:
    nodes = torch.zeros(1, dtype=torch.int64)
    slot = Slot(Job(Config(), 0, Split(nodes, nodes, nodes)), Run(0))
    assert [slot.note(a, 0) for a in (50, 49, 50, 51)] == [True, False, True, True]
