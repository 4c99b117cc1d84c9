"""The graphs of the paper by name, and where they come from; importing this does not import torch.

>>> graph = load_dataset("cora")
>>> graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes
(2708, 5278, 1433, 7)
"""

from codesgc.datasets.download import DownloadError
from codesgc.datasets.load import load_dataset
from codesgc.datasets.registry import DATASETS, Dataset

__all__ = ["DATASETS", "Dataset", "DownloadError", "load_dataset"]
