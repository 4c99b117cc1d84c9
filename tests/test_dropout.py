"""Dropout's masks: the words of the counter-based generator, their statistics, and their use."""

import math

import pytest
import torch
from oracles import normal, sparse_features
from torch import Tensor

from codesgc import InputError
from codesgc.engine import CSR, Dropout
from codesgc.engine.dropout import dropout, keep_mask, stream_key

U32, U64 = (1 << 32) - 1, (1 << 64) - 1


# --- the generator once more, in Python's unbounded integers: the reference for every kernel


def mix64(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & U64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & U64
    return x ^ (x >> 31)


def key_of(seed: int, step: int) -> int:
    golden = 0x9E3779B97F4A7C15
    return mix64((mix64((seed + golden) & U64) + (step + 1) * golden) & U64)


def word(key: int, index: int) -> int:
    low, high = key & U32, key >> 32
    x = (index * 0x9E3779B9 + low) & U32
    x = ((x ^ (x >> 17)) * 0xED5AD4BB) & U32
    x = ((x ^ (x >> 11) ^ high) * 0xAC4C1B51) & U32
    x = ((x ^ (x >> 15)) * 0x31848BAB) & U32
    return x ^ (x >> 14)


def level(key: int, element: int) -> int:
    """The 16 bits that element is judged by."""
    return (word(key, element // 2) >> (16 * (element % 2))) & 0xFFFF


def kept(key: int, rate: float, count: int) -> list[bool]:
    return [level(key, e) >= round(rate * 65536) for e in range(count)]


def signed(key: int) -> int:
    return key - (1 << 64) if key >> 63 else key


def key_tensor(seed: int, step: int) -> Tensor:
    return stream_key(torch.tensor(seed), torch.tensor(step))


STREAMS = [(0, 0), (0, 1), (1, 0), (12345678901234567, 3), (2**62 - 1, 10**6)]


@pytest.mark.parametrize(("seed", "step"), STREAMS)
def test_keys_are_those_of_the_reference(seed: int, step: int) -> None:
    assert int(key_tensor(seed, step)) == signed(key_of(seed, step))


@pytest.mark.parametrize(("seed", "step"), STREAMS)
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_masks_are_those_of_the_reference(seed: int, step: int, count: int) -> None:
    for rate in (0.1, 0.5, 0.9):
        assert keep_mask(key_tensor(seed, step), rate, count).tolist() == kept(key_of(seed, step), rate, count)


def test_words_are_pinned() -> None:
    """The numbers themselves, so that neither the code nor the reference can drift: every published result has them."""
    assert key_of(0, 0) == PINNED_KEY
    assert [word(key_of(0, 0), i) for i in range(4)] == PINNED_WORDS
    assert keep_mask(key_tensor(0, 0), 0.5, 24).int().tolist() == PINNED_MASK


# made once by this file's reference and by the library, which agreed
PINNED_KEY = 0xA706DD2F4D197E6F
PINNED_WORDS = [0x3621C3D, 0x8E31F8BB, 0x29203E93, 0xA3C8AE45]
PINNED_MASK = [0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1]


def test_a_mask_does_not_depend_on_how_many_elements_there_are() -> None:
    key = key_tensor(3, 5)
    assert torch.equal(keep_mask(key, 0.4, 10**4)[:777], keep_mask(key, 0.4, 777))


def test_a_higher_rate_drops_more_of_the_same() -> None:
    key = key_tensor(3, 5)
    assert not (keep_mask(key, 0.6, 1000) & ~keep_mask(key, 0.3, 1000)).any()


def test_a_replicate_has_the_mask_of_its_own_seed_step_and_rate() -> None:
    seeds, steps, rates = torch.tensor([4, 9, 4]), torch.tensor([0, 7, 2]), torch.tensor([0.2, 0.5, 0.8])
    together = keep_mask(stream_key(seeds, steps), rates.double(), 501)
    for b in range(3):
        assert torch.equal(together[b], keep_mask(stream_key(seeds[b], steps[b]), float(rates[b].double()), 501))


# --- statistics, on fixed seeds: nothing here is random from run to run

COUNT = 1 << 16


def masks(seeds: Tensor, steps: Tensor, rate: float = 0.5, count: int = COUNT) -> Tensor:
    return keep_mask(stream_key(*torch.broadcast_tensors(seeds, steps)), rate, count).double()


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_the_share_dropped_is_the_rate(rate: float) -> None:
    share = 1 - masks(torch.arange(20), torch.tensor(0), rate).mean(1)
    sigma = math.sqrt(rate * (1 - rate) / COUNT)
    assert (share - rate).abs().max() < 4.5 * sigma  # 20 draws beyond 4.5 sigma: 1e-4
    assert abs(float(share.mean()) - rate) < 4 * sigma / math.sqrt(20)
    assert share.std() > 0.5 * sigma  # and not a fixed quota


@pytest.mark.parametrize("lag", [1, 2, 3, 16, 256])
def test_elements_are_not_correlated_with_their_neighbours(lag: int) -> None:
    m = masks(torch.arange(10), torch.tensor(0)) - 0.5
    correlation = 4 * (m[:, lag:] * m[:, :-lag]).mean(1)
    assert correlation.abs().max() < 4.5 / math.sqrt(COUNT - lag)


@pytest.mark.parametrize("other", ["next step", "next seed", "step and seed exchanged", "seed doubled"])
def test_streams_are_not_correlated(other: str) -> None:
    s = torch.arange(1, 21)
    first, second = {
        "next step": (masks(s, s), masks(s, s + 1)),
        "next seed": (masks(s, s), masks(s + 1, s)),
        "step and seed exchanged": (masks(s, s + 3), masks(s + 3, s)),
        "seed doubled": (masks(s + 20, s), masks(2 * (s + 20), s)),
    }[other]
    for lag in (0, 1, 2):  # also shifted: a stream must not be another one, delayed
        a, b = first[:, lag:] - 0.5, second[:, : COUNT - lag] - 0.5
        assert (4 * (a * b).mean(1)).abs().max() < 4.5 / math.sqrt(COUNT - lag)


@pytest.mark.parametrize("size", [2, 4])
def test_patterns_of_elements_are_equally_frequent(size: int) -> None:
    """Chi-square over the 2^size patterns of consecutive elements, both within words and across them."""
    for offset in (0, 1):
        m = masks(torch.arange(10), torch.tensor(2), count=COUNT + size)[:, offset:].flatten()
        m = m[: len(m) // size * size].view(-1, size).long()
        observed = torch.bincount(m @ 2 ** torch.arange(size), minlength=2**size).double()
        expected = observed.sum() / 2**size
        chi_square, freedom = float(((observed - expected) ** 2 / expected).sum()), 2**size - 1
        assert chi_square < freedom + 5 * math.sqrt(2 * freedom)
        assert chi_square > 0  # an exact quota would be as wrong


def test_the_sixteen_bits_are_uniform() -> None:
    """Chi-square over 256 bins of what elements are judged by, for even and odd elements: rates see all of it."""
    thresholds = torch.arange(1, 256, dtype=torch.float64) / 256
    key = key_tensor(11, 0)
    for parity in (0, 1):
        below = 1 - keep_mask(key.expand(255), thresholds, 2 * COUNT)[:, parity::2].double()
        cumulative = torch.cat([torch.zeros(1).double(), below.sum(1), torch.tensor([float(COUNT)])])
        observed = cumulative.diff()
        chi_square = float(((observed - COUNT / 256) ** 2 / (COUNT / 256)).sum())
        assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)


# --- dropout of tensors


def test_kept_values_are_divided_by_the_share_kept_exactly() -> None:
    x = normal(50, 40)
    for rate in (0.25, 0.3):
        effective = round(rate * 65536) / 65536
        out = dropout(x, rate, key_tensor(0, 0))
        mask = keep_mask(key_tensor(0, 0), rate, 2000).view(50, 40)
        torch.testing.assert_close(out, x * mask / (1 - effective), rtol=1e-15, atol=0)


def test_rate_0_changes_nothing_and_rate_1_leaves_nothing() -> None:
    x = normal(30, 5)
    assert torch.equal(dropout(x, 0.0, key_tensor(1, 1)), x)
    assert torch.equal(dropout(x, 1.0, key_tensor(1, 1)), torch.zeros_like(x))
    drop = Dropout(torch.tensor([0.0, 1.0]), replicates=2)
    assert torch.equal(drop(x), torch.stack([x, torch.zeros_like(x)]))


def test_an_infinite_rate_of_loss_leaves_finite_gradients() -> None:
    x = normal(30, 5).requires_grad_()
    dropout(x, 1.0, key_tensor(1, 1)).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_backward_uses_the_mask_of_forward() -> None:
    rates, keys = torch.tensor([0.3, 0.7]).double(), stream_key(torch.tensor([1, 2]), torch.tensor([0, 4]))
    shared, own = normal(5, 3).requires_grad_(), normal(2, 5, 3).requires_grad_()
    for x in (shared, own):  # x without replicate axes sums the gradients of all
        assert torch.autograd.gradcheck(lambda x: dropout(x, rates, keys), (x,))
        assert torch.autograd.gradgradcheck(lambda x: dropout(x, rates, keys), (x,))


def test_the_mask_is_not_stored() -> None:
    x, saved = normal(1000, 7).requires_grad_(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        dropout(x, 0.5, key_tensor(0, 0))
    assert sum(saved) < 10


@pytest.mark.parametrize("shape", [(7, 3), (1, 1), (5, 5)])
def test_odd_numbers_of_elements(shape: tuple[int, int]) -> None:
    out = dropout(torch.ones(shape, dtype=torch.float64), 0.5, key_tensor(6, 6))
    assert out.flatten().tolist() == [2.0 * k for k in kept(key_of(6, 6), 0.5, shape[0] * shape[1])]


def test_elements_are_counted_in_the_order_of_their_indices_whatever_the_memory() -> None:
    x = normal(4, 6).T
    assert not x.is_contiguous()
    assert torch.equal(dropout(x, 0.5, key_tensor(2, 0)), dropout(x.contiguous(), 0.5, key_tensor(2, 0)))


def test_dtype_does_not_change_the_mask() -> None:
    x = normal(40, 5)
    double, single = dropout(x, 0.4, key_tensor(2, 0)), dropout(x.float(), 0.4, key_tensor(2, 0))
    assert single.dtype == torch.float32 and torch.equal(double == 0, single == 0)


# --- the module


def test_evaluation_is_the_identity_and_no_step() -> None:
    drop, x = Dropout(0.5).eval(), normal(9, 4)
    assert drop(x) is x and int(drop.step) == 0


def test_each_call_in_training_is_a_step_with_a_mask_of_its_own() -> None:
    drop, x = Dropout(0.5), torch.ones(100, 3, dtype=torch.float64)
    drop.reset_parameters(torch.Generator().manual_seed(0))
    outs = [drop(x) for _ in range(3)]
    for step, out in enumerate(outs):
        assert out.flatten().tolist() == [2.0 * k for k in kept(key_of(int(drop.seed), step), 0.5, 300)]
    assert int(drop.step) == 3


def test_reset_starts_again_from_the_generator_alone() -> None:
    drop, x = Dropout(0.5, replicates=2), torch.ones(50, 3)
    outs = []
    for _ in range(2):
        drop.reset_parameters(torch.Generator().manual_seed(8))
        outs.append(drop(x))
    assert torch.equal(*outs) and not torch.equal(outs[0][0], outs[0][1])
    drop.reset_parameters(torch.Generator().manual_seed(9))
    assert not torch.equal(drop(x), outs[0])


def test_global_random_state_does_not_matter() -> None:
    drop, x = Dropout(0.5), torch.ones(50, 3)
    first = drop(x)
    torch.rand(1000)
    drop.step.zero_()
    assert torch.equal(drop(x), first)


@pytest.mark.parametrize("replicates", [None, 3])
def test_only_stored_values_of_sparse_features_are_dropped(replicates: int | None) -> None:
    x = CSR.from_tensor(sparse_features(30, 8))
    drop = Dropout(0.5, replicates=replicates)
    out = drop(x)
    assert torch.equal(out.indices, x.indices) and out.values.shape == (*([3] if replicates else []), x.nnz)
    for b, values in enumerate(out.values.view(-1, x.nnz)):
        seed = int(drop.seed.view(-1)[b])
        expected = x.values * torch.tensor(kept(key_of(seed, 0), 0.5, x.nnz)) * 2
        assert torch.equal(values, expected)


def test_state_is_saved_with_the_model() -> None:
    first, second, x = Dropout(0.5), Dropout(0.5), torch.ones(40, 3)
    first(x)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))


def test_signals_in_a_batch_share_the_mask_of_their_replicate() -> None:
    """Axes before the nodes that are no replicates: one mask for all, as the keys broadcast."""
    out = Dropout(0.5)(torch.ones(3, 50, 4))
    assert torch.equal(out[0], out[1]) and torch.equal(out[0], out[2])


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan"), torch.tensor([0.5, 2.0])])
def test_rates_outside_0_to_1_are_refused(rate: float | Tensor) -> None:
    with pytest.raises(InputError, match=r"dropout rate .* expected numbers from 0 to 1"):
        Dropout(rate, replicates=2)
