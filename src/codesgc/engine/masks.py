"""Counter-based random masks: a function of (seed, step, element) and of nothing else.

Sequential random numbers would tie a replicate's mask to its neighbours and to the thread count, and would have to be
stored for the backward pass. Here element e of a tensor takes the 16-bit half (e mod 2) of the word

    w(e // 2) = hash_32(e // 2; key),      key = mix_64(seed, step)

and is dropped where that number is below 2^16 rate. So the rate is a multiple of 2^-16, and kept values are scaled by
exactly 1 / (1 - rate). Two elements a word, in memory order, is what a vector unit compares in one instruction.
"""

import torch
from torch import Tensor

from codesgc.errors import InputError

LEVELS = 1 << 16


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
    threshold = thresholds(torch.as_tensor(rate, device=keys.device))
    centred = (_words(keys, (count + 1) // 2) ^ _signed(0x80008000, 32)).view(
        torch.int16
    )  # unsigned order, signed type
    return centred[..., :count] >= (threshold[..., None] - LEVELS // 2)


def thresholds(rate: Tensor) -> Tensor:
    """2^16 rate as whole numbers: 16-bit numbers below are dropped."""
    return (rate.double() * LEVELS).round().to(torch.int32)


def scales(rate: Tensor, dtype: torch.dtype) -> Tensor:
    """What kept values are multiplied by: 1 / (1 - rate), or 0 where everything is dropped."""
    levels = thresholds(rate).double()
    return torch.where(levels < LEVELS, LEVELS / (LEVELS - levels), 0.0).to(dtype)


def drop(x: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
    """x (B or 1, n) with the masks of keys (B,) and rates (B,), scaled: (B, n)."""
    return x * keep_mask(keys, rate, x.shape[-1]) * scales(rate, x.dtype)[:, None]
