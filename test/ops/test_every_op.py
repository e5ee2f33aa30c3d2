"""A call of every op, judged by the limit that docs/ops.md gives for it.

Each op is called as in the table, `op_calls.py`. The calls of one limit are one
program, which leaves nothing to the CPU and contains the op itself, or others if
`accuracy.REPLACED` says so. Elementwise ops, for which hypothesis draws values, are
in test_properties; what is in neither is named in `accuracy.OUTSIDE`, with the test
that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accuracy
import op_calls
import pytest
import torch
from accuracy import Limit
from harness import check_op, lower
from torch.utils import _pytree as pytree


class Call:
    """An op on operands of float32, as a function of those that are not constant."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.overload = accuracy.overload_of(name)
        make = op_calls.Make(torch.float32)
        leaves, self.spec = pytree.tree_flatten(op_calls.call_of(name, make))
        constants = {id(tensor) for tensor in make.constants}
        self.leaves = leaves
        tensors = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.constant = [i for i in tensors if id(leaves[i]) in constants]
        self.open = [i for i in tensors if i not in self.constant]
        self.inputs = tuple(leaves[i] for i in self.open)

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return self.run(dict(zip(self.open, inputs)))

    def run(self, given: dict[int, torch.Tensor]) -> list[torch.Tensor]:
        leaves = [given.get(i, leaf) for i, leaf in enumerate(self.leaves)]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.overload(*args, **kwargs))
        # Of a bag's results, exported programs use the first.
        return results[:1] if "embedding_bag" in self.name else results


class Calls(torch.nn.Module):
    """Calls side by side, with their constants as buffers."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self.calls = calls
        for number, call in enumerate(calls):
            for i in call.constant:
                self.register_buffer(f"c{number}_{i}", call.leaves[i])

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(inputs)
        results: list[torch.Tensor] = []
        for number, call in enumerate(self.calls):
            given = {i: next(left) for i in call.open}
            given |= {i: getattr(self, f"c{number}_{i}") for i in call.constant}
            results += call.run(given)
        return tuple(results)


def nth(call: Call, number: int) -> Callable[..., torch.Tensor]:
    return lambda *inputs: call(*inputs)[number]


def names_of(limit: Limit) -> list[str]:
    elsewhere = accuracy.drawn_ops() | accuracy.OUTSIDE.keys()
    return [
        name
        for name in accuracy.public_ops()
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
        left: Any = zip(results, program.behind, strict=True)
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
    kept = bool(behind & accuracy.same_code(call.name))
    if kept is accuracy.is_replaced(call.name):
        return f"became {sorted(behind)}"
    if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
        return f"{result.dtype} {list(result.shape)}, not {list(wanted.shape)}"
    if accuracy.is_undefined(call.name):
        return ""
    limit = accuracy.of(call.name)
    if not limit.holds(nth(call, number), result, *call.inputs):
        return f"off by {(result.double() - wanted.double()).abs().max():g}"
    return ""


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


@pytest.mark.parametrize(
    ("name", "rounded"),
    [
        ("quantized_decomposed.choose_qparams.tensor", rounded_at_once),
        (
            "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
            rounded_by_rows,
        ),
    ],
)
def test_chosen_scales(name: str, rounded: Callable[..., Any]) -> None:
    """What chooses a scale, with its readers: the scale itself is never seen."""
    program = check_op(rounded, torch.randn(7, 16))
    assert name in program.report.delegated


def test_the_others_are_in_the_tests_named() -> None:
    for name, (module, _) in accuracy.OUTSIDE.items():
        text = (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")
        assert f'"{name}"' in text, f"{module} must assert that {name} is delegated"
