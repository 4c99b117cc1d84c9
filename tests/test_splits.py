"""The splits of the paper's protocol: counts by class, who may be where, and that they do not change."""

import pytest
import torch
from torch import Tensor

from codesgc import InputError
from codesgc.training import Split, random_split
from codesgc.training.splits import prior_shift


def labels_of(*counts: int, seed: int = 0) -> Tensor:
    """That many nodes of each class, in random order."""
    y = torch.cat([torch.full((count,), c) for c, count in enumerate(counts)])
    return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))]


TEXAS = labels_of(33, 1, 18, 101, 30)  # 183 nodes in 5 classes, one of a single node


def parts(split: Split) -> list[Tensor]:
    return [split.train, split.val, split.test]


@pytest.mark.parametrize("y", [labels_of(100, 100, 100), TEXAS, labels_of(7, 8, 9, 200)], ids=["even", "texas", "odd"])
@pytest.mark.parametrize("seed", [0, 1, 1003])
def test_parts_cover_the_nodes_once(y: Tensor, seed: int) -> None:
    together = torch.cat(parts(random_split(y, seed)))
    assert torch.equal(together.sort().values, torch.arange(len(y)))


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_the_protocol(seed: int) -> None:
    """round(0.6 N / classes) of each class train, all of a class that has fewer; round(0.2 N) validate."""
    split = random_split(TEXAS, seed)
    each = round(0.6 * 183 / 5)
    assert each == 22
    assert torch.bincount(TEXAS[split.train], minlength=5).tolist() == [22, 1, 18, 22, 22]
    assert len(split.val) == round(0.2 * 183) == 37
    assert len(split.test) == 183 - 85 - 37


def test_even_classes_are_divided_60_20_20() -> None:
    split = random_split(labels_of(50, 50, 50, 50), 0)
    assert [len(p) for p in parts(split)] == [120, 40, 40]
    assert torch.bincount(labels_of(50, 50, 50, 50)[split.train]).tolist() == [30] * 4


@pytest.mark.parametrize("seed", range(10))
def test_a_class_with_one_node_always_trains(seed: int) -> None:
    assert int((TEXAS == 1).nonzero()) in random_split(TEXAS, seed).train.tolist()


def test_unlabelled_nodes_are_nowhere_and_count_for_nothing() -> None:
    y = labels_of(40, 40)
    mixed = torch.full((160,), -1)
    mixed[::2] = y
    split = random_split(mixed, 3)
    assert [len(p) for p in parts(split)] == [48, 16, 16]
    assert all((mixed[p] >= 0).all() for p in parts(split))
    # and the labelled ones are where they are without the others
    assert all(torch.equal(p, 2 * q) for p, q in zip(parts(split), parts(random_split(y, 3)), strict=True))


def test_nodes_are_drawn_at_random() -> None:
    """Over many seeds every node of a class trains about as often as every other."""
    y, seeds = labels_of(30, 30), 400
    trained = torch.zeros(60)
    validated = torch.zeros(60)
    for seed in range(seeds):
        split = random_split(y, seed)
        trained[split.train] += 1
        validated[split.val] += 1
    for counts, share in ((trained, 0.6), (validated, 0.2)):
        sigma = (seeds * share * (1 - share)) ** 0.5
        assert (counts - seeds * share).abs().max() < 4.5 * sigma


def test_seeds_give_different_splits_and_the_same_seed_the_same() -> None:
    splits = [random_split(TEXAS, seed) for seed in range(6)]
    keys = {tuple(split.train.tolist()) for split in splits}
    assert len(keys) == 6
    again = random_split(TEXAS, 2)
    assert all(torch.equal(p, q) for p, q in zip(parts(again), parts(splits[2]), strict=True))


def test_global_random_state_is_neither_used_nor_changed() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = random_split(TEXAS, 2)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert torch.equal(random_split(TEXAS, 2).val, first.val)


def test_a_split_is_pinned() -> None:
    """Published results name a seed: what it means must not change."""
    split = random_split(torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 2]), 7)
    assert [p.tolist() for p in parts(split)] == PINNED


PINNED = [[0, 1, 3, 9, 10, 13, 14, 15, 16, 17, 18, 19], [2, 4, 6, 7], [5, 8, 11, 12]]


@pytest.mark.parametrize(
    ("y", "part"),
    [(labels_of(1, 1), "validation"), (labels_of(3), "test"), (torch.full((5,), -1), "training")],
)
def test_too_few_labels_are_refused(y: Tensor, part: str) -> None:
    with pytest.raises(InputError, match=f"labelled nodes in . classes leaves no {part} nodes: expected more labels"):
        random_split(y, 0)


def test_no_nodes_are_refused() -> None:
    with pytest.raises(InputError, match="a split of 0 labelled nodes in 0 classes leaves no training nodes"):
        random_split(torch.zeros(0, dtype=torch.int64), 0)


def test_the_prior_is_that_of_the_nodes_that_validate() -> None:
    """Adding it to scores turns odds among the training nodes into odds among those that validate."""
    labels = torch.tensor([0] * 90 + [1] * 30)
    split = random_split(labels, 0)
    shift = prior_shift(labels, split, 2)
    train, val = ((torch.bincount(labels[part], minlength=2) + 1).double() for part in (split.train, split.val))
    torch.testing.assert_close((shift[0] - shift[1]).exp(), (train[0] / train[1]) / (val[0] / val[1]))
    assert shift[0] < 0 < shift[1]
