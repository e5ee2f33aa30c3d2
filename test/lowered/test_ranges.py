"""int64 that does not fit 32 bits stays on the CPU, with the reason; nothing else."""

from __future__ import annotations

from typing import Any

import torch
from harness import Program, compare, lower

BIG = 2**40


class Function(torch.nn.Module):
    def __init__(self, function: Any, buffer: torch.Tensor | None = None) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("buffer", buffer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = inputs if self.buffer is None else (*inputs, self.buffer)
        return self.function(*given)


def check(model: torch.nn.Module, *inputs: torch.Tensor) -> Program:
    program = lower(model, inputs)
    compare(program(*inputs), model(*inputs))
    return program


def reasons(program: Program) -> dict[str, str]:
    return {fallback.op: fallback.reason for fallback in program.report.fallbacks}


COUNT, REAL = torch.arange(4), torch.randn(4)


def numbers(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x + 1.5,
        i - BIG,
        torch.where(i > 1, i, BIG) // 3,
        torch.nn.functional.pad(i, (1, 1), value=-BIG),
        i.scatter(0, torch.tensor([1]), BIG),
        i == BIG,
        torch.full((4,), BIG).float() * x,
    )


def test_large_numbers_stay_on_the_cpu() -> None:
    program = check(Function(numbers), COUNT, REAL)
    assert program.report.delegated["aten.add.Tensor"] == 1
    assert program.report.delegated["aten.mul.Tensor"] == 1
    assert reasons(program) == {
        name: f"an int64 must fit int32, got {value}"
        for name, value in {
            "aten.sub.Tensor": BIG,
            "aten.scalar_tensor.default": BIG,
            "aten.where.self": BIG,
            "aten.div.Tensor_mode": BIG,
            "aten.constant_pad_nd.default": -BIG,
            "aten.scatter.value": BIG,
            "aten.full.default": BIG,
            "dim_order_ops._to_dim_order_copy.default": BIG,
        }.items()
    } | {"aten.eq.Scalar": f"an integer scalar must fit int32, got {BIG}"}


def test_large_constants_stay_on_the_cpu() -> None:
    def function(
        i: torch.Tensor, x: torch.Tensor, buffer: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return x * 2.0, i + buffer, i * torch.tensor([1, BIG, 2, 3]), i + 1

    buffer = torch.tensor([1, -BIG, 3, 4])
    program = check(Function(function, buffer), COUNT, REAL)
    found = reasons(program)
    assert found["aten.add.Tensor"] == f"an int64 must fit int32, got {-BIG}"
    assert found["aten.mul.Tensor"] == f"an int64 must fit int32, got {BIG}"
    assert program.report.delegated["aten.mul.Tensor"] == 1
    assert program.report.delegated["aten.add.Tensor"] == 1


def test_what_constants_amount_to_is_known() -> None:
    def function(i: torch.Tensor, buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return i + torch.arange(4) * 10**9 * 9, i + buffer * 1000, i * 7

    program = check(Function(function, torch.tensor([1, 2, 3, 10**7])), COUNT)
    found = {(f.op, f.reason) for f in program.report.fallbacks}
    limit = "an int64 must fit int32, got"
    assert found == {
        ("aten.mul.Tensor", f"{limit} 3000000000"),
        ("aten.mul.Tensor", f"{limit} 27000000000"),
        ("aten.add.Tensor", f"{limit} 27000000000"),
        ("aten.mul.Tensor", f"{limit} 10000000000"),
        ("aten.add.Tensor", f"{limit} 10000000000"),
    }
    assert program.report.delegated["aten.mul.Tensor"] == 1


def test_large_numbers_that_change_nothing_are_no_obstacle() -> None:
    def function(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return i.clamp(-BIG, BIG), i[:BIG], x.clamp(max=BIG), x > BIG

    assert check(Function(function), COUNT, REAL).report.complete


def test_float64_stays_on_the_cpu() -> None:
    dtype = torch.float64

    def function(
        i: torch.Tensor, x: torch.Tensor, y: torch.Tensor, buffer: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            x + 1.5,
            x.to(dtype) * 3,
            y @ buffer,
            x.sum(dtype=dtype),
            i.to(dtype).sqrt(),
            torch.softmax(x, 0, dtype=dtype).float(),
            (x + torch.tensor(0.5, dtype=dtype)) * 2,
        )

    model = Function(function, torch.randn(4, 4, dtype=dtype))
    program = check(model, COUNT, REAL, torch.randn(3, 4, dtype=dtype))
    delegated = program.report.delegated
    assert delegated["aten.add.Tensor"] == 2
    assert "aten.mm.default" in reasons(program)
    assert {f.reason for f in program.report.fallbacks} == {
        "a tensor must not be float64, got float64"
    }


def test_export_leaves_a_counter_as_it_was() -> None:
    def counted(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        return torch.cummax(x, 0).values + count

    model = Function(counted, torch.zeros(1, dtype=torch.int64))
    lower(model, (REAL,))
    assert int(model.buffer) == 0
