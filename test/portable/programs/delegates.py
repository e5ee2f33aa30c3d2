"""Programs with several delegates."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from .case import RESET, Case, Programs, Step, named, of


def with_cpu_between() -> Case:
    """An op that stays behind, between two delegates of live sizes."""
    size = Dim("size", min=1, max=12)
    steps = [(torch.randn(n, 8),) for n in (5, 1, 12, 2, 5)]
    return of(
        lambda x: (torch.atan(x * 2 + 1).cumsum(0) - x.amax(0)).relu(),
        *steps,
        dims=[{0: size}],
        options={"operator_blocklist": ["aten.atan.default"]},
        delegates=2,
        atol=1e-3,
    )


def states_of_two() -> Case:
    """Two delegates, each with a state of its own."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(3))
            self.register_buffer("b", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.a.add_(x)
            y = torch.atan(self.a * 2)
            self.b.mul_(y)
            return self.b + x

    steps: list[Step] = [(torch.randn(3),) for _ in range(3)]
    options = {"operator_blocklist": ["aten.atan.default"]}
    return Case(Two(), [*steps, RESET, *steps], options=options, delegates=2)


def branches() -> Case:
    """Each body of a condition is a delegate."""
    first, second, last = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 4)

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = first, second, last

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.cond(
                x.sum() > 0,
                lambda x: torch.relu(self.first(x)),
                lambda x: self.second(x).sigmoid() * 2,
                (x,),
            )
            return self.last(y)

    x = torch.rand(3, 8)
    return Case(Branches().eval(), [(x,), (-x,), (x,)], delegates=4, strict=True)


PROGRAMS: Programs = named(with_cpu_between, states_of_two, branches)
