"""Jacobi polynomials (paper, equations 19 to 21)."""

from typing import Any

import torch
from torch import Tensor

from codesgc.bases.base import Basis, three_term
from codesgc.errors import InputError


class Jacobi(Basis, name="jacobi"):
    """P_0 = 1, P_1 = (a - b) / 2 + (a + b + 2) / 2 t and, with c = 2k + a + b,

        P_k = (c (c - 1) t + (c - 1) (a^2 - b^2) / (c - 2)) / (2k (k + a + b)) P_{k-1}
              - (k + a - 1) (k + b - 1) c / (k (k + a + b) (c - 2)) P_{k-2}

    a and b are numbers >= -1 with a + b > -2, or tensors with one value a replicate. a = b = 0 is Legendre.

    >>> Jacobi(a=2.0, b=1.0).evaluate(torch.tensor([0.5], dtype=torch.float64), order=2).flatten().tolist()
    [1.0, 1.75, 1.3125]
    """

    fixed = True
    a: Tensor
    b: Tensor

    def __init__(self, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> None:
        super().__init__()
        for name, value in (("a", a), ("b", b)):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float64).clone(), persistent=False)
        if not bool(((self.a >= -1) & (self.b >= -1) & (self.a + self.b > -2)).all()):
            given = f"a={self.a.tolist()}, b={self.b.tolist()}"
            raise InputError(f"jacobi {given}: expected a >= -1, b >= -1 and a + b > -2")

    @classmethod
    def build(cls, order: int, channels: int, replicates: int | None, /, **options: Any) -> "Jacobi":
        if replicates is not None:  # one a and one b for each of them
            for name in ("a", "b"):
                options[name] = torch.as_tensor(options.get(name, 1.0), dtype=torch.float64).expand(replicates)
        return cls(**options)

    def evaluate(self, points: Tensor, order: int) -> Tensor:
        a, b = self.a.to(points)[..., None], self.b.to(points)[..., None]

        def step(k: int, p: Tensor, q: Tensor) -> Tensor:
            if k == 1:
                return (a - b) / 2 + (a + b + 2) / 2 * points
            c = 2 * k + a + b
            slope, offset = c * (c - 1), (c - 1) * (a**2 - b**2) / (c - 2)
            back = (k + a - 1) * (k + b - 1) * c / (k * (k + a + b) * (c - 2))
            return (slope * points + offset) / (2 * k * (k + a + b)) * p - back * q

        return three_term(order, torch.ones_like(points + a), step)

    def extra_repr(self) -> str:
        return f"a={self.a.tolist()}, b={self.b.tolist()}"
