"""Float64 that no input reaches is computed at export; what an input reaches is not."""

from __future__ import annotations

from typing import Any

import torch
from harness import Program, check_op, compare, lower

from executorch_webgpu.export.fx.fold_float64 import MOST, fold

DOUBLE = "a tensor must not be float64, got float64"


class Owner(torch.nn.Module):
    """A function of the inputs and a float64 buffer, or a state."""

    def __init__(self, function: Any, buffer: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("buffer", buffer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self.buffer, *inputs)


class Plain(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def on_cpu(program: Program) -> dict[str, str]:
    return {fallback.op: fallback.reason for fallback in program.report.fallbacks}


def frequencies(width: int) -> torch.Tensor:
    return 1.0 / 10000 ** (torch.arange(width, dtype=torch.float64) / width)


def positions(x: torch.Tensor) -> torch.Tensor:
    """Sines and cosines over a grid, in float64 until they are added."""
    rows, columns = (torch.arange(n, dtype=torch.float64) for n in x.shape[:2])
    down, across = torch.meshgrid(rows, columns, indexing="ij")
    angles = [torch.outer(grid.flatten(), frequencies(8)) for grid in (down, across)]
    made = torch.cat([f(a) for a in angles for f in (torch.sin, torch.cos)], 1)
    return x + made.to(torch.float32).reshape(*x.shape)


def test_positions_are_a_constant() -> None:
    program = check_op(positions, torch.randn(5, 7, 32))
    assert not {"aten.sin.default", "aten.cat.default"} & set(program.report.delegated)


def test_every_way_out_of_float64() -> None:
    def ways(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps = torch.arange(6, dtype=torch.float64) / 7
        return (
            x * steps.half(),
            x[(steps * 10).long().clamp(max=5)],
            torch.where(steps > 0.5, x, -x),
            x + steps.max(0).indices,
            (steps * 3).float(),  # a result that no input reaches
        )

    check_op(ways, torch.randn(6))


def test_float64_buffer_is_read_as_float32() -> None:
    buffer = torch.rand(3, 4, dtype=torch.float64)
    model = Owner(
        lambda b, x: x @ (b / 3).T.float() + (b.T.float().T.view(-1)[:3]), buffer
    )
    check_op(model, torch.randn(2, 4))
    assert model.buffer.dtype is torch.float64


def test_float64_that_an_input_reaches_stays() -> None:
    def mixed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps = torch.arange(4, dtype=torch.float64) / 10000
        return x + 1, (x.double() * steps).float(), steps * 2

    x = torch.randn(4)
    program = lower(Plain(mixed), (x,))
    compare(program(x), mixed(x), rtol=1e-6, atol=1e-12)
    assert program.report.delegated["aten.add.Tensor"] == 1
    reasons = on_cpu(program)
    assert set(reasons.values()) == {DOUBLE}
    assert "aten.mul.Tensor" in reasons


def test_states_are_not_constants() -> None:
    def counted(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        state.add_(1)
        return x + (state * 0.5).float()

    model, x = Owner(counted, torch.zeros(3, dtype=torch.float64)), torch.randn(3)
    program = lower(model, (x,))
    for call in (1, 2):
        compare(program(x), [x + 0.5 * call])
    assert not model.buffer.any(), "export must leave the state as it was"


def test_random_numbers_are_not_constants() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3, dtype=torch.float64).float()

    exported = torch.export.export(Plain(noisy), (torch.randn(3),))
    assert "aten.rand" in str(fold(exported).graph)


def test_large_constants_are_not_stored() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(MOST + 1, dtype=torch.float64).float()[-1]

    program = lower(Plain(long), (torch.randn(3),))
    assert on_cpu(program)["aten.arange.start_step"] == DOUBLE
    assert len(program.buffer) < MOST
