"""Adam for replicates against torch's own."""

import pytest
import torch
from oracles import normal
from torch import Tensor, nn

from codesgc.training.adam import Adam

RATES = [(0.1, 0.0), (0.02, 0.5), (0.0, 0.1)]  # learning rate and weight decay of three replicates
STEPS = 6


def gradient(step: int, shape: tuple[int, ...], parameter: int = 0) -> Tensor:
    """With a share of exact zeros, as a dead unit gives."""
    g = normal(*shape, seed=10 * step + parameter)
    g[g.abs() < 0.3] = 0
    return g


def of_torch(start: Tensor, b: int, lr: float, decay: float, steps: int = STEPS, first: int = 0) -> Tensor:
    p = nn.Parameter(start[b].clone())
    optimizer = torch.optim.Adam([p], lr=lr, weight_decay=decay)
    for step in range(first, first + steps):
        p.grad = gradient(step, start.shape)[b]
        optimizer.step()
    return p.detach()


def replicated(start: Tensor) -> tuple[nn.Parameter, Adam]:
    p = nn.Parameter(start.clone())
    optimizer = Adam([p], 3)
    optimizer.lr[0], optimizer.weight_decay[0] = torch.tensor(RATES, dtype=torch.float64).T
    return p, optimizer


def advance(p: nn.Parameter, optimizer: Adam, steps: int = STEPS, first: int = 0) -> None:
    for step in range(first, first + steps):
        p.grad = gradient(step, p.shape)
        optimizer.step()


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (3,), (3, 0)])
def test_every_replicate_is_updated_as_by_torch(shape: tuple[int, ...]) -> None:
    start = normal(*shape)
    p, optimizer = replicated(start)
    advance(p, optimizer)
    for b, (lr, decay) in enumerate(RATES):
        torch.testing.assert_close(p.detach()[b], of_torch(start, b, lr, decay), rtol=1e-12, atol=1e-14)
    assert torch.equal(p[2], start[2])  # a learning rate of 0


def test_single_precision_is_that_of_torch() -> None:
    start = normal(3, 50).float()
    p, optimizer = replicated(start)
    for step in range(STEPS):
        p.grad = gradient(step, p.shape).float()
        optimizer.step()
    for b, (lr, decay) in enumerate(RATES):
        torch.testing.assert_close(p.detach()[b], of_torch(start.double(), b, lr, decay).float(), rtol=1e-5, atol=1e-6)


def test_parameters_have_rates_of_their_own() -> None:
    starts = [normal(2, 4), normal(2, 3, seed=1)]
    ps = [nn.Parameter(s.clone()) for s in starts]
    optimizer = Adam(ps, 2)
    optimizer.lr.copy_(torch.tensor([[0.1, 0.2], [0.3, 0.4]]))
    optimizer.weight_decay.copy_(torch.tensor([[0.0, 0.1], [0.2, 0.3]]))
    for step in range(STEPS):
        for i, p in enumerate(ps):
            p.grad = gradient(step, p.shape, i)
        optimizer.step()
    for i, start in enumerate(starts):
        for b in range(2):
            q = nn.Parameter(start[b].clone())
            reference = torch.optim.Adam([q], lr=(0.1, 0.2, 0.3, 0.4)[2 * i + b], weight_decay=0.1 * (2 * i + b))
            for step in range(STEPS):
                q.grad = gradient(step, start.shape, i)[b]
                reference.step()
            torch.testing.assert_close(ps[i].detach()[b], q.detach(), rtol=1e-5, atol=1e-7)  # rates were float32


def test_replicates_do_not_touch_one_another() -> None:
    start = normal(3, 4)
    outs = []
    for factor in (1.0, 1e6):
        p, optimizer = replicated(start)
        for step in range(STEPS):
            p.grad = gradient(step, p.shape)
            p.grad[1] *= factor
            optimizer.step()
        outs.append(p.detach())
    assert torch.equal(outs[0][[0, 2]], outs[1][[0, 2]])


def test_a_replicate_may_start_later_in_the_slot_of_another() -> None:
    """Its moments and step count start at 0, those of its neighbours go on."""
    start = normal(3, 4)
    p, optimizer = replicated(start)
    advance(p, optimizer, 3)
    for tensor in optimizer.state():
        tensor[1].zero_()
    optimizer.lr[0, 1], optimizer.weight_decay[0, 1] = 0.05, 0.2
    with torch.no_grad():
        p[1] = start[1] + 1
    advance(p, optimizer, 3, first=3)
    torch.testing.assert_close(p.detach()[0], of_torch(start, 0, *RATES[0]), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(p.detach()[1], of_torch(start + 1, 1, 0.05, 0.2, 3, first=3), rtol=1e-12, atol=1e-14)
    assert optimizer.step_count.tolist() == [6, 3, 6]


def test_gradients_are_cleared() -> None:
    p, optimizer = replicated(normal(3, 4))
    advance(p, optimizer, 1)
    assert p.grad is None
