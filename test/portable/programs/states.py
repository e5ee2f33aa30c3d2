"""Mutable buffers: what calls leave in them, and what calls that fail do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import test_states
import torch
from test_failed_calls import FAILURES, FULL, FUNCTIONS, GOOD, Memory
from test_states import Stateful
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from .case import RESET, Case, Fails, Inputs, Programs, Step, named
from .dtypes import FLOATS, label


def stateful(function: Callable[..., Any]) -> Case:
    steps: list[Step] = [(torch.randn(1, 3),) for _ in range(4)]
    steps += [RESET, *steps[::-1]]
    return Case(Stateful(function).eval(), steps, trusts=False)


def failing(name: str) -> Case:
    """Calls that fail between good ones, which they must not change."""
    bad = [Fails(inputs, said) for inputs, said in FAILURES.values()]
    if name == "counted":
        first, one = GOOD[0][:2], torch.tensor([1])
        bad = [Fails(*FULL), Fails(*FAILURES["in a cache"])]
        steps = [(*first, one), *bad, (*first, one), RESET, (*first, one)]
    else:
        steps = [each for good in GOOD for each in (*bad, good)]
        steps += [RESET, *GOOD]
    return Case(Memory(FUNCTIONS[name]), steps, example=GOOD[0], has_eager=False)


ROOM = 16


class Cached(nn.Module):
    """A cache by index, masked attention: no op that is not PyTorch's."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        for name in "kv":
            self.register_buffer(name, torch.zeros(1, 2, ROOM, 64, dtype=dtype))
        self.register_buffer("mask", torch.ones(ROOM, ROOM, dtype=torch.bool).tril())

    def forward(self, q: Any, k: Any, v: Any, at: torch.Tensor) -> torch.Tensor:
        self.k[:, :, at] = k
        self.v[:, :, at] = v
        mask = self.mask[at]
        return F.scaled_dot_product_attention(q, self.k, self.v, mask, enable_gqa=True)


def cached(dtype: torch.dtype) -> Case:
    s = Dim("s", min=1, max=8)

    def make(length: int, position: int) -> Inputs:
        heads = [torch.randn(1, count, length, 64).to(dtype) for count in (4, 2, 2)]
        return (*heads, torch.arange(position, position + length))

    steps: list[Step] = [make(*at) for at in ((5, 0), (1, 5), (8, 6), (1, 14), (4, 0))]
    steps += [Fails(make(2, ROOM - 1), "got 16"), make(1, 0), RESET, make(3, 0)]
    shapes = ({2: s}, {2: s}, {2: s}, {0: s})
    tolerance = 2e-2 if dtype is not torch.float32 else 1e-4
    limits = {"rtol": tolerance, "atol": tolerance}
    return Case(Cached(dtype), steps, example=make(3, 0), shapes=shapes, **limits)


class Positioned(nn.Module):
    """llama.update_cache and llama.custom_sdpa, at a position that is an int."""

    def __init__(self) -> None:
        super().__init__()
        for name in "kv":
            self.register_buffer(name, torch.zeros(2, ROOM, 2, 32))
        self.register_buffer("table", torch.randn(ROOM, 8))

    def forward(self, q: Any, k: Any, v: Any, pos: torch.Tensor) -> Any:
        at = pos[-1].item()
        torch._check_is_size(at)
        torch._check(at < ROOM)
        torch._check(at + q.size(1) <= ROOM)
        torch.ops.llama.update_cache(k, self.k, at)
        torch.ops.llama.update_cache(v, self.v, at)
        y = torch.ops.llama.custom_sdpa(q, self.k, self.v, at, None, 0.0, True)
        return y, self.table.narrow(0, at, q.size(1)) * 2


def positioned() -> Case:
    s = Dim("s", min=1, max=8)

    def make(length: int, position: int) -> Inputs:
        heads = [torch.randn(2, length, count, 32) for count in (6, 2, 2)]
        return (*heads, torch.tensor([position]))

    steps: list[Step] = [make(*at) for at in ((5, 0), (1, 5), (1, 6), (8, 7), (1, 15))]
    steps += [
        Fails(make(1, ROOM), "index must be in [0, 16), got 16"),
        Fails(make(5, ROOM - 4), "index must be in [0, 16), got 16"),
        Fails(make(1, -1), "index must be in [0, 16), got -1"),
        Fails(make(9, 0), ""),
        *(make(1, 3), RESET, make(2, 0)),
    ]
    shapes = ({1: s}, {1: s}, {1: s}, None)
    limits = {"rtol": 1e-3, "atol": 1e-3}
    return Case(Positioned(), steps, example=make(3, 2), shapes=shapes, **limits)


STATEFUL = (
    *(test_states.returned, test_states.hidden, test_states.window),
    *(test_states.last_input, test_states.delay, test_states.exchange),
    *(test_states.twice, test_states.constants),
)

PROGRAMS: Programs = {
    **named(positioned),
    **{
        f"failures {name}": lambda name=name: failing(name)
        for name in ("checked_first", "counted", "checked_late")
    },
    **{
        f"cache of {label(dtype)}": lambda dtype=dtype: cached(dtype)
        for dtype in FLOATS
    },
    **{
        f"state {function.__name__}": lambda function=function: stateful(function)
        for function in STATEFUL
    },
}
