"""Turns constants of one element into numbers where a formula reads them.

A number is a kernel parameter; a tensor would be one more buffer to bind, and
kernels may bind only a few.
"""

from __future__ import annotations

import math

from .... import ir
from ....plan.pointwise import FORMULAS
from ...fx_to_ir import ConstantData


def run(graph: ir.Graph, data: ConstantData) -> None:
    for call in graph.calls:
        if call.op in FORMULAS:
            # The first operand stays: a formula of numbers only has no shape.
            call.args[1:] = [_inline(graph, data, call, arg) for arg in call.args[1:]]


def _inline(graph: ir.Graph, data: ConstantData, call: ir.Call, arg: ir.Arg) -> ir.Arg:
    if not isinstance(arg, ir.Ref):
        return arg
    value = graph.values[arg.id]
    scalar = value.is_constant and math.prod(value.bound) == 1
    if not scalar or len(value.shape) > len(graph.values[call.outputs[0]].shape):
        return arg
    number: bool | int | float = data.tensors[value.data_key].item()
    return number
