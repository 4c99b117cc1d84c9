"""From a dataset's name to its graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from codesgc.datasets.registry import DATASETS
from codesgc.errors import unknown

if TYPE_CHECKING:
    from codesgc.graph import Graph


def load_dataset(name: str, *, folder: str | Path | None = None) -> Graph:
    """The graph called `name`: undirected, every edge once and of weight 1, no self-loops, sparse features.

    Features are as published; dividing rows by their sum is left to the trainer. Upper and lower case, '-' and '_'
    are the same in a name. Cora is part of the package and always read from there. The files of the others are
    looked for in `folder`, else in the folder that the environment variable CODESGC_DATA names, else in the user's
    cache folder, and are downloaded into it when missing or damaged (see `codesgc.datasets.download`).

    >>> load_dataset("Cora").num_nodes
    2708
    >>> load_dataset("coral")
    Traceback (most recent call last):
    codesgc.errors.InputError: dataset 'coral' is unknown: expected one of actor, ... did you mean 'cora'?
    """
    dataset = DATASETS.get(str(name).lower().replace("-", "_"))
    if dataset is None:
        raise unknown("dataset", name, DATASETS)
    # Imported here so that names can be listed without torch, NumPy and SciPy.
    from codesgc.datasets.download import fetch
    from codesgc.datasets.readers import READERS
    from codesgc.graph import Graph

    raw = READERS[dataset.reader]({file: fetch(file, folder) for file in dataset.files})
    return Graph(raw.edges, raw.features, raw.labels, to_undirected=True, name=dataset.name)
