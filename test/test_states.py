"""Modules that keep something between calls, in the ways people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import compare, lower
from torch import nn
from torch.utils import _pytree as pytree


class Stateful(nn.Module):
    """A function of two buffers, a parameter and an input."""

    def __init__(self, function: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(1, 3))
        self.register_buffer("b", torch.ones(1, 3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.weight = nn.Parameter(torch.tensor([[0.5, -1.0, 2.0]]))
        self.cell = nn.GRUCell(3, 3)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def returned(m: Any, x: torch.Tensor) -> Any:
    m.a.add_(x)
    m.count += 1
    return m.a, m.count


def hidden(m: Any, x: torch.Tensor) -> Any:
    h = m.cell(x, m.a)
    m.a.copy_(h)
    return h


def window(m: Any, x: torch.Tensor) -> Any:
    m.a.copy_(torch.cat([m.a[:, 1:], x[:, :1]], 1))
    return m.a


def last_input(m: Any, x: torch.Tensor) -> Any:
    change = x - m.a
    m.a.copy_(x)
    return change


def delay(m: Any, x: torch.Tensor) -> Any:
    late = m.a * 1.0
    m.a.copy_(m.b)
    m.b.copy_(x + 0)
    return late


def exchange(m: Any, x: torch.Tensor) -> Any:
    kept = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(kept)
    return m.a + x, m.b + x


def twice(m: Any, x: torch.Tensor) -> Any:
    y = x * 2
    m.a.copy_(y)
    m.b.copy_(y)
    return y


def constants(m: Any, x: torch.Tensor) -> Any:
    return x * m.weight, m.weight, m.b


@pytest.mark.parametrize(
    "function",
    [returned, hidden, window, last_input, delay, exchange, twice, constants],
    ids=lambda function: function.__name__,
)
def test_states_across_calls(function: Callable[..., Any]) -> None:
    model = Stateful(function).eval()
    example = (torch.randn(1, 3),)
    program = lower(model, example)
    assert program.report.complete, str(program.report)
    assert len(program.delegates) == 1
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(1, 3)
            expected = [t.clone() for t in pytree.tree_leaves(model(x))]
            compare(program.run(x), expected)
