"""The engine's products in plain torch: on any device, and what the native kernels are tested against.

Every function is numeric only; `ops` makes torch operators of them, with gradients. B replicates come as one leading
axis. A replicate is multiplied by itself, because a batched product rounds a slice by where it lies in the batch.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from codesgc.engine.masks import drop as dropout
from codesgc.engine.masks import stream_key
from codesgc.engine.sparse import CSR

__all__ = [
    "adam_",
    "affine",
    "affine_backward",
    "analyse",
    "analyse_backward",
    "core",
    "core_backward",
    "correct",
    "cross_entropy",
    "dropout",
    "features",
    "features_backward",
    "filter",
    "filter_backward",
    "masked",
    "matmul",
    "stream_key",
    "synthesise",
    "synthesise_backward",
]

Signals = Tensor | CSR
Needs = tuple[bool, bool]  # whether the gradients in (x, a) are wanted
Gradient = tuple[Tensor | None, Tensor | None]
Masks = tuple[Tensor | None, Tensor | None]  # keys and rates of a dropout


def matmul(x: Tensor, w: Tensor) -> Tensor:
    """x w: (B or 1, N, I), (B, I, J) -> (B, N, J)."""
    shared = len(x) == 1
    return torch.stack([torch.mm(x[0 if shared else b].contiguous(), w[b].contiguous()) for b in range(len(w))])


def masked(x: Tensor, keys: Tensor | None, rate: Tensor | None) -> Tensor:
    """x (B, ...), dropped with the masks of keys (B,) at rates (B,) if there are any."""
    return x if keys is None or rate is None else dropout(x.flatten(1), keys, rate).reshape(x.shape)


def affine(x: Tensor, w: Tensor, bias: Tensor | None, keys: Tensor | None, rate: Tensor | None) -> Tensor:
    """dropped(x w + 1 bias^T): (B or 1, N, I), (B, I, J), (B, J) -> (B, N, J)."""
    return masked(matmul(x, w) if bias is None else matmul(x, w) + bias[:, None], keys, rate)


def affine_backward(
    x: Tensor, w: Tensor, dy: Tensor, keys: Tensor | None, rate: Tensor | None, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dx = y w^T (B, N, I), dw = x^T y, db = 1^T y for y = dropped(dy)."""
    y = masked(dy, keys, rate)
    return (
        matmul(y, w.mT) if needs[0] else None,
        matmul(x.mT, y) if needs[1] else None,
        y.sum(1) if needs[2] else None,
    )


def features(X: CSR, w: Tensor, bias: Tensor | None, keys: Tensor | None, rate: Tensor | None) -> Tensor:
    """dropped(X w + 1 bias^T) for each replicate: w (B, I, J) -> (B, N, J)."""
    return masked(X @ w if bias is None else X @ w + bias[:, None], keys, rate)


def features_backward(
    X: CSR, dy: Tensor, keys: Tensor | None, rate: Tensor | None, bias: bool
) -> tuple[Tensor, Tensor | None]:
    """dw = X^T y (B, I, J) and, for a bias, db = 1^T y for y = dropped(dy)."""
    y = masked(dy, keys, rate)
    return X.T @ y, y.sum(1) if bias else None


def chebyshev_terms(S: CSR, v: Tensor, order: int) -> Iterator[Tensor]:
    """T_0(S) v, ..., T_order(S) v for v (B, N, C), each valid until the next but one is asked for."""
    yield v
    if order == 0:
        return
    previous, current = v.clone(), S @ v
    yield current
    for _ in range(order - 1):
        previous, current = current, S.advance(previous, current)
        yield current


def filter(S: CSR, h: Tensor, m: Tensor, keys: Tensor | None, rate: Tensor | None) -> Tensor:
    """dropped(sum_k T_k(S) h diag(m_k)): h (B, N, C), m (B, K+1, C) -> (B, N, C)."""
    out = torch.zeros_like(h)
    for k, term in enumerate(chebyshev_terms(S, h, m.shape[-2] - 1)):
        out.addcmul_(term, m[:, k, None, :])
    return masked(out, keys, rate)


def filter_backward(
    S: CSR, dy: Tensor, h: Tensor, m: Tensor, needs: Needs, keys: Tensor | None, rate: Tensor | None
) -> Gradient:
    """Of y = dropped(dy): dh = sum_k T_k(S) y diag(m_k),  dm[k, c] = <h[:, c], T_k(S) y[:, c]>: one sweep over y."""
    dy = masked(dy, keys, rate)
    dh = torch.zeros_like(h) if needs[0] else None
    dm = torch.empty_like(m) if needs[1] else None
    for k, term in enumerate(chebyshev_terms(S, dy, m.shape[-2] - 1)):
        if dh is not None:
            dh.addcmul_(term, m[:, k, None, :])
        if dm is not None:
            dm[:, k] = (h * term).sum(1)
    return dh, dm


def times(x: Signals, a: Tensor) -> Tensor:
    """x A_k as (B, N, Q J): x (B, N, Q, I) or CSR (N, I), a (B, I, J)."""
    if isinstance(x, CSR):
        return x @ a
    return matmul(x.flatten(1, 2), a).reshape(*x.shape[:2], -1)


def transpose_times(x: Signals, y: Tensor) -> Tensor:
    """x^T y as (B, I, J), summed over nodes and Q: x (B, N, Q, I) or CSR (N, I), y (B, N, Q J)."""
    if isinstance(x, CSR):
        return x.T @ y
    batch, _, _, columns = x.shape
    return matmul(x.reshape(batch, -1, columns).mT, y.reshape(batch, x.shape[1] * x.shape[2], -1))


def groups_of(x: Signals) -> int:
    return 1 if isinstance(x, CSR) else x.shape[2]


def synthesise(S: CSR, x: Signals, a: Tensor, keys: Tensor | None = None, rate: Tensor | None = None) -> Tensor:
    """Clenshaw: b_k = x A_k + 2 S b_{k+1} - b_{k+2},  Y = x A_0 + S b_1 - b_2."""
    order, groups = a.shape[1] - 1, groups_of(x)
    if order == 0:
        return masked(times(x, a[:, 0]).unflatten(2, (groups, -1)), keys, rate)
    current = times(x, a[:, order])
    previous = torch.zeros_like(current)
    for k in range(order - 1, 0, -1):
        previous, current = current, S.advance(previous, current).add_(times(x, a[:, k]))
    return masked((S @ current).sub_(previous).add_(times(x, a[:, 0])).unflatten(2, (groups, -1)), keys, rate)


def synthesise_backward(
    S: CSR, dy: Tensor, x: Signals, a: Tensor, needs: Needs, keys: Tensor | None = None, rate: Tensor | None = None
) -> Gradient:
    """dx = sum_k (T_k(S) dy) A_k^T,  dA_k = x^T T_k(S) dy: one sweep over dy, dropped."""
    dy = masked(dy, keys, rate)
    dx = torch.zeros_like(x) if needs[0] and isinstance(x, Tensor) else None
    da = torch.empty_like(a) if needs[1] else None
    for k, term in enumerate(chebyshev_terms(S, dy.flatten(2), a.shape[1] - 1)):
        if da is not None:
            da[:, k] = transpose_times(x, term)
        if dx is not None:
            dx += times(term.reshape(dy.shape), a[:, k].mT).reshape(dx.shape)
    return dx, da


def analyse(S: CSR, x: Tensor, a: Tensor, keys: Tensor | None = None, rate: Tensor | None = None) -> Tensor:
    """sum_k (T_k(S) x) A_k: x (B, N, Q, I), a (B, K+1, I, J) -> (B, N, Q, J)."""
    out = x.new_zeros(*x.shape[:3], a.shape[-1])
    for k, term in enumerate(chebyshev_terms(S, x.flatten(2), a.shape[1] - 1)):
        out += times(term.reshape(x.shape), a[:, k]).reshape(out.shape)
    return masked(out, keys, rate)


def analyse_backward(
    S: CSR, dy: Tensor, x: Tensor, a: Tensor, needs: Needs, keys: Tensor | None = None, rate: Tensor | None = None
) -> Gradient:
    """dx = sum_k T_k(S) (dy A_k^T), from the output side;  dA_k = (T_k(S) x)^T dy with the terms computed again."""
    dy = masked(dy, keys, rate)
    da = torch.empty_like(a) if needs[1] else None
    if da is not None:
        for k, term in enumerate(chebyshev_terms(S, x.flatten(2), a.shape[1] - 1)):
            da[:, k] = transpose_times(term.reshape(x.shape), dy.flatten(2))
    return synthesise(S, dy, a.mT) if needs[0] else None, da


def core(S: CSR, t: Tensor, G: Tensor, b: Tensor | None, a: Tensor, drop_G: Masks, drop_Z: Masks) -> Tensor:
    """dropped_Z(sum_k T_k(S) (H a_k)) for H = dropped_G(t G + 1 b^T): (B, N, Q).

    t (B or 1, N, P), G (B, P, Q, R), b (B, Q, R), a (B, K+1, R).
    """
    return synthesise(S, _signals(t, G, b, drop_G), a[..., None], *drop_Z)[..., 0]


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
    """dt (B, N, P), dG, db and da from dz (B, N, Q)."""
    H = _signals(t, G, b, drop_G)
    dH, da = synthesise_backward(S, dz[..., None], H, a[..., None], (any(needs[:3]), needs[3]), *drop_Z)
    dt = dG = db = None
    if dH is not None:
        dt, dG, db = affine_backward(t, G.flatten(2), dH.flatten(2), *drop_G, needs[:3])
    return (
        dt,
        None if dG is None else dG.reshape(G.shape),
        None if db is None else db.reshape(len(db), *G.shape[2:]),
        None if da is None else da[..., 0],
    )


def _signals(t: Tensor, G: Tensor, b: Tensor | None, drop: Masks) -> Tensor:
    """H: (B, N, Q, R)."""
    return affine(t, G.flatten(2), None if b is None else b.flatten(1), *drop).unflatten(2, G.shape[2:])


def cross_entropy(scores: Tensor, labels: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over nodes (B, n) of -log softmax(scores)[label] for each replicate (B,), and its gradient (B, N, J)."""
    where = nodes[..., None].expand(*nodes.shape, scores.shape[-1])
    logs = scores.gather(1, where).log_softmax(-1)  # (B, n, J)
    wanted = labels[nodes]
    losses = -logs.gather(2, wanted[..., None])[..., 0].mean(1)
    rows = (logs.exp() - F.one_hot(wanted, scores.shape[-1])) / nodes.shape[1]
    return losses, torch.zeros_like(scores).scatter_(1, where, rows)


def correct(scores: Tensor, labels: Tensor, nodes: Tensor) -> Tensor:
    """How many of nodes (B, n) have their largest score at their label: (B,)."""
    return (scores.argmax(-1).gather(1, nodes) == labels[nodes]).sum(1)


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
    """One update of p, m and v (B, ...) in place; lr, weight_decay and step are (B,), in float64."""
    shape = (-1, *[1] * (p.dim() - 1))
    grad = g.addcmul(weight_decay.to(p).view(shape), p)
    m.lerp_(grad, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    rate = (lr / (1 - betas[0] ** step)).to(p).view(shape)
    p.sub_(rate * m / (v / (1 - betas[1] ** step).to(p).view(shape)).sqrt_().add_(eps))
