"""Turns constants of one element into numbers where a formula reads them.

A number is a kernel parameter; a tensor would be one more buffer to bind, and
kernels may bind only a few.
"""

from __future__ import annotations

from .... import ir
from ....plan.pointwise import is_formula
from ...constants import Constants


def run(graph: ir.Graph, constants: Constants) -> None:
    for call in graph.calls:
        if is_formula(call):
            rank = len(graph.values[call.outputs[0]].shape)
            # The first operand stays: a formula of numbers only has no shape.
            rest = [_inlined(constants, arg, rank) for arg in call.args[1:]]
            call.args[1:] = rest


def _inlined(constants: Constants, arg: ir.Arg, rank: int) -> ir.Arg:
    tensor = constants.of(arg)
    if tensor is None or tensor.numel() != 1 or tensor.dim() > rank:
        return arg
    number: bool | int | float = tensor.item()
    return number
