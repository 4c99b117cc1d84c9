"""Dropout with counter-based masks: no result depends on what else ran, and the backward pass recomputes the mask."""

from typing import Any

import torch
from torch import Tensor, nn

from codesgc.engine import masks, native, ops
from codesgc.engine.masks import keep_mask, stream_key
from codesgc.engine.sparse import CSR
from codesgc.errors import InputError

__all__ = ["Dropout", "dropout", "keep_mask", "stream_key"]


def dropout(x: Tensor, rate: Tensor | float, keys: Tensor, axes: int = 2) -> Tensor:
    """x with elements dropped at `rate`, the others divided by 1 - rate.

    The last `axes` axes of x are one replicate's elements; keys and rate broadcast over the leading ones, so that an x
    without replicate axes comes out with those of the keys.
    """
    rate = torch.as_tensor(rate, dtype=torch.float64, device=x.device)
    own = x.shape[x.dim() - axes :]
    batch = broadcast(x.shape[: x.dim() - axes], keys.shape, rate.shape)
    flat = x.reshape(1, -1) if x.dim() == axes else x.expand(*batch, *own).reshape(batch.numel(), -1)
    keys, rate = keys.expand(batch).reshape(-1), rate.expand(batch).reshape(-1)
    return ops.dropout(flat, keys, rate).reshape(*batch, *own)


def broadcast(*shapes: torch.Size) -> torch.Size:
    """The shape to which all broadcast; torch's own function takes its time also where they are equal."""
    first, *others = shapes
    return first if all(shape == first for shape in others) else torch.broadcast_shapes(*shapes)


def masks_for(drop: "Dropout | None", batch: torch.Size) -> tuple[torch.Size, tuple[Tensor | None, Tensor | None]]:
    """The replicate axes of a product that ends in a dropout, and its keys and rates, one for each replicate.

    Without dropout, or where it is not active: `batch`, None and None. With it, this is a step of the dropout.
    """
    if drop is None or not drop.active:
        return batch, (None, None)
    batch = broadcast(batch, drop.seed.shape)
    return batch, (drop.next_keys().expand(batch).reshape(-1), drop.rate.expand(batch).reshape(-1))


class Dropout(nn.Module):
    """Dropout of one tensor of a model, a separate stream for every replicate.

    `rate` is a number or a tensor with one rate a replicate. The seed is drawn in `reset_parameters`; each call in
    training mode is a step.

    >>> drop = Dropout(0.5); drop.reset_parameters(torch.Generator().manual_seed(0))
    >>> sorted(set(drop(torch.ones(50, 4)).flatten().tolist()))
    [0.0, 2.0]
    """

    seed: Tensor
    step: Tensor
    rate: Tensor
    _rated: tuple[Tensor, int, bool] | None = None  # a rate, its version, and whether any of it is above 0

    def __init__(self, rate: float | Tensor = 0.0, *, replicates: int | None = None) -> None:
        super().__init__()
        shape = () if replicates is None else (replicates,)
        try:
            value = torch.as_tensor(rate, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"dropout rate {rate!r}: expected numbers from 0 to 1") from None
        if not bool(((value >= 0) & (value <= 1)).all()):
            raise InputError(f"dropout rate {rate}: expected numbers from 0 to 1")
        self.register_buffer("rate", value.expand(shape).clone(), persistent=False)
        self.register_buffer("seed", torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("step", torch.zeros(shape, dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """A new seed, and step 0."""
        self.seed.copy_(torch.randint(2**62, self.seed.shape, generator=generator))
        self.step.zero_()

    @property
    def active(self) -> bool:
        """Whether a mask will be applied: in training, and some rate is not 0."""
        if not self.training:
            return False
        if self._rated is None or self._rated[0] is not self.rate or self._rated[1] != self.rate._version:
            self._rated = self.rate, self.rate._version, bool((self.rate > 0).any())
        return self._rated[2]

    def next_keys(self) -> Tensor:
        """The streams' keys of this step, which is then over."""
        own = native.kernels is not None and self.seed.device.type == "cpu" and not torch.compiler.is_compiling()
        keys: Tensor = (native if own else masks).stream_key(self.seed, self.step)
        self.step += 1
        return keys

    def forward(self, x: Any) -> Any:
        """x (..., N, C), or a CSR of features, whose stored values alone are dropped."""
        if not self.active:
            return x
        keys = self.next_keys()
        if isinstance(x, CSR):
            return x.dropped(keys, self.rate)
        return dropout(x, self.rate, keys)

    def extra_repr(self) -> str:
        rates = self.rate.unique()
        return f"rate={rates.item():g}" if rates.numel() == 1 else f"rate={rates.min():g}..{rates.max():g}"


class Dropouts(nn.ModuleDict):
    """Dropouts by the name of their place."""

    def __getitem__(self, key: str) -> Dropout:
        drop = super().__getitem__(key)
        assert isinstance(drop, Dropout)
        return drop
