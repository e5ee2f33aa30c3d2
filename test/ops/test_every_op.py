"""A call of every op, judged by the limit that its registration names.

Each op is called as in the table, `op_calls.py`. The calls of one limit are one
program, which leaves nothing to the CPU and contains the op itself, or others if
`op_coverage.REPLACED` says so. What a call writes in place is a state of the program,
and a result. Elementwise ops, for which hypothesis draws values, are in
test_properties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import accuracy
import op_calls
import op_coverage
import pytest
import torch
from accuracy import Limit
from harness import check_op, lower
from torch.utils import _pytree as pytree

VK, QD = torch.ops.et_vk, torch.ops.quantized_decomposed
Results = list[torch.Tensor]


def rounded_linear(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor,
    weight: torch.Tensor,
    sums: torch.Tensor,
    *rest: Any,
) -> torch.Tensor:
    """What the op means: its own eager body does not round the input."""
    limits = (-128, 127, torch.int8)
    codes = QD.quantize_per_token(x, scale, zero, *limits)
    x = QD.dequantize_per_token(codes, scale, zero, *limits, torch.float32)
    return VK.linear_q4gsw(x, weight, *rest)


def grouped_mm(
    x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """In any type: torch's own has no float64, from which sums are judged."""
    spans = zip([0, *ends], ends, weights)
    return torch.cat([x[start:end] @ weight for start, end, weight in spans])


REFERENCES = {
    "aten._grouped_mm.default": grouped_mm,
    "et_vk.linear_dq8ca_q4gsw.default": rounded_linear,
}
# Types other than float32, where torch traces no other.
TYPES = {"aten._grouped_mm.default": torch.bfloat16}


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


class Call:
    """An op, as a function of the operands that are neither constant nor written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.overload = op_coverage.overload_of(name)
        make = op_calls.Make(TYPES.get(name, torch.float32))
        args, kwargs = op_calls.call_of(name, make)
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))
        formals = self.overload._schema.arguments
        written = [
            arg
            for f, arg in zip(formals, args)
            if f.alias_info and f.alias_info.is_write
        ]
        self.states = self.places(written)
        for i in self.states:
            self.leaves[i] = torch.zeros_like(self.leaves[i])
        self.constants = self.places(make.constants)
        tensors = [i for i, x in enumerate(self.leaves) if isinstance(x, torch.Tensor)]
        self.open = [i for i in tensors if i not in (*self.states, *self.constants)]
        self.inputs = tuple(self.leaves[i] for i in self.open)

    def places(self, tensors: Results) -> list[int]:
        known = {id(tensor) for tensor in tensors}
        return [i for i, leaf in enumerate(self.leaves) if id(leaf) in known]

    def __call__(self, *inputs: torch.Tensor) -> Results:
        """What the op means."""
        given = dict(zip(self.open, inputs))
        given |= {i: self.leaves[i].clone() for i in self.states}
        return self.run(given, REFERENCES.get(self.name, self.overload))

    def run(self, given: dict[int, torch.Tensor], op: Callable[..., Any]) -> Results:
        leaves = [given.get(i, leaf) for i, leaf in enumerate(self.leaves)]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(op(*args, **kwargs))
        if "embedding_bag" in self.name:
            results = results[:1]  # exported programs use no other
        elif "update_cache" in self.name:
            results = []  # made only to have one
        return [*results, *(leaves[i] * 1 for i in self.states)]


class Calls(torch.nn.Module):
    """Calls side by side, with their constants and states as buffers."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self.calls = calls
        for number, call in enumerate(calls):
            for i in (*call.constants, *call.states):
                self.register_buffer(f"b{number}_{i}", call.leaves[i])

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(inputs)
        results: Results = []
        for number, call in enumerate(self.calls):
            given = {i: next(left) for i in call.open}
            held = (*call.constants, *call.states)
            given |= {i: getattr(self, f"b{number}_{i}") for i in held}
            results += call.run(given, call.overload)
        return tuple(results)


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
