"""`train`: what it learns, what it reports, and how it stops."""

import json
import signal
import threading
from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings

from codesgc import MODELS, Config, Graph, InputError, Result, SpectralModel, train
from codesgc.training import PROTOCOLS, Run, bootstrap_interval, random_split
from codesgc.training.signals import held_signals
from codesgc.zoo.config import ARCHITECTURES

CONFIG = Config(order=3, epochs=30, patience=20, options={"rank": 8}, lr={"default": 0.05}, dropout={"default": 0.2})


def community_graph(nodes: int = 90, classes: int = 3, unlabelled: int = 0, name: str | None = None) -> Graph:
    """Neighbours are mostly of one class; a feature says little about it. Unlabelled nodes have features of a class."""
    g = torch.Generator().manual_seed(1)
    y = torch.arange(nodes) % classes
    chance = torch.where(y[:, None] == y, 0.15, 0.02)
    edges = (torch.rand(nodes, nodes, generator=g) < chance).triu(1).nonzero().T
    x = (torch.rand(nodes, 24, generator=g) < 0.1 + 0.2 * (torch.arange(24) % classes == y[:, None])).float() * 3
    y[nodes - unlabelled :] = -1
    return Graph(edges, x=x.to_sparse_csr(), y=y, to_undirected=True, name=name)


@pytest.fixture(scope="module")
def result() -> Result:
    return train(community_graph(name="blocks"), CONFIG, runs=3, keep_models=True)


# --- learning


@pytest.mark.parametrize("model", ["L-CP", "H-Tucker", "GCN", "JacobiConv"])
def test_models_learn(model: str) -> None:
    """Chance is 33 %; the communities are almost separate."""
    config = MODELS[model].updated({"epochs": 60, "lr": 0.02, "order": min(3, MODELS[model].order)})
    assert train(community_graph(), config, runs=2, population=2).test_mean > 70


def test_features_are_divided_by_the_sums_of_their_rows(result: Result) -> None:
    graph = community_graph()
    scaled = Graph(graph.edge_index, x=graph.dense_features() * torch.arange(1, 91)[:, None], y=graph.y)
    plain = Graph(graph.edge_index, x=graph.dense_features(), y=graph.y)
    runs = [train(g, CONFIG.updated({"epochs": 5}), runs=1).runs for g in (plain, scaled)]
    assert runs[0] == runs[1]


def test_unlabelled_nodes_change_nothing_by_their_labels() -> None:
    """They are in no part of any split: not trained on, not scored on."""
    graph = community_graph(unlabelled=20)
    result = train(graph, CONFIG, runs=1, keep_models=True)
    split = random_split(graph.y, 0)
    assert not {*range(70, 90)} & {*torch.cat([split.train, split.val, split.test]).tolist()}
    # the score has the labelled test nodes alone as its denominator
    right = result.runs[0].test_accuracy / 100 * len(split.test)
    assert right == pytest.approx(round(right)) and len(split.test) == 14
    assert result.models[0].convs[0].out_channels == 3


# --- results


def test_the_same_call_gives_the_same_result(result: Result) -> None:
    torch.manual_seed(123)
    again = train(community_graph(name="blocks"), CONFIG, runs=3)
    assert again.runs == result.runs
    assert train(community_graph(), CONFIG, runs=3, population=3).runs == result.runs


def test_runs_have_consecutive_seeds_and_do_not_depend_on_how_many_there_are(result: Result) -> None:
    assert [run.seed for run in result.runs] == [0, 1, 2]
    assert train(community_graph(), CONFIG, runs=1, seed=2).runs == result.runs[2:]


def test_training_leaves_the_callers_graph_and_settings_alone() -> None:
    graph, copy = community_graph(), community_graph()
    threads = torch.get_num_threads()
    train(graph, CONFIG.updated({"epochs": 2}), runs=1)
    assert graph == copy
    assert torch.get_num_threads() == threads and torch.get_default_dtype() == torch.float32


def test_kept_models_score_what_their_runs_say(result: Result) -> None:
    graph = community_graph().row_normalised()
    assert len(result.models) == 3
    for run, model in zip(result.runs, result.models, strict=True):
        split = random_split(graph.y, run.seed)
        right = (model(graph.x, graph).argmax(1) == graph.y).double() * 100
        assert float(right[split.test].mean()) == pytest.approx(run.test_accuracy)
        assert float(right[split.val].mean()) == pytest.approx(run.val_accuracy)
    assert train(community_graph(), CONFIG.updated({"epochs": 1}), runs=1).models == ()


def test_runs_stop_as_the_config_says(result: Result) -> None:
    for run in result.runs:
        assert 1 <= run.best_epoch <= run.epochs <= CONFIG.epochs
        assert run.epochs == CONFIG.epochs or run.epochs - run.best_epoch == CONFIG.patience + 1


def test_summary_is_mean_and_interval_of_the_runs(result: Result) -> None:
    accuracies = [run.test_accuracy for run in result.runs]
    assert result.test_mean == pytest.approx(np.mean(accuracies))
    assert result.test_ci95 == bootstrap_interval(accuracies)


def test_result_is_plain_data(result: Result) -> None:
    data = json.loads(json.dumps(result.to_dict()))
    assert (data["dataset"], data["model"], data["protocol"], data["interrupted"]) == ("blocks", "L-CP", "paper", False)
    assert Config.from_dict(data["config"]) == CONFIG
    assert tuple(Run(**run) for run in data["runs"]) == result.runs
    assert data["test_mean"] == result.test_mean and data["test_ci95"] == result.test_ci95
    assert data["versions"]["torch"] == torch.__version__ and data["seconds"] > 0


# --- protocols


def test_strict_reports_on_splits_that_no_search_has_seen() -> None:
    """Hyper-parameters are searched on seeds 0 to 2; "paper" reports on them, too."""
    graph, config = community_graph(), CONFIG.updated({"epochs": 3})
    paper, strict = (train(graph, config, runs=2, protocol=protocol) for protocol in ("paper", "strict"))
    assert [run.seed for run in paper.runs] == [0, 1]
    assert [run.seed for run in strict.runs] == [1000, 1001]
    assert set(PROTOCOLS) == {"paper", "strict"} and strict.protocol == "strict"
    assert train(graph, config, runs=2, seed=1000).runs == strict.runs


# --- progress and interruption


def test_progress_sees_every_epoch_with_finished_and_active_runs() -> None:
    seen: list[tuple[list[int], list[int]]] = []

    def note(finished: Sequence[Run], active: Sequence[Run]) -> None:
        seen.append(([run.seed for run in finished], [run.epochs for run in active]))

    train(community_graph(), CONFIG.updated({"epochs": 2}), runs=3, population=2, progress=note)
    assert seen == [([], [1, 1]), ([], [2, 2]), ([0, 1], [1]), ([0, 1], [2])]


@pytest.mark.parametrize("population", [1, 2])
def test_an_interruption_leaves_the_finished_runs(population: int, result: Result) -> None:
    def interrupt(finished: Sequence[Run], active: Sequence[Run]) -> None:
        if finished:
            raise KeyboardInterrupt

    stopped = train(community_graph(), CONFIG, runs=3, population=population, keep_models=True, progress=interrupt)
    assert stopped.interrupted and len(stopped.models) == len(stopped.runs)
    assert 1 <= len(stopped.runs) < 3
    assert all(run in result.runs for run in stopped.runs)
    assert stopped.to_dict()["interrupted"] is True


def test_an_interruption_before_the_first_run_is_one() -> None:
    def interrupt(finished: Sequence[Run], active: Sequence[Run]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(community_graph(), CONFIG, runs=3, progress=interrupt)


# --- bootstrap


@pytest.mark.parametrize("values", [[88.0, 89.5, 87.1, 90.2, 88.8, 88.1, 89.9, 86.5, 88.0, 91.0], [50.0, 90.0, 55.0]])
def test_interval_is_that_of_scipys_bootstrap(values: list[float]) -> None:
    low, high = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    expected = max(np.mean(values) - low, high - np.mean(values))
    # a percentile of 1000 resamples varies by some per cent; the larger of two sides is a little more
    assert bootstrap_interval(values) == pytest.approx(expected, rel=0.12)
    assert bootstrap_interval(values, resamples=20000) == pytest.approx(expected, rel=0.03)


def test_interval_takes_the_larger_side() -> None:
    """One low outlier: the interval reaches further down than up."""
    values = [90.0] * 9 + [0.0]
    means = np.array(values)[np.random.default_rng(0).integers(10, size=(1000, 10))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    assert 81 - low > high - 81
    assert bootstrap_interval(values) == pytest.approx(81 - low)


def test_interval_of_equal_values_is_0_and_always_the_same() -> None:
    assert bootstrap_interval([70.0] * 5) == 0 and bootstrap_interval([70.0]) == 0
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - that the global state is untouched
    assert bootstrap_interval([1.0, 2.0, 4.0]) == bootstrap_interval([1.0, 2.0, 4.0])
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


# --- configurations


NUMBERS = st.dictionaries(st.sampled_from(["default", "C", "M", "P"]), st.floats(0, 1), max_size=3)
VALUES = st.one_of(st.integers(-5, 5), st.floats(-5, 5), st.text(max_size=3), st.booleans(), st.none())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.text(max_size=8),
            "architecture": st.sampled_from(ARCHITECTURES),
            "basis": st.text(max_size=8),
            "order": st.integers(0, 30),
            "layers": st.integers(1, 5),
            "bias": st.booleans(),
            "options": st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
            "dropout": NUMBERS,
            "lr": NUMBERS,
            "weight_decay": NUMBERS,
            "epochs": st.integers(1, 10**6),
            "patience": st.integers(0, 10**6),
        },
    )
)
def test_configs_survive_json(fields: dict[str, object]) -> None:
    config = Config(**fields)
    restored = Config.from_dict(json.loads(json.dumps(config.to_dict())))
    assert restored == config
    assert all(getattr(config, name) == value for name, value in fields.items())
    assert eval(repr(config), {"Config": Config}) == config


def test_changes_reach_fields_entries_and_options() -> None:
    config = Config(options={"a": 1.0}, lr={"default": 0.01, "C": 0.5})
    changed = config.updated({"order": 4, "lr.M": 0.2, "b": 0.5, "dropout": 0.3, "weight_decay.C": 1e-3})
    assert changed.order == 4 and changed.options == {"a": 1.0, "b": 0.5}
    assert changed.lr == {"default": 0.01, "C": 0.5, "M": 0.2}
    assert changed.dropout == {"default": 0.3} and changed.weight_decay == {"C": 1e-3}
    assert config == Config(options={"a": 1.0}, lr={"default": 0.01, "C": 0.5})  # the first is as it was


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"order": -1}, "order -1: expected a whole number >= 0"),
        ({"order": 3.0}, "order 3.0: expected a whole number"),
        ({"epochs": 0}, "epochs 0: expected a whole number >= 1"),
        ({"patience": True}, "patience True: expected a whole number"),
        ({"bias": 1}, "bias 1: expected true or false"),
        ({"model": 3}, "model 3: expected a name"),
        ({"lr": 0.1}, "lr 0.1: expected a mapping of names to numbers"),
        ({"lr": {"C": "fast"}}, "lr.C 'fast': expected a number"),
        ({"lr": {"C": -0.1}}, "lr.C -0.1: expected a number >= 0"),
        ({"lr": {"C": float("nan")}}, "lr.C nan: expected a number"),
        ({"lr": {"C": float("inf")}}, "lr.C inf: expected a number >= 0"),
        ({"dropout": {"C": 1.1}}, "dropout.C 1.1: expected a number >= 0 and <= 1"),
        ({"options": 3}, "options 3: expected a mapping"),
        ({"architecture": "linea"}, "architecture 'linea' is unknown: .* did you mean 'linear'"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Config(**fields)


def test_unknown_keys_name_the_nearest() -> None:
    with pytest.raises(InputError, match=r"configuration key 'epoch' is unknown: .* did you mean 'epochs'"):
        Config.from_dict({"epoch": 3})
    with pytest.raises(InputError, match=r"'order.C': 'order' has no entries; expected order=VALUE"):
        Config().updated({"order.C": 3})


# --- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"protocol": "strickt"}, "protocol 'strickt' is unknown: .* did you mean 'strict'"),
        ({"runs": 0}, "runs 0: expected a whole number >= 1"),
        ({"population": 0}, "population 0: expected a whole number >= 1"),
        ({"model": "L-CQ"}, "model 'L-CQ' is unknown: .* did you mean 'L-CP'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(community_graph(), **arguments)


def test_graphs_without_features_or_labels_are_refused() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(InputError, match="the graph has no features: expected x"):
        train(Graph(edges, y=[0, 1]))
    with pytest.raises(InputError, match="the graph has no labels: expected y"):
        train(Graph(edges, x=torch.eye(2)))
    with pytest.raises(InputError, match="the graph has no labels: expected y"):
        train(Graph(edges, x=torch.eye(2), y=[-1, -1]))
    with pytest.raises(InputError, match="expected more labels"):
        train(Graph(edges, x=torch.eye(2), y=[0, 1]))


class Finalised:
    """Its end is a place where Python swallows exceptions."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interruption_is_not_lost_where_exceptions_are() -> None:
    def progress(done: Sequence[Run], active: Sequence[Run]) -> None:
        if len(done) == 1:
            Finalised()

    result = train(community_graph(), CONFIG, runs=50, population=1, progress=progress)
    assert result.interrupted and len(result.runs) == 1


def test_a_second_interruption_does_not_wait() -> None:
    with held_signals(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_that_are_ignored_or_come_to_a_thread_are_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_signals() as deliver:
            signal.raise_signal(signal.SIGINT)
            deliver()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    seen: list[bool] = []
    with held_signals():
        held = signal.getsignal(signal.SIGINT)
        thread = threading.Thread(target=lambda: seen.append(_enters(held)))
        thread.start()
        thread.join()
    assert seen == [True]


def _enters(handler: object) -> bool:
    with held_signals():
        return signal.getsignal(signal.SIGINT) is handler


# --- what a review found

GRAPH = Graph([range(29), range(1, 30)], x=torch.eye(30), y=[0, 1] * 15, to_undirected=True)


def test_labels_without_nodes_are_refused():
    """They would count among the classes, by which the protocol divides the training nodes."""
    graph = Graph([range(59), range(1, 60)], x=torch.eye(60), y=[1, 2] * 30, to_undirected=True)
    with pytest.raises(InputError, match=r"no node has label 0, and the largest one is 2: .*return_inverse=True"):
        train(graph, Config(epochs=2))


def test_features_that_want_a_gradient_are_trained_on_as_they_are():
    x = torch.eye(30).requires_grad_()
    graph = Graph([range(29), range(1, 30)], x=x, y=[0, 1] * 15, to_undirected=True)
    assert train(graph, Config(epochs=3), runs=2).runs == train(GRAPH, Config(epochs=3), runs=2).runs


def test_a_run_that_diverges_ends_and_is_named():
    graph = Graph([range(29), range(1, 30)], x=torch.eye(30), y=[0, 1] * 15, to_undirected=True)
    wild = train(graph, Config(epochs=50, lr={"default": 1e30}), runs=2)
    assert wild.diverged == (0, 1) and wild.to_dict()["diverged"] == [0, 1]
    assert all(run.epochs < 50 for run in wild.runs)
    tame = train(graph, Config(epochs=5), runs=2)
    assert tame.diverged == () and "diverged" not in tame.to_dict()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("cora",), TypeError, "graph is str: expected a Graph"),
        ((GRAPH, None), TypeError, "model is NoneType: expected the name of a model"),
        ((GRAPH, SpectralModel(4, 2, Config())), TypeError, "model is a SpectralModel.*pass model.config"),
    ],
)
def test_arguments_of_train_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        train(*arguments)


@pytest.mark.parametrize("value", [0, 1.5, "2", True])
@pytest.mark.parametrize("name", ["runs", "population"])
def test_numbers_of_runs_are_whole(name, value):
    with pytest.raises(InputError, match=f"{name} {value!r}: expected a whole number >= 1"):
        train(GRAPH, Config(epochs=1), **{name: value})


def test_what_does_not_fit_is_refused_before_it_is_made():
    with pytest.raises(InputError, match=r"C of decomposition 'cp' of shape \(4, 1000000000000\) takes .* GiB"):
        SpectralModel(4, 2, Config(options={"rank": 10**12}))
    with pytest.raises(InputError, match=r"the encoder's W of shape .* takes .* GiB"):
        SpectralModel(4, 2, Config(architecture="hybrid", hidden=10**12))
    with pytest.raises(InputError, match=r"the change of basis of order 1000000 of shape \(1000001, 1000001\) takes"):
        SpectralModel(4, 2, Config(order=10**6, decomposition="gpr"))(torch.ones(2, 4), [[0, 1], [1, 0]])
