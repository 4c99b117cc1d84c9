"""Native kernels of what happens at each node: masks, sparse features, dense products, the optimiser and the loss."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from codesgc import _native
from codesgc.engine.dropout import keep_mask, stream_key
from codesgc.training.adam import Adam

native = _native

DTYPES = [torch.float32, torch.float64]
RATES = [0.0, 0.5, 0.3, 1.0, 1 / 65536]


def close(actual: Tensor, expected: Tensor, terms: int = 1) -> None:
    """Within what a sum of n terms loses: it is of size sqrt(n), and each addition rounds it."""
    tolerance = torch.finfo(actual.dtype).eps * (8 + terms)
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def streams(rates: list[float], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, thresholds and scales of a replicate for each rate."""
    keys = stream_key(torch.arange(len(rates)) + 10**12, torch.tensor(3))
    thresholds = (torch.tensor(rates, dtype=torch.float64) * 65536).round()
    scales = torch.where(thresholds < 65536, 65536 / (65536 - thresholds), 0.0)
    return keys, thresholds.int(), scales.to(dtype)


def run(kernel: Callable[..., None], shape: tuple[int, ...], *args: Any, threads: int = 1, **options: Any) -> Tensor:
    """The kernel's result in an output that holds rubbish before."""
    dtype = options.pop("dtype", None) or next(a.dtype for a in args if isinstance(a, Tensor))
    out = torch.full(shape, 77, dtype=dtype)
    kernel(*args, out=out, threads=threads, **options)
    return out


def unpack(bits: Tensor, count: int) -> Tensor:
    return torch.from_numpy(
        np.unpackbits(bits.view(torch.uint8).numpy(), axis=-1, bitorder="little")[..., :count]
    ).bool()


# --- masks


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1000, 70_001])
@pytest.mark.parametrize("threads", [1, 3])
def test_keep_bits_are_the_portable_mask(count, threads):
    keys, thresholds, _ = streams(RATES, torch.float32)
    bits = run(native.keep_bits, (5, (count + 31) // 32), keys, thresholds, count, dtype=torch.uint32, threads=threads)
    assert torch.equal(unpack(bits, count), keep_mask(keys, torch.tensor(RATES, dtype=torch.float64), count))
    assert not unpack(bits, bits.shape[1] * 32)[:, count:].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 33, 1000, 70_001])
@pytest.mark.parametrize("shared", [True, False])
def test_dropout_is_the_portable_one(dtype, count, shared):
    keys, thresholds, scales = streams(RATES, dtype)
    x = normal(1 if shared else 5, count, dtype=dtype)
    factor = keep_mask(keys, torch.tensor(RATES, dtype=torch.float64), count) * scales[:, None]
    out = run(native.dropout, (5, count), x, keys, thresholds)
    assert torch.equal(out, x * factor)
    if not shared:
        native.dropout(x, keys, thresholds, out=x, threads=2)
        assert torch.equal(x, out)


def test_dropout_passes_nan_on():
    keys, thresholds, _ = streams([1.0], torch.float32)
    x = torch.full((1, 40), torch.nan)
    assert run(native.dropout, (1, 40), x, keys, thresholds).isnan().all()


def test_stream_keys_are_the_portable_ones():
    seeds = torch.tensor([0, 1, 2**62 - 1, 12345, -7])
    steps = torch.tensor([0, 3, 999, 2**40, 1])
    out = torch.empty_like(seeds)
    native.stream_keys(seeds, steps, out)
    assert torch.equal(out, stream_key(seeds, steps))


# --- sparse features


def features(kind: str, rows: int, cols: int, density: float, dtype: torch.dtype) -> tuple[Any, Tensor, Tensor]:
    """A native matrix, its dense float64 form, and the entry that stands at each place (-1: none)."""
    dense = normal(rows, cols) * (torch.rand(rows, cols, generator=torch.Generator().manual_seed(1)) < density)
    if rows > 3:
        dense[2] = 0  # a row and a column without entries
    if cols > 4:
        dense[:, 3] = 0
    if kind == "binary":
        dense = (dense != 0).double()
        dense = dense / dense.sum(1, keepdim=True).clamp(min=1)
    csr = dense.to(dtype).to_sparse_csr()
    entry = torch.full((rows, cols), -1)
    entry[dense != 0] = torch.arange(csr.values().numel())
    make = native.CsrFloat if dtype == torch.float32 else native.CsrDouble
    X = make(csr.crow_indices().int(), csr.col_indices().int(), csr.values(), cols)
    return X, dense.to(dtype).double(), entry


def dropped(dense: Tensor, entry: Tensor, rates: list[float], keys: Tensor, scales: Tensor) -> Tensor:
    """The dense form for each replicate."""
    nnz = int(entry.max()) + 1
    mask = keep_mask(keys, torch.tensor(rates, dtype=torch.float64), nnz + 1)  # one more: none is no index
    return dense * mask[:, entry] * scales.double()[:, None, None]


SIZES = [(1, 1, 1.0), (1, 7, 0.5), (40, 30, 0.0), (300, 70, 0.3), (1200, 90, 0.05), (5000, 40, 0.4)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["binary", "real"])
@pytest.mark.parametrize(("rows", "cols", "density"), SIZES)
@pytest.mark.parametrize("J", [1, 7, 8, 16, 23, 32, 50, 64, 70])
def test_sparse_products_match_dense_ones(dtype, kind, rows, cols, density, J):
    rates = [0.5, 0.0, 1.0]
    keys, thresholds, scales = streams(rates, dtype)
    X, dense, entry = features(kind, rows, cols, density, dtype)
    w, y, bias = (normal(3, *s, dtype=dtype) for s in [(cols, J), (rows, J), (J,)])
    masked = dropped(dense, entry, rates, keys, scales)
    X_drop, none = {"keys": keys, "thresholds": thresholds}, {"keys": None, "thresholds": None}
    results, thresholds = keys.flip(0) + 1, thresholds.flip(0)  # other masks than those of X
    kept = keep_mask(results, torch.tensor(rates[::-1], dtype=torch.float64), rows * J).reshape(3, rows, J)
    kept = kept * scales.flip(0)[:, None, None].double()

    drop, undropped = {"out_keys": results, "out_thresholds": thresholds}, {"out_keys": None, "out_thresholds": None}
    out = run(native.sparse_matmul, (3, rows, J), X, w, bias, **X_drop, **undropped, dtype=dtype)
    close(out, masked @ w.double() + bias.double()[:, None], cols)
    out = run(native.sparse_matmul, (3, rows, J), X, w, bias, **none, **drop, dtype=dtype, threads=2)
    close(out, kept * (dense @ w.double() + bias.double()[:, None]), cols)
    out = run(native.sparse_matmul, (3, rows, J), X, w, None, **none, **undropped, dtype=dtype, threads=2)
    close(out, dense @ w.double(), cols)

    drop, undropped = {"y_keys": results, "y_thresholds": thresholds}, {"y_keys": None, "y_thresholds": None}
    out, sums = (torch.empty(3, *shape, dtype=dtype) for shape in [(cols, J), (J,)])
    native.sparse_matmul_t(X, y, **X_drop, **undropped, out=out, sums=None)
    close(out, masked.mT @ y.double(), rows)
    native.sparse_matmul_t(X, y, **none, **drop, out=out, sums=sums, threads=2)
    close(out, dense.T @ (kept * y.double()), rows)
    close(sums, (kept * y.double()).sum(1), rows)


def test_features_of_no_rows_or_no_columns():
    empty = torch.zeros(0, dtype=torch.int32), torch.zeros(0)
    X = native.CsrFloat(torch.zeros(1, dtype=torch.int32), *empty, 4)
    assert run(native.sparse_matmul, (2, 0, 3), X, normal(2, 4, 3).float(), *[None] * 5).numel() == 0
    y = torch.zeros(2, 0, 3)
    out, sums = torch.empty(2, 4, 3), torch.empty(2, 3)
    native.sparse_matmul_t(X, y, None, None, None, None, out, sums)
    assert torch.equal(out, torch.zeros(2, 4, 3)) and torch.equal(sums, torch.zeros(2, 3))
    X = native.CsrFloat(torch.zeros(5, dtype=torch.int32), *empty, 0)
    w, bias = torch.zeros(2, 0, 3), normal(2, 3).float()
    out = run(native.sparse_matmul, (2, 4, 3), X, w, bias, None, None, None, None)
    assert torch.equal(out, bias[:, None].expand(2, 4, 3))


@pytest.mark.parametrize("kind", ["binary", "real"])
def test_features_with_repeated_and_unsorted_entries(kind):
    indptr, indices = torch.tensor([0, 5, 40], dtype=torch.int32), torch.tensor([3, 0, 3, 3, 1] + [2] * 35)
    values = torch.full((40,), 0.5) if kind == "binary" else normal(40).float()
    X = native.CsrFloat(indptr, indices.int(), values, 4)
    keys, thresholds, _ = streams([0.5], torch.float32)
    kept = values * keep_mask(keys[0], 0.5, 40) * 2
    dense = torch.zeros(2, 4).index_put((torch.arange(40).ge(5).long(), indices), kept, accumulate=True)
    w, y = normal(1, 4, 5).float(), normal(1, 2, 5).float()
    close(run(native.sparse_matmul, (1, 2, 5), X, w, None, keys, thresholds, None, None), dense @ w, 40)
    out = torch.empty(1, 4, 5)
    native.sparse_matmul_t(X, y, keys, thresholds, None, None, out, None)
    close(out, dense.T @ y, 40)


def test_more_columns_than_16_bits_hold():
    cols = torch.tensor([0, 65_535, 65_536, 70_000], dtype=torch.int32)
    X = native.CsrFloat(torch.tensor([0, 2, 4], dtype=torch.int32), cols, torch.ones(4), 70_001)
    w = normal(1, 70_001, 2).float()
    expected = torch.stack([w[0, cols[:2].long()].sum(0), w[0, cols[2:].long()].sum(0)])
    close(run(native.sparse_matmul, (1, 2, 2), X, w, *[None] * 5)[0], expected)


# --- dense products


SHAPES = [
    (1, 1, 1),
    (5, 1, 3),
    (3, 7, 1),
    (1, 5, 40),
    (97, 32, 7),
    (200, 7, 32),
    (130, 33, 66),
    (20, 17, 150),
    (250, 64, 32),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("N", "I", "J"), SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_dense_products(dtype, N, I, J, threads):
    x, w, dy, bias = (normal(3, *s, dtype=dtype, seed=i) for i, s in enumerate([(N, I), (I, J), (N, J), (J,)]))
    one = x[:1]
    X, W, D = x.double(), w.double(), dy.double()
    close(run(native.matmul, (3, N, J), x, w, bias, None, None, threads=threads), X @ W + bias.double()[:, None], I)
    close(run(native.matmul, (3, N, J), one, w, None, None, None, threads=threads), X[:1] @ W, I)
    rates = [0.5, 0.0, 1.0]
    keys, thresholds, scales = streams(rates, dtype)
    kept = keep_mask(keys, torch.tensor(rates, dtype=torch.float64), N * J).reshape(3, N, J)
    kept = kept * scales[:, None, None].double()
    expected = kept * (X @ W + bias.double()[:, None])
    close(run(native.matmul, (3, N, J), x, w, bias, keys, thresholds, threads=threads), expected, I)
    for masks, y in (((None, None), D), ((keys, thresholds), kept * D)):
        dx, dw, sums = (torch.empty(3, *shape, dtype=dtype) for shape in [(N, I), (I, J), (J,)])
        native.matmul_backward(x, w, dy, *masks, dx, dw, sums, threads)
        close(dx, y @ W.mT, J)
        close(dw, X.mT @ y, N)
        close(sums, y.sum(1), N)
        once = [torch.empty_like(result) for result in (dx, dw, sums)]
        for i, result in enumerate(once):  # each alone
            native.matmul_backward(x, w, dy, *masks, *(result if i == j else None for j in range(3)), threads)
        assert all(torch.equal(p, q) for p, q in zip(once, (dx, dw, sums), strict=True))
    native.matmul_backward(one, w, dy, None, None, None, dw, None, threads)
    close(dw, X[:1].mT @ D, N)


def test_dense_products_with_nothing_to_sum():
    empty = torch.zeros(2, 4, 0)
    out = run(native.matmul, (2, 4, 3), empty, torch.zeros(2, 0, 3), None, None, None)
    assert torch.equal(out, torch.zeros(2, 4, 3))
    dw, sums = torch.empty(2, 3, 3), torch.empty(2, 3)
    none = torch.zeros(2, 0, 3)
    native.matmul_backward(none, torch.zeros(2, 3, 3), none, None, None, none.clone(), dw, sums)
    assert torch.equal(dw, torch.zeros(2, 3, 3)) and torch.equal(sums, torch.zeros(2, 3))


# --- optimiser and loss


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 37, 40_000])
def test_adam_takes_the_portable_steps(dtype, n):
    portable = normal(3, n, dtype=dtype).requires_grad_()
    optimizer = Adam([portable], 3)
    optimizer.lr[0], optimizer.weight_decay[0] = torch.tensor([0.01, 0.1, 0.05]), torch.tensor([0.0, 0.01, 0.1])
    optimizer.step_count += torch.tensor([0, 5, 100])  # replicates that started at different times
    p = portable.detach().clone()
    m, v = torch.zeros_like(p), torch.zeros_like(p)
    for step in range(3):
        g = normal(3, n, dtype=dtype, seed=step + 1)
        portable.grad = g.clone()
        optimizer.step()
        lr, decay = optimizer.lr[0].clone(), optimizer.weight_decay[0].clone()
        native.adam(p, g, m, v, lr, decay, optimizer.step_count, 0.9, 0.999, 1e-8, threads=2)
        assert torch.equal(g, normal(3, n, dtype=dtype, seed=step + 1))
        for actual, expected in [(p, portable.detach()), (m, optimizer.m[0]), (v, optimizer.v[0])]:
            close(actual, expected, 10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("N", "J", "n"), [(1, 1, 1), (50, 7, 20), (300, 10, 170), (40, 70, 40)])
@pytest.mark.parametrize("size", [1.0, 30.0, 3000.0])
def test_cross_entropy(dtype, N, J, n, size):
    scores = (normal(3, N, J) * size).to(dtype)
    labels = torch.arange(N) * 5 % J
    nodes = torch.stack([torch.randperm(N, generator=torch.Generator().manual_seed(b))[:n] for b in range(3)])
    wanted = scores.double().requires_grad_()
    expected = torch.stack([F.cross_entropy(wanted[b, nodes[b]], labels[nodes[b]]) for b in range(3)])
    expected.sum().backward()
    losses, grad = torch.empty(3, dtype=dtype), torch.full_like(scores, torch.nan)
    native.cross_entropy(scores, labels, nodes, losses, grad, threads=2)
    close(losses / size, expected.detach() / size)
    close(grad * n, wanted.grad * n)


def test_cross_entropy_of_a_node_that_comes_twice():
    scores, labels, nodes = normal(1, 4, 3), torch.tensor([0, 1, 2, 0]), torch.tensor([[1, 3, 1]])
    wanted = scores.clone().requires_grad_()
    F.cross_entropy(wanted[0, nodes[0]], labels[nodes[0]]).backward()
    losses, grad = torch.empty(1, dtype=torch.float64), torch.empty_like(scores)
    native.cross_entropy(scores, labels, nodes, losses, grad)
    close(grad, wanted.grad)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_cross_entropy_of_scores_that_are_no_numbers(value):
    scores = normal(1, 3, 4).float()
    scores[0, 1, 2] = value
    losses, grad = torch.empty(1), torch.empty_like(scores)
    native.cross_entropy(scores, torch.tensor([0, 1, 2]), torch.tensor([[0, 1]]), losses, grad)
    assert losses.isnan().all() and grad[0, 1].isnan().all() and not grad[0, 0].isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("J", [1, 2, 7, 40])
def test_correct_counts_as_argmax_does(dtype, J):
    scores = (normal(3, 500, J) * 2).round().to(dtype)  # many ties
    scores[1, ::7, -1], scores[2, ::5, J // 2] = torch.nan, torch.inf
    scores[2, ::10, 0] = torch.nan
    labels = torch.arange(500) % J
    nodes = torch.stack([torch.randperm(500, generator=torch.Generator().manual_seed(b))[:333] for b in range(3)])
    expected = [int((scores[b].argmax(-1) == labels)[nodes[b]].sum()) for b in range(3)]
    assert run(native.correct, (3,), scores, labels, nodes, dtype=torch.int64, threads=2).tolist() == expected


# --- a replicate's numbers are its own


def all_kernels(B: int, first: int, threads: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Results of replicates first, ..., first + B - 1 of five."""
    own = slice(first, first + B)
    N, I, J = 700, 60, 37
    keys, thresholds = (t[own].contiguous() for t in streams([0.5, 0.3, 0.8, 0.5, 0.1], dtype)[:2])
    w, x, dy, bias = (normal(5, *s, dtype=dtype)[own].contiguous() for s in [(I, J), (N, I), (N, J), (J,)])
    nodes = torch.arange(5 * 200).reshape(5, 200)[own].contiguous() * 3 % N
    labels = torch.arange(N) % J
    out = {
        "bits": run(native.keep_bits, (B, 1250), keys, thresholds, 40_000, dtype=torch.uint32, threads=threads),
        "dropout": run(native.dropout, (B, N * I), x.flatten(1), keys, thresholds, threads=threads),
        "matmul": run(native.matmul, (B, N, J), x, w, bias, keys, thresholds, threads=threads),
        "correct": run(native.correct, (B,), dy, labels, nodes, dtype=torch.int64, threads=threads),
    }
    for kind in ["binary", "real"]:
        X, _, _ = features(kind, N, I, 0.3, dtype)
        masks = keys, thresholds, keys + 1, thresholds
        out[kind] = run(native.sparse_matmul, (B, N, J), X, w, bias, *masks, dtype=dtype, threads=threads)
        out[kind + "_t"], out[kind + "_sums"] = torch.empty(B, I, J, dtype=dtype), torch.empty(B, J, dtype=dtype)
        native.sparse_matmul_t(X, dy, *masks, out[kind + "_t"], out[kind + "_sums"], threads)
    for name, left, right, grad in (("wide", x, w, dy), ("narrow", dy, w.mT.contiguous(), x)):
        parts = torch.empty_like(left), torch.empty_like(right), torch.empty(B, grad.shape[2], dtype=dtype)
        native.matmul_backward(left, right, grad, keys, thresholds, *parts, threads)
        out |= {f"{name} {part}": result for part, result in zip(("dx", "dw", "sums"), parts, strict=True)}
    p, m, v = x.flatten(1).clone(), x.flatten(1) / 2, x.flatten(1) ** 2
    numbers = torch.arange(1, 6, dtype=torch.float64)[own].contiguous()
    native.adam(p, x.flatten(1), m, v, numbers / 100, numbers / 1000, numbers, 0.9, 0.999, 1e-8, threads=threads)
    losses, grad = torch.empty(B, dtype=dtype), torch.empty_like(dy)
    native.cross_entropy(dy, labels, nodes, losses, grad, threads=threads)
    return out | {"p": p, "m": m, "v": v, "losses": losses, "grad": grad}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_replicate_has_the_same_bits_alone_and_in_a_batch_on_any_threads(dtype):
    batch = all_kernels(5, 0, 1, dtype)
    for threads in [1, 2, 3]:
        for name, result in all_kernels(5, 0, threads, dtype).items():
            assert torch.equal(result, batch[name]), name
        for b in range(5):
            for name, result in all_kernels(1, b, threads, dtype).items():
                assert torch.equal(result[0], batch[name][b]), (name, b, threads)


# --- what is refused


def refusals() -> dict[str, tuple[str, Callable[[], None]]]:
    keys, thresholds, _ = streams([0.5, 0.5], torch.float32)
    X, _, _ = features("real", 6, 5, 0.5, torch.float32)
    w, y = torch.zeros(2, 5, 3), torch.zeros(2, 6, 3)
    labels, nodes = torch.zeros(6, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.int64)
    high = torch.tensor([0, 65537], dtype=torch.int32)
    p, one = torch.zeros(2, 9), torch.ones(2, dtype=torch.float64)
    bits, back = torch.zeros(2, 1, dtype=torch.uint32), torch.zeros(2, 6, 5)

    def adam(*args: Any) -> Callable[[], None]:
        return lambda: native.adam(*args, 0.9, 0.999, 1e-8)

    return {
        "threads": (
            "threads 0",
            lambda: native.matmul(y, torch.zeros(2, 3, 4), None, None, None, torch.zeros(2, 6, 4), 0),
        ),
        "threshold": ("65537", lambda: native.keep_bits(keys, high, 9, bits)),
        "negative threshold": ("-1", lambda: native.keep_bits(keys, torch.tensor([-1, 0]).int(), 9, bits)),
        "negative count": ("-9", lambda: native.keep_bits(keys, thresholds, -9, bits)),
        "bits": ("out", lambda: native.keep_bits(keys, thresholds, 33, bits)),
        "keys": ("keys", lambda: native.dropout(p, keys[:1], thresholds, p.clone())),
        "thresholds": ("thresholds", lambda: native.dropout(p, keys, thresholds[:1], p.clone())),
        "batch of x": ("x", lambda: native.dropout(torch.zeros(3, 9), keys, thresholds, p)),
        "size of x": ("x", lambda: native.dropout(torch.zeros(2, 8), keys, thresholds, p)),
        "steps": ("steps", lambda: native.stream_keys(keys, keys[:1], keys.clone())),
        "half a mask": ("None", lambda: native.sparse_matmul(X, w, None, keys, None, None, None, y)),
        "half a mask of the result": ("None", lambda: native.sparse_matmul(X, w, *[None] * 4, thresholds, y)),
        "keys of the result": ("keys", lambda: native.sparse_matmul(X, w, *[None] * 3, keys[:1], thresholds, y)),
        "w": ("w", lambda: native.sparse_matmul(X, torch.zeros(2, 6, 3), *[None] * 5, y)),
        "bias": ("bias", lambda: native.sparse_matmul(X, w, torch.zeros(2, 2), *[None] * 4, y)),
        "out": ("out", lambda: native.sparse_matmul(X, w, *[None] * 5, torch.zeros(2, 5, 3))),
        "y": ("y", lambda: native.sparse_matmul_t(X, w, *[None] * 4, w.clone(), None)),
        "out of t": ("out", lambda: native.sparse_matmul_t(X, y, *[None] * 4, y.clone(), None)),
        "sums of t": ("sums", lambda: native.sparse_matmul_t(X, y, *[None] * 4, w.clone(), torch.zeros(2, 4))),
        "matmul": ("x", lambda: native.matmul(torch.zeros(2, 6, 4), w, None, None, None, y)),
        "dy": ("dy", lambda: native.matmul_backward(back, w, torch.zeros(2, 6, 4), *[None] * 5)),
        "dx": ("dx", lambda: native.matmul_backward(back, w, y, None, None, torch.zeros(2, 6, 4), None, None)),
        "dw": ("dw", lambda: native.matmul_backward(back, w, y, None, None, None, y.clone(), None)),
        "sums": ("sums", lambda: native.matmul_backward(back, w, y, None, None, None, None, torch.zeros(2, 4))),
        "masks of dy": ("keys", lambda: native.matmul_backward(back, w, y, keys[:1], thresholds, *[None] * 3)),
        "adam sizes": ("v", adam(p, p.clone(), p.clone(), torch.zeros(2, 8), one, one, one)),
        "adam rates": ("lr", adam(p, p.clone(), p.clone(), p.clone(), one[:1], one, one)),
        "adam step": ("step 0", adam(p, p.clone(), p.clone(), p.clone(), one, one, one * 0)),
        "label": ("labels holds 3", lambda: native.cross_entropy(y, labels + 3, nodes, torch.zeros(2), y.clone())),
        "node": ("nodes holds 6", lambda: native.cross_entropy(y, labels, nodes + 6, torch.zeros(2), y.clone())),
        "negative node": ("nodes holds -1", lambda: native.correct(y, labels, nodes - 1, labels[:2])),
        "no nodes": ("nodes has 0", lambda: native.cross_entropy(y, labels, nodes[:, :0], torch.zeros(2), y.clone())),
        "losses": ("losses", lambda: native.cross_entropy(y, labels, nodes, torch.zeros(3), y.clone())),
    }


@pytest.mark.parametrize("name", sorted(refusals()))  # the kernels in it must not outlive the module
def test_bad_input_is_refused(name):
    message, call = refusals()[name]
    with pytest.raises(ValueError, match=message):
        call()


def masks_of_two() -> tuple[Tensor, Tensor]:
    return streams([0.5, 0.5], torch.float32)[:2]


@pytest.mark.parametrize(
    "call",
    [
        lambda: native.dropout(torch.zeros(2, 4).half(), *masks_of_two(), torch.zeros(2, 4)),
        lambda: native.dropout(torch.zeros(4, 2).T, *masks_of_two(), torch.zeros(2, 4)),  # not contiguous
        lambda: native.dropout(torch.zeros(2, 4), *masks_of_two(), torch.zeros(2, 4, dtype=torch.float64)),
        lambda: native.correct(
            torch.zeros(1, 3, 4), torch.zeros(3).int(), torch.zeros(1, 2).long(), torch.zeros(1).long()
        ),
    ],
)
def test_other_types_and_layouts_are_refused(call):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        call()
