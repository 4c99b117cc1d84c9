"""From a NetworkX graph to a trained model with an honest interval, and the filters that it learned.

A stochastic block model with few edges inside the blocks and many between them: a heterophilic graph, on which a
low-pass filter fails and a learned one does not.
"""

import networkx as nx
import torch

from codesgc import Config, Graph, train

sizes = [60, 60, 60]
between, inside = 0.15, 0.02
blocks = nx.stochastic_block_model(sizes, [[inside if i == j else between for j in range(3)] for i in range(3)], seed=1)
labels = torch.tensor([block for block, size in enumerate(sizes) for _ in range(size)])
noise = torch.randn(180, 16, generator=torch.Generator().manual_seed(0)).abs()
features = noise + 0.5 * torch.nn.functional.one_hot(labels, 16)

graph = Graph.from_networkx(blocks, x=features, y=labels)
print(graph)

for name, decomposition, basis in (("APPNP", "appnp", "monomial"), ("L-CP", "cp", "jacobi")):
    config = Config(model=name, decomposition=decomposition, basis=basis, order=6, epochs=150, lr={"default": 0.02})
    result = train(graph, config, runs=3, keep_models=True)
    print(f"{name:6} {result.test_mean:.1f} +- {result.test_ci95:.1f} % on {len(result.runs)} random splits")

conv = result.models[0].layers[0]
eigenvalues = torch.linspace(-1, 1, 5)
response = torch.einsum("kn,jk->jn", conv.basis.evaluate(eigenvalues, conv.order), conv.coefficients().mean(0))
print("mean response per class at t = -1, -0.5, 0, 0.5, 1:")
for label, values in enumerate(response.tolist()):
    print(f"  class {label}: " + " ".join(f"{value:7.3f}" for value in values))
