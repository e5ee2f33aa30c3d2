"""Calls of ops side by side in one program, as `op_calls.py` makes them.

What a call writes in place is a state of the program, and a result; what must be
constant is a buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import op_calls
import op_coverage
import torch
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


class Call:
    """An op, as a function of the operands that are neither constant nor written."""

    def __init__(self, name: str, dtype: torch.dtype | None = None) -> None:
        self.name = name
        self.overload = op_coverage.overload_of(name)
        make = op_calls.Make(dtype or TYPES.get(name, torch.float32))
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
