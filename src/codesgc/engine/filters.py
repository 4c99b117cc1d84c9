"""The three products with Chebyshev polynomials of a graph matrix, and their gradients.

For a symmetric S with its spectrum in [-1, 1], and h, x, Y with the nodes as rows:

    filter(S, h, m)       Y = sum_k T_k(S) h diag(m_k)       the columns of h propagate, each with its own polynomial
    synthesise(S, x, A)   Y = sum_k T_k(S) (x A_k)           the columns of the result propagate (Clenshaw)
    analyse(S, x, A)      Y = sum_k (T_k(S) x) A_k           the columns of x propagate

The last two are the same function: `synthesise` is for results narrower than x, `analyse` for the opposite. Each is
linear in its two arguments, and S is its own transpose, so both gradients are again sums of T_k(S) applied to dY
(or to x): one more sweep of the recurrence T_{k+1} = 2 S T_k - T_{k-1}, of which only two terms are ever kept. Memory
is a few buffers of one term's size, whatever the order.

The core of Tucker, a dense product followed by a synthesis, is one function, `core`: the tensor between the two would
be by far the largest of all.

Shapes: S has N rows; h (..., N, C) and m (..., K+1, C); x (..., N, Q, I) and A (..., K+1, I, J) give Y (..., N, Q, J),
where the middle axis Q is a batch of signals that share the coefficients. x may also be a CSR of features (N, I), then
Y is (..., N, 1, J).
"""

import torch
from torch import Tensor

from codesgc.engine import ops
from codesgc.engine.dropout import Dropout, broadcast, masks_for
from codesgc.engine.sparse import CSR


def _flat(t: Tensor, batch: torch.Size, axes: int) -> Tensor:
    """Leading axes broadcast to `batch` and merged into one; the last `axes` axes stay."""
    own = t.shape[t.dim() - axes :]
    return t.expand(*batch, *own).reshape(-1, *own).contiguous()


def filter(S: CSR, h: Tensor, m: Tensor, drop: Dropout | None = None) -> Tensor:
    """dropped(sum_k T_k(S) h diag(m_k)): h (..., N, C), m (..., K+1, C) or (..., K+1, 1) -> (..., N, C)."""
    batch, masks = masks_for(drop, broadcast(h.shape[:-2], m.shape[:-2]))
    m = m.expand(*m.shape[:-1], h.shape[-1])
    out: Tensor = ops.filter(S.handle, _flat(h, batch, 2), _flat(m, batch, 2), *masks)
    return out.reshape(*batch, *h.shape[-2:])


def synthesise(S: CSR, x: Tensor | CSR, a: Tensor, drop: Dropout | None = None) -> Tensor:
    """dropped(sum_k T_k(S) (x A_k)), propagating Q J columns: x (..., N, Q, I) or CSR (N, I), a (..., K+1, I, J)."""
    if isinstance(x, CSR):
        assert drop is None
        batch = broadcast(x.batch, a.shape[:-3])
        X, keys, rate = x.operands(batch)
        out: Tensor = ops.synthesise_features(S.handle, X.handle, _flat(a, batch, 3), keys, rate)
    else:
        batch, masks = masks_for(drop, broadcast(x.shape[:-3], a.shape[:-3]))
        out = ops.synthesise(S.handle, _flat(x, batch, 3), _flat(a, batch, 3), *masks)
    return out.reshape(*batch, *out.shape[1:])


def analyse(S: CSR, x: Tensor, a: Tensor) -> Tensor:
    """sum_k (T_k(S) x) A_k, propagating Q I columns: x (..., N, Q, I), a (..., K+1, I, J)."""
    batch = broadcast(x.shape[:-3], a.shape[:-3])
    out: Tensor = ops.analyse(S.handle, _flat(x, batch, 3), _flat(a, batch, 3), None, None)
    return out.reshape(*batch, *out.shape[1:])


def core(
    S: CSR,
    t: Tensor,
    G: Tensor,
    b: Tensor | None,
    a: Tensor,
    drop_G: Dropout | None = None,
    drop_Z: Dropout | None = None,
) -> Tensor:
    """dropped_Z(sum_k T_k(S) (H a_k)) for H = dropped_G(t G + 1 b^T), propagating Q columns, and never storing H.

    t (..., N, P), G (..., P, Q, R), b (..., Q, R), a (..., K+1, R) -> (..., N, Q).
    """
    seeds = [drop.seed.shape for drop in (drop_G, drop_Z) if drop is not None and drop.active]
    batch = broadcast(t.shape[:-2], G.shape[:-3], a.shape[:-2], *seeds)
    masks = *masks_for(drop_G, batch)[1], *masks_for(drop_Z, batch)[1]
    t = t[None] if t.dim() == 2 else _flat(t, batch, 2)
    b = None if b is None else _flat(b, batch, 2)
    out: Tensor = ops.core(S.handle, t, _flat(G, batch, 3), b, _flat(a, batch, 2), *masks)
    return out.reshape(*batch, *out.shape[1:])
