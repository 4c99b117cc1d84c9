"""`SpectralConv` as a layer among others: two Tucker convolutions in a network and training loop of one's own."""

import torch
import torch.nn.functional as F
from torch import nn

from codesgc import SpectralConv, load_dataset


class Net(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = SpectralConv(features, 16, 4, decomposition="tucker", rank=4, rank_in=16, rank_out=16)
        self.second = SpectralConv(16, classes, 4, decomposition="cp", rank=16, dropout={"input": 0.5})

    def forward(self, x, operator):
        return self.second(F.elu(self.first(x, operator)), operator)


torch.manual_seed(0)
graph = load_dataset("cora").row_normalised()
model = Net(graph.num_features, graph.num_classes)
operator = model.first.matrix(graph)  # normalise the graph once, not in every call
print(model.first.explain(graph.x, operator))

train_nodes = torch.randperm(graph.num_nodes)[:1000]
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(1, 41):
    model.train()
    loss = F.cross_entropy(model(graph.x, operator)[train_nodes], graph.y[train_nodes])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        model.eval()
        with torch.no_grad():
            right = (model(graph.x, operator).argmax(1) == graph.y).float()
        right[train_nodes] = 0
        accuracy = 100 * right.sum().item() / (graph.num_nodes - len(train_nodes))
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy on the other nodes {accuracy:.1f} %")
