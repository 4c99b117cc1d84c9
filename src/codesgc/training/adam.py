"""Adam for replicates: every one has its own learning rates, weight decays and step count."""

from collections.abc import Sequence

import torch
from torch import Tensor

from codesgc.engine.ops import engine


class Adam:
    """The update of torch.optim.Adam, per replicate:

        g = dL/dp + wd p,   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
        p <- p - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

    Parameters (B, ...) come with learning rates and weight decays (B,); t is (B,), so that replicates may have started
    at different times.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        replicates: int,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters, self.betas, self.eps = list(parameters), betas, eps
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]
        device = self.parameters[0].device
        self.step_count = torch.zeros(replicates, dtype=torch.float64, device=device)
        self.lr = torch.zeros(len(self.parameters), replicates, dtype=torch.float64, device=device)
        self.weight_decay = torch.zeros_like(self.lr)

    def state(self) -> list[Tensor]:
        """Every tensor with a replicate axis in front, for moving replicates between slots."""
        return [*self.m, *self.v, self.step_count, self.lr.T, self.weight_decay.T]

    @torch.no_grad()
    def step(self) -> None:
        """One update; gradients are taken from the parameters and cleared."""
        self.step_count += 1
        for i, (p, m, v) in enumerate(zip(self.parameters, self.m, self.v, strict=True)):
            if p.grad is None:  # it has no say in the loss, as in torch
                continue
            rates = self.lr[i], self.weight_decay[i]
            engine(p).adam_(p, p.grad, m, v, *rates, self.step_count, self.betas, self.eps)
            p.grad = None
