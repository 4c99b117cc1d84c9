"""The engine's products in native code: the numbers of `portable`, for float32 and float64 on the CPU.

The kernels follow `threads()`, and a replicate's bits depend neither on that nor on its neighbours.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from codesgc.engine import portable
from codesgc.engine.masks import thresholds
from codesgc.engine.portable import Gradient, Masks, Needs, Signals
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
def keeping_freed_memory() -> Iterator[None]:
    """Freed memory is kept for the next epoch's tensors, where the system would take it back and clear it each time."""
    if kernels is None:
        yield
        return
    kernels.keep_freed_memory(True)
    try:
        yield
    finally:
        kernels.keep_freed_memory(False)


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


def _masks(keys: Tensor | None, rate: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Keys and thresholds of a dropout, as the kernels take them."""
    return (None, None) if keys is None or rate is None else (_plain(keys), thresholds(rate))


def _call(kernel: Callable[..., None], *args: Any) -> None:
    """A kernel on tensors, which go as DLPack's capsules: what tensors offer otherwise takes longer than small kernels.

    The kernels check every shape, type and stride.
    """
    kernel(*[to_dlpack(arg) if isinstance(arg, Tensor) else arg for arg in args])


def stream_key(seed: Tensor, step: Tensor) -> Tensor:
    out = torch.empty_like(seed)
    _call(kernels.stream_keys, seed.view(-1), step.view(-1), out.view(-1))
    return out


def dropout(x: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
    out = x.new_empty(len(keys), x.shape[1])
    _call(kernels.dropout, _plain(x), *_masks(keys, rate), out, threads())
    return out


def _masked_(x: Tensor, keys: Tensor | None, rate: Tensor | None) -> Tensor:
    """`portable.masked` in the place of a contiguous x."""
    if keys is not None:
        flat = x.view(len(x), -1)
        _call(kernels.dropout, flat, *_masks(keys, rate), flat, threads())
    return x


def affine(x: Tensor, w: Tensor, bias: Tensor | None, keys: Tensor | None, rate: Tensor | None) -> Tensor:
    out = x.new_empty(len(w), x.shape[1], w.shape[2])
    bias = None if bias is None else _plain(bias)
    _call(kernels.matmul, _plain(x), _plain(w), bias, *_masks(keys, rate), out, threads())
    return out


def affine_backward(
    x: Tensor, w: Tensor, dy: Tensor, keys: Tensor | None, rate: Tensor | None, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dx = dy.new_empty(len(dy), x.shape[1], x.shape[2]) if needs[0] else None
    dw = w.new_empty(w.shape) if needs[1] else None
    db = dy.new_empty(len(dy), dy.shape[2]) if needs[2] else None
    _call(kernels.matmul_backward, _plain(x), _plain(w), _plain(dy), *_masks(keys, rate), dx, dw, db, threads())
    return dx, dw, db


def features(X: CSR, w: Tensor, bias: Tensor | None, keys: Tensor | None, rate: Tensor | None) -> Tensor:
    if X.native_values is None:
        return portable.features(X, w, bias, keys, rate)
    out = w.new_empty(len(w), X.shape[0], w.shape[2])
    bias = None if bias is None else _plain(bias)
    masks = *_masks(X.keys, X.rate), *_masks(keys, rate)
    _call(kernels.sparse_matmul, _handle(X), _plain(w), bias, *masks, out, threads())
    return out


def features_backward(
    X: CSR, dy: Tensor, keys: Tensor | None, rate: Tensor | None, bias: bool
) -> tuple[Tensor, Tensor | None]:
    if X.native_values is None:
        return portable.features_backward(X, dy, keys, rate, bias)
    out = dy.new_empty(len(dy), X.shape[1], dy.shape[2])
    sums = dy.new_empty(len(dy), dy.shape[2]) if bias else None
    masks = *_masks(X.keys, X.rate), *_masks(keys, rate)
    _call(kernels.sparse_matmul_t, _handle(X), _plain(dy), *masks, out, sums, threads())
    return out, sums


def filter(S: CSR, h: Tensor, m: Tensor, keys: Tensor | None, rate: Tensor | None) -> Tensor:
    out = torch.empty_like(h)
    _call(kernels.filter, _handle(S), _plain(h), _plain(m), *_masks(keys, rate), out, threads())
    return out


def filter_backward(
    S: CSR, dy: Tensor, h: Tensor, m: Tensor, needs: Needs, keys: Tensor | None, rate: Tensor | None
) -> Gradient:
    dh = torch.empty_like(h) if needs[0] else None
    dm = m.new_empty(m.shape) if needs[1] else None
    _call(kernels.filter_backward, _handle(S), _plain(dy), _plain(h), _plain(m), *_masks(keys, rate), dh, dm, threads())
    return dh, dm


def synthesise(S: CSR, x: Signals, a: Tensor, keys: Tensor | None = None, rate: Tensor | None = None) -> Tensor:
    if isinstance(x, CSR):
        return _synthesise_features(S, x, a)
    out = x.new_empty(*x.shape[:3], a.shape[3])
    _call(kernels.synthesise, _handle(S), _plain(x), _plain(a), out, threads())
    return _masked_(out, keys, rate)


def synthesise_backward(
    S: CSR, dy: Tensor, x: Signals, a: Tensor, needs: Needs, keys: Tensor | None = None, rate: Tensor | None = None
) -> Gradient:
    if isinstance(x, CSR):
        return None, _gradient_of_features(S, dy, x, a) if needs[1] else None
    dx = x.new_empty(x.shape) if needs[0] else None
    da = a.new_empty(a.shape) if needs[1] else None
    dy = dy if keys is None or rate is None else dropout(dy.flatten(1), keys, rate).reshape(dy.shape)
    _call(kernels.synthesise_backward, _handle(S), _plain(dy), _plain(x), _plain(a), dx, da, threads())
    return dx, da


def analyse(S: CSR, x: Tensor, a: Tensor, keys: Tensor | None = None, rate: Tensor | None = None) -> Tensor:
    out = x.new_empty(*x.shape[:3], a.shape[3])
    _call(kernels.analyse, _handle(S), _plain(x), _plain(a), out, threads())
    return _masked_(out, keys, rate)


def analyse_backward(
    S: CSR, dy: Tensor, x: Tensor, a: Tensor, needs: Needs, keys: Tensor | None = None, rate: Tensor | None = None
) -> Gradient:
    dx = x.new_empty(x.shape) if needs[0] else None
    da = a.new_empty(a.shape) if needs[1] else None
    dy = dy if keys is None or rate is None else dropout(dy.flatten(1), keys, rate).reshape(dy.shape)
    _call(kernels.analyse_backward, _handle(S), _plain(dy), _plain(x), _plain(a), dx, da, threads())
    return dx, da


def core(S: CSR, t: Tensor, G: Tensor, b: Tensor | None, a: Tensor, drop_G: Masks, drop_Z: Masks) -> Tensor:
    out = t.new_empty(len(G), t.shape[1], G.shape[2])
    _call(kernels.core, _handle(S), *_core(t, G, b, a, drop_G, drop_Z), out, threads())
    return out


def core_backward(
    S: CSR,
    dz: Tensor,
    t: Tensor,
    G: Tensor,
    b: Tensor | None,
    a: Tensor,
    drop_G: Masks,
    drop_Z: Masks,
    needs: tuple[bool, bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    dt = t.new_empty(len(G), *t.shape[1:]) if needs[0] else None
    dG = G.new_empty(G.shape) if needs[1] else None
    db = G.new_empty(len(G), *G.shape[2:]) if needs[2] else None
    da = a.new_empty(a.shape) if needs[3] else None
    _call(kernels.core_backward, _handle(S), _plain(dz), *_core(t, G, b, a, drop_G, drop_Z), dt, dG, db, da, threads())
    return dt, dG, db, da


def _core(t: Tensor, G: Tensor, b: Tensor | None, a: Tensor, drop_G: Masks, drop_Z: Masks) -> tuple[Tensor | None, ...]:
    bias = None if b is None else _plain(b)
    return _plain(t), _plain(G), bias, _plain(a), *_masks(*drop_G), *_masks(*drop_Z)


def _synthesise_features(S: CSR, X: CSR, a: Tensor) -> Tensor:
    """Clenshaw as in `portable.synthesise`, with X A_k formed when its turn comes."""
    order, count = a.shape[1] - 1, threads()
    current = features(X, a[:, order], None, None, None)
    previous = torch.zeros_like(current)
    for k in range(order - 1, -1, -1):
        if k == 0:  # the last step is S b_1, half of what `advance` adds
            current, previous = current / 2, previous
        _call(kernels.advance, _handle(S), previous, current, features(X, a[:, k], None, None, None), count)
        previous, current = current, previous
    return current[:, :, None, :]


def _gradient_of_features(S: CSR, dy: Tensor, X: CSR, a: Tensor) -> Tensor:
    """dA_k = X^T T_k(S) dy."""
    da, count = torch.empty_like(a), threads()
    previous, current = _plain(dy.flatten(2)).clone(), _plain(dy.flatten(2))
    for k in range(a.shape[1]):
        if k == 1:  # T_1 = S T_0 = (2 S T_0 - 0) / 2
            following = torch.zeros_like(current)
            _call(kernels.advance, _handle(S), following, current / 2, None, count)
            previous, current = current.clone(), following
        elif k > 1:
            _call(kernels.advance, _handle(S), previous, current, None, count)
            previous, current = current, previous
        da[:, k] = features_backward(X, current, None, None, False)[0]
    return da


def cross_entropy(scores: Tensor, labels: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    losses, grad = scores.new_empty(len(scores)), torch.empty_like(scores)
    _call(kernels.cross_entropy, _plain(scores), labels, _plain(nodes), losses, grad, threads())
    return losses, grad


def correct(scores: Tensor, labels: Tensor, nodes: Tensor) -> Tensor:
    out = torch.empty(len(scores), dtype=torch.int64)
    _call(kernels.correct, _plain(scores), labels, _plain(nodes), out, threads())
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
    _call(kernels.adam, p, g, m, v, lr, weight_decay, step, *betas, eps, threads())
