"""How many replicates train at once: the more the better, as long as they take a quarter of the free memory.

On the paper's ten graphs the time of a replicate-epoch falls with their number as far as was tried (benchmarks/epoch.py
--population B): Python and waking threads are paid once for all, and S is read once.
"""

import torch

from codesgc.errors import InputError
from codesgc.graph import Graph
from codesgc.memory import free_bytes
from codesgc.models import SpectralModel
from codesgc.zoo import Config

MOST = 64  # beyond this the cost of a call is spread thinly enough
SHARE = 0.25  # of the free memory
KEPT = 10  # tensors of a replicate's widest size that are alive at its peak: activations, gradients, work space


def replicate_bytes(graph: Graph, config: Config) -> int:
    """An upper estimate of what one replicate needs in float32: its widest activation some times, its parameters."""
    assert graph.x is not None
    model = SpectralModel(graph.num_features, graph.num_classes, config)
    sparse = graph.x.layout != torch.strided
    widths = [] if sparse else [graph.num_features]
    widths += [] if model.encoder is None else [config.hidden]
    for conv in model.layers:
        parts = conv.decomposition
        core = getattr(parts, "rank", 0) * getattr(parts, "rank_out", 1)
        widths += [conv.out_channels, core, conv.in_channels if parts.per_channel else 0]
    widest = 4 * graph.num_nodes * max(widths)
    masks = graph.x.values().numel() // 8 if sparse else 0
    return KEPT * widest + masks + 5 * 4 * sum(p.numel() for p in model.parameters())


def population_size(graph: Graph, config: Config, jobs: int, asked: int | None = None) -> int:
    """The number asked for, or one that suits the graph and this machine; an error if it does not fit in memory."""
    needed = replicate_bytes(graph, config)
    free = free_bytes()
    size = asked
    if size is None:
        size = max(2, min(MOST, int(SHARE * free) // needed))
    size = min(size, jobs)
    if size * needed > free:
        fits = free // needed
        remedy = f"train {fits} at once (population={fits})" if fits else "take a smaller rank"
        raise InputError(
            f"{config.model} needs about {size * needed / 2**30:.1f} GiB for {size} runs at once, and "
            f"{free / 2**30:.1f} GiB are free: {remedy}"
        )
    return size
