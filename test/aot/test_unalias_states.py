"""Which programs are rewritten because an op of theirs writes to a buffer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import Function
from torch import Tensor
from torch.nn import functional as F

from executorch_webgpu.export.fx.unalias_states import separate


class Buffered(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 3))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.state, x)


def is_rewritten(model: torch.nn.Module) -> bool:
    program = torch.export.export(model, (torch.randn(2, 3),))
    return separate(program) is not program


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.relu_(x * 2),
        lambda x: (x + 1).view(6).mul_(2),
        lambda x: torch.cat([x, x]).chunk(2)[1].add_(x),
    ],
)
def test_what_writes_to_results_is_left_as_it_is(
    function: Callable[[Tensor], Tensor],
) -> None:
    assert not is_rewritten(Function(function))


@pytest.mark.parametrize(
    "function",
    [
        lambda state, x: state.add_(x),
        lambda state, x: state.view(6)[1:].mul_(2) + x.sum(),
        lambda state, x: state.unbind(1)[2].copy_(x[:, 0]),
        lambda state, x: state.t().reshape(3, 2).t().relu_() + x,
    ],
)
def test_what_may_write_to_a_buffer_is_rewritten(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    assert is_rewritten(Buffered(function))
