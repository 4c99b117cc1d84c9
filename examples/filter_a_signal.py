"""Low-pass a noisy signal on a ring with one convolution whose coefficients are set by hand.

One input channel, one output channel: W[0, 0, :] are the coefficients of the polynomial itself, so the frequency
response of the filter is `basis.evaluate(eigenvalues) . W[0, 0]`. Here it is the interpolant of exp(-4 (1 - t)), a heat
kernel in the eigenvalues t of the normalised adjacency.
"""

import torch

from codesgc import Graph, SpectralConv
from codesgc.bases.base import chebyshev_nodes

nodes, order = 200, 20
ring = Graph([range(nodes), [*range(1, nodes), 0]], to_undirected=True)

conv = SpectralConv(1, 1, order, basis="interpolation", matrix="sym", decomposition="full", bias=False)
with torch.no_grad():
    points, _ = chebyshev_nodes(order)
    conv.decomposition.W[:, 0, 0] = torch.exp(-4 * (1 - points))  # a coefficient is the filter's value at a node

angles = torch.arange(nodes) * (2 * torch.pi / nodes)
clean = torch.sin(2 * angles)
noisy = clean + 0.5 * torch.randn(nodes, generator=torch.Generator().manual_seed(0))
smooth = conv(noisy[:, None], ring)[:, 0].detach()

before, after = ((signal - clean).square().mean().sqrt().item() for signal in (noisy, smooth))
print(f"error before {before:.3f}, after {after:.3f}")
assert after < 0.6 * before
