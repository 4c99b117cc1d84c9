"""Random splits of the labelled nodes: 60 % training, 20 % validation, 20 % test."""

from dataclasses import dataclass

import torch
from torch import Tensor

from codesgc.errors import InputError


@dataclass(frozen=True)
class Split:
    """Indices of the nodes of each part, sorted."""

    train: Tensor
    val: Tensor
    test: Tensor


def _shuffled(items: Tensor, generator: torch.Generator) -> Tensor:
    return items[torch.randperm(len(items), generator=generator)]


def prior_shift(labels: Tensor, split: Split, classes: int) -> Tensor:
    """log pi_train(c) - log pi_val(c) for each class c, where pi counts the nodes of a part, each class once more.

    The protocol trains on as many nodes of each class as there are, so that among the rest the large classes are more
    frequent by far. A model that is trained with this added to its scores has scores for nodes as they are there.

    >>> split = Split(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([4]))
    >>> prior_shift(torch.tensor([0, 1, 1, 1, 1]), split, 2).exp()
    tensor([2.0000, 0.6667], dtype=torch.float64)
    """
    train, val = (
        torch.bincount(labels[part.cpu()].cpu(), minlength=classes).double() + 1 for part in (split.train, split.val)
    )
    return (train / train.sum()).log() - (val / val.sum()).log()


def random_split(labels: Tensor, seed: int) -> Split:
    """The split of the paper's protocol for one seed: class-balanced, not stratified.

    Of every class, in random order, the first round(0.6 N / classes) nodes train (all of a class that has fewer); the
    rest is shuffled, round(0.2 N) of it validate and the remainder tests. Unlabelled nodes (-1) are in no part. The
    permutations are torch's on the CPU from this seed, class by class and then the rest: the splits are those that the
    published code draws there.

    >>> split = random_split(torch.tensor([0, 1] * 10), seed=0)
    >>> len(split.train), len(split.val), len(split.test)
    (12, 4, 4)
    """
    generator = torch.Generator().manual_seed(seed)
    labels = labels.cpu()
    total, classes = int((labels >= 0).sum()), int(labels.max()) + 1 if len(labels) else 0
    each = round(0.6 * total / classes) if classes else 0
    train, rest = [], []
    for c in range(classes):
        nodes = _shuffled((labels == c).nonzero()[:, 0], generator)
        train.append(nodes[:each])
        rest.append(nodes[each:])
    others = _shuffled(torch.cat(rest), generator) if rest else torch.zeros(0, dtype=torch.int64)
    val = others[: round(0.2 * total)]
    split = Split(*(torch.cat(part).sort().values for part in (train or [others], [val], [others[len(val) :]])))
    for name, part in (("training", split.train), ("validation", split.val), ("test", split.test)):
        if len(part) == 0:
            raise InputError(
                f"a split of {total} labelled nodes in {classes} classes leaves no {name} nodes: expected more labels; "
                "label more nodes"
            )
    return split
