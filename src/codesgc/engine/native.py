"""The engine's products in native code: the numbers of `portable`, for float32 and float64 on the CPU.

The kernels follow `threads()`, and a replicate's bits depend neither on that nor on its neighbours.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from codesgc.engine import portable
from codesgc.engine.masks import scales, thresholds
from codesgc.engine.portable import Gradient, Needs, Signals
from codesgc.engine.sparse import CSR

kernels: Any = None
if os.environ.get("CODESGC_ENGINE", "native") != "portable":
    try:
        kernels = import_module("codesgc._native")
    except ImportError:  # there was no compiler when the package was installed
        kernels = None

_threads: int | None = None


def threads() -> int:
    """How many threads the kernels use."""
    return torch.get_num_threads() if _threads is None else _threads


@contextmanager
def leaving_torch_one_thread() -> Iterator[None]:
    """The kernels keep the number of threads that torch has now, and torch itself goes on with one."""
    global _threads
    before, torchs = _threads, torch.get_num_threads()
    if kernels is None or torchs == 1:
        yield
        return
    _threads = threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(torchs)
        _threads = before


def serves(tensor: Tensor) -> bool:
    """Whether the kernels take such a tensor."""
    return kernels is not None and tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64)


def _handle(S: CSR) -> Any:
    """The kernels' own copy of a matrix, made and checked once."""
    base = S.base
    if base.native is None:
        make = kernels.CsrFloat if base.dtype == torch.float32 else kernels.CsrDouble
        base.native = make(base.indptr.int(), base.indices.int(), _plain(base.stored), base.shape[1])
    return base.native


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous()


def _masks(keys: Tensor | None, rate: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    if keys is None or rate is None:
        return None, None, None
    return _plain(keys), thresholds(rate), scales(rate, dtype)


def dropout(x: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
    out = x.new_empty(len(keys), x.shape[1])
    kernels.dropout(_plain(x), *_masks(keys, rate, x.dtype), out, threads())
    return out


def affine(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    out = x.new_empty(len(w), x.shape[1], w.shape[2])
    kernels.matmul(_plain(x), _plain(w), None if bias is None else _plain(bias), out, threads())
    return out


def matmul_nt(y: Tensor, w: Tensor) -> Tensor:
    out = y.new_empty(len(y), y.shape[1], w.shape[1])
    kernels.matmul_nt(_plain(y), _plain(w), out, threads())
    return out


def matmul_tn(x: Tensor, y: Tensor) -> Tensor:
    out = y.new_empty(len(y), x.shape[2], y.shape[2])
    kernels.matmul_tn(_plain(x), _plain(y), out, threads())
    return out


def sum_rows(y: Tensor) -> Tensor:
    out = y.new_empty(len(y), y.shape[2])
    kernels.sum_rows(_plain(y), out, threads())
    return out


def features(X: CSR, w: Tensor, bias: Tensor | None) -> Tensor:
    if X.native_values is None:
        return portable.features(X, w, bias)
    out = w.new_empty(len(w), X.shape[0], w.shape[2])
    masks = _masks(X.keys, X.rate, w.dtype)
    bias = None if bias is None else _plain(bias)
    kernels.sparse_matmul(_handle(X), _plain(w), bias, *masks, out, threads())
    return out


def features_transposed(X: CSR, y: Tensor) -> Tensor:
    if X.native_values is None:
        return portable.features_transposed(X, y)
    out = y.new_empty(len(y), X.shape[1], y.shape[2])
    kernels.sparse_matmul_t(_handle(X), _plain(y), *_masks(X.keys, X.rate, y.dtype), out, threads())
    return out


def filter(S: CSR, h: Tensor, m: Tensor) -> Tensor:
    out = torch.empty_like(h)
    kernels.filter(_handle(S), _plain(h), _plain(m), out, threads())
    return out


def filter_backward(S: CSR, dy: Tensor, h: Tensor, m: Tensor, needs: Needs) -> Gradient:
    dh = torch.empty_like(h) if needs[0] else None
    dm = m.new_empty(m.shape) if needs[1] else None
    kernels.filter_backward(_handle(S), _plain(dy), _plain(h), _plain(m), dh, dm, threads())
    return dh, dm


def synthesise(S: CSR, x: Signals, a: Tensor) -> Tensor:
    if isinstance(x, CSR):
        return _synthesise_features(S, x, a)
    out = x.new_empty(*x.shape[:3], a.shape[3])
    kernels.synthesise(_handle(S), _plain(x), _plain(a), out, threads())
    return out


def synthesise_backward(S: CSR, dy: Tensor, x: Signals, a: Tensor, needs: Needs) -> Gradient:
    if isinstance(x, CSR):
        return None, _gradient_of_features(S, dy, x, a) if needs[1] else None
    dx = x.new_empty(x.shape) if needs[0] else None
    da = a.new_empty(a.shape) if needs[1] else None
    kernels.synthesise_backward(_handle(S), _plain(dy), _plain(x), _plain(a), dx, da, threads())
    return dx, da


def analyse(S: CSR, x: Tensor, a: Tensor) -> Tensor:
    out = x.new_empty(*x.shape[:3], a.shape[3])
    kernels.analyse(_handle(S), _plain(x), _plain(a), out, threads())
    return out


def analyse_backward(S: CSR, dy: Tensor, x: Tensor, a: Tensor, needs: Needs) -> Gradient:
    dx = x.new_empty(x.shape) if needs[0] else None
    da = a.new_empty(a.shape) if needs[1] else None
    kernels.analyse_backward(_handle(S), _plain(dy), _plain(x), _plain(a), dx, da, threads())
    return dx, da


def _synthesise_features(S: CSR, X: CSR, a: Tensor) -> Tensor:
    """Clenshaw as in `portable.synthesise`, with X A_k formed when its turn comes."""
    order, count = a.shape[1] - 1, threads()
    current = features(X, a[:, order], None)
    previous = torch.zeros_like(current)
    for k in range(order - 1, -1, -1):
        if k == 0:  # the last step is S b_1, half of what `advance` adds
            current, previous = current / 2, previous
        kernels.advance(_handle(S), previous, current, features(X, a[:, k], None), count)
        previous, current = current, previous
    return current[:, :, None, :]


def _gradient_of_features(S: CSR, dy: Tensor, X: CSR, a: Tensor) -> Tensor:
    """dA_k = X^T T_k(S) dy."""
    da, count = torch.empty_like(a), threads()
    previous, current = _plain(dy.flatten(2)).clone(), _plain(dy.flatten(2))
    for k in range(a.shape[1]):
        if k == 1:  # T_1 = S T_0 = (2 S T_0 - 0) / 2
            following = torch.zeros_like(current)
            kernels.advance(_handle(S), following, current / 2, None, count)
            previous, current = current.clone(), following
        elif k > 1:
            kernels.advance(_handle(S), previous, current, None, count)
            previous, current = current, previous
        da[:, k] = features_transposed(X, current)
    return da


def cross_entropy(scores: Tensor, labels: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    losses, grad = scores.new_empty(len(scores)), torch.empty_like(scores)
    kernels.cross_entropy(_plain(scores), labels, _plain(nodes), losses, grad, threads())
    return losses, grad


def correct(scores: Tensor, labels: Tensor, nodes: Tensor) -> Tensor:
    out = torch.empty(len(scores), dtype=torch.int64)
    kernels.correct(_plain(scores), labels, _plain(nodes), out, threads())
    return out


def adam_(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    lr: Tensor,
    weight_decay: Tensor,
    step: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    p, g, m, v = (t.detach().view(len(t), -1) for t in (p, g.contiguous(), m, v))
    kernels.adam(p, g, m, v, lr, weight_decay, step, *betas, eps, threads())
