"""A call of every op, judged by the limit that its registration names.

Each op is called as in the table, `op_calls.py`. The calls of one limit are one
program (`op_programs.py`), which leaves nothing to the CPU and contains the op itself,
or others if `op_coverage.REPLACED` says so. Elementwise ops, for which hypothesis draws
values, are in test_properties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import accuracy
import op_coverage
import pytest
import torch
from accuracy import Limit
from harness import check_op, lower
from op_programs import Call, Calls

QD = torch.ops.quantized_decomposed


def rounded_at_once(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    scale, zero = QD.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
    limits = (-128, 127, torch.int8)
    codes = QD.quantize_per_tensor.tensor(x, scale, zero, *limits)
    return codes, QD.dequantize_per_tensor.tensor(codes, scale, zero, *limits)


def rounded_by_rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    scale, zero = QD.choose_qparams_per_token_asymmetric(x, torch.int8)
    limits = (-128, 127, torch.int8)
    codes = QD.quantize_per_token(x, scale, zero, *limits)
    return codes, QD.dequantize_per_token(codes, scale, zero, *limits, torch.float32)


# They choose scales, of float64, which cannot leave a delegate: run with readers.
CHOICES = {
    "quantized_decomposed.choose_qparams.tensor": rounded_at_once,
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default": rounded_by_rows,
}


def nth(call: Call, number: int) -> Callable[..., torch.Tensor]:
    return lambda *inputs: call(*inputs)[number]


def names_of(limit: Limit) -> list[str]:
    elsewhere = op_coverage.drawn_ops() | CHOICES.keys()
    return [
        name
        for name in op_coverage.public_ops()
        if accuracy.of(name) is limit and name not in elsewhere
    ]


@pytest.mark.parametrize(
    "limit", filter(names_of, accuracy.LIMITS), ids=lambda limit: limit.name
)
def test_every_op(limit: Limit) -> None:
    calls = [Call(name) for name in names_of(limit)]
    inputs = [x for call in calls for x in call.inputs]
    program = lower(Calls(calls), inputs)
    assert program.report.complete, str(program.report)
    failures: list[str] = []
    for results in (program.run(*inputs), *(r for _, r in program.run_twins(*inputs))):
        # A program's outputs begin with the states that it changed.
        behind = program.behind[-len(results) :]
        left: Any = zip(results, behind, strict=True)
        for call in calls:
            for number in range(len(call(*call.inputs))):
                trouble = what_is_wrong(call, number, *next(left))
                if trouble:
                    failures.append(f"{call.name}, result {number}: {trouble}")
    assert not failures, "\n".join(failures)


def what_is_wrong(
    call: Call, number: int, result: torch.Tensor, behind: frozenset[str]
) -> str:
    """Empty if an op was executed, and its result is near enough."""
    wanted = call(*call.inputs)[number]
    kept = bool(behind & op_coverage.same_code(call.name))
    if kept is op_coverage.is_replaced(call.name):
        return f"became {sorted(behind)}"
    if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
        return f"{result.dtype} {list(result.shape)}, not {list(wanted.shape)}"
    if op_coverage.is_undefined(call.name):
        return ""
    limit = accuracy.of(call.name)
    if not limit.holds(nth(call, number), result, *call.inputs):
        return f"off by {(result.double() - wanted.double()).abs().max():g}"
    return ""


@pytest.mark.parametrize(("name", "rounded"), CHOICES.items())
def test_chosen_scales(name: str, rounded: Callable[..., Any]) -> None:
    """What chooses a scale, with its readers: the scale itself is never seen."""
    program = check_op(rounded, torch.randn(7, 16))
    assert name in program.report.delegated
