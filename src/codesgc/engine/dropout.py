"""Dropout whose mask is a function of (seed, step, element) and of nothing else.

Sequential random numbers would tie a replicate's mask to its neighbours and to the thread count, and would have to be
stored for the backward pass. Here element e of a tensor takes the 16-bit half (e mod 2) of the word

    w(e // 2) = hash_32(e // 2; key),      key = mix_64(seed, step)

and is dropped where that number is below 2^16 rate. So the rate is a multiple of 2^-16, kept values are scaled by
exactly 1 / (1 - rate), and the backward pass recomputes the mask. Two elements a word, in memory order, is what a
vector unit compares in one instruction. Every tensor of every replicate has its own seed, drawn with the parameters.
"""

from typing import Any

import torch
from torch import Tensor, nn

from codesgc.engine.sparse import CSR
from codesgc.errors import InputError

_LEVELS = 1 << 16


def _signed(constant: int, bits: int) -> int:
    """The two's complement value of an unsigned constant: torch's integers are signed and wrap."""
    return constant - (1 << bits) if constant >> (bits - 1) else constant


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right."""
    width = torch.iinfo(x.dtype).bits
    return (x >> bits).bitwise_and_((1 << (width - bits)) - 1)


def _mix64(x: Tensor) -> Tensor:
    """The finaliser of splitmix64: every bit of the result depends on every bit of x."""
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9, 64)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB, 64)
    return x ^ _shift(x, 31)


def stream_key(seed: Tensor, step: Tensor) -> Tensor:
    """64-bit keys of the streams (seed, step), elementwise: int64 in, int64 out."""
    golden = _signed(0x9E3779B97F4A7C15, 64)
    return _mix64(_mix64(seed + golden) + (step + 1) * golden)


def _words(keys: Tensor, count: int) -> Tensor:
    """w(0), ..., w(count - 1) of each stream, int32 (..., count): a bijection of 32-bit words keyed twice."""
    low, high = keys.to(torch.int32)[..., None], _shift(keys, 32).to(torch.int32)[..., None]
    x = torch.arange(count, dtype=torch.int32, device=keys.device) * _signed(0x9E3779B9, 32) + low
    x.bitwise_xor_(_shift(x, 17)).mul_(_signed(0xED5AD4BB, 32))
    x.bitwise_xor_(_shift(x, 11)).bitwise_xor_(high).mul_(_signed(0xAC4C1B51, 32))
    x.bitwise_xor_(_shift(x, 15)).mul_(_signed(0x31848BAB, 32))
    return x.bitwise_xor_(_shift(x, 14))


def keep_mask(keys: Tensor, rate: Tensor | float, count: int) -> Tensor:
    """Which of `count` elements stay, bool (..., count), for keys (...) and rates that broadcast with them."""
    if count > 1 << 32:
        raise InputError(f"dropout on {count} elements: expected at most 2^32 a replicate; split the tensor")
    threshold = (torch.as_tensor(rate, dtype=torch.float64, device=keys.device) * _LEVELS).round().to(torch.int32)
    centred = (_words(keys, (count + 1) // 2) ^ _signed(0x80008000, 32)).view(
        torch.int16
    )  # unsigned order, signed type
    return centred[..., :count] >= (threshold[..., None] - _LEVELS // 2)


class _Drop(torch.autograd.Function):
    """Linear in x and its own adjoint."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keys: Tensor, rate: Tensor, axes: int) -> Tensor:
        ctx.save_for_backward(keys, rate)
        ctx.axes, ctx.shape = axes, x.shape
        element = x.shape[x.dim() - axes :]
        levels = (rate.double() * _LEVELS).round()
        scale = torch.where(levels < _LEVELS, _LEVELS / (_LEVELS - levels), 0.0).to(x.dtype)
        factor = keep_mask(keys, rate, element.numel()) * scale[..., None]
        return x * factor.reshape(*factor.shape[:-1], *element)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        keys, rate = ctx.saved_tensors
        return _Drop.apply(grads[0], keys, rate, ctx.axes).sum_to_size(ctx.shape), None, None, None


def dropout(x: Tensor, rate: Tensor | float, keys: Tensor, axes: int = 2) -> Tensor:
    """x with elements dropped at `rate`, the others divided by 1 - rate.

    The last `axes` axes of x are one replicate's elements; keys and rate broadcast over the leading ones, so that an x
    without replicate axes comes out with those of the keys.
    """
    rate = torch.as_tensor(rate, dtype=torch.float64, device=x.device)
    out: Tensor = _Drop.apply(x, keys, rate, axes)
    return out


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

    def __init__(self, rate: float | Tensor = 0.0, *, replicates: int | None = None) -> None:
        super().__init__()
        shape = () if replicates is None else (replicates,)
        value = torch.as_tensor(rate, dtype=torch.float64)
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
        return self.training and bool((self.rate > 0).any())

    def forward(self, x: Any) -> Any:
        """x (..., N, C), or a CSR of features, whose stored values alone are dropped."""
        if not self.active:
            return x
        keys = stream_key(self.seed, self.step)
        self.step += 1
        if isinstance(x, CSR):
            return x.with_values(dropout(x.values, self.rate, keys, axes=1))
        return dropout(x, self.rate, keys)

    def extra_repr(self) -> str:
        rates = self.rate.unique()
        return f"rate={rates.item():g}" if rates.numel() == 1 else f"rate={rates.min():g}..{rates.max():g}"
