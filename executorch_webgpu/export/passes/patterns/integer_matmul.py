"""Products of quantized activations take the codes, not what they stand for.

A packed linear layer whose input is a dequantized int8 tensor with one scale becomes
`linear_codes`, one whose input was rounded to 8 bits row by row `linear_rounded`:
their sums are exact integers. So are those of a convolution of such a tensor with
constant int8 filters, `conv_codes`. What these no longer read stays for others only.
"""

from __future__ import annotations

from typing import Any

import torch

from .... import ir
from ....ir.dtypes import DType
from ....ops.quantized.integer_matmul import MOST_CODES
from ...constants import Constants
from ..cleanup import remove_dead
from ..rewrite import Producers, made_by, producers

_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    for call in graph.calls:
        if call.op == "webgpu.linear_packed" and not call.post:
            _linear(graph, made, call)
        elif call.op == "aten.convolution.default" and not call.post:
            _convolution(graph, constants, made, call)
    # Later passes look at who reads a value.
    remove_dead.run(graph, constants)


def _linear(graph: ir.Graph, made: Producers, call: ir.Call) -> None:
    given: list[Any] = call.args
    x, weight = given[0], given[1:]
    bits, group = weight[4:6]
    static = static_codes(graph, made, x)
    rounding = made_by(made, x, "webgpu.round_rows")
    if group > MOST_CODES:
        return
    if static is not None:
        call.op, call.args = "webgpu.linear_codes", [*static, *weight]
    elif rounding is not None:
        limits: list[Any] = rounding.args
        before, _, low, high, eps = limits
        # Words of activations and of weights hold the same columns.
        whole = group % (32 // bits) == 0
        if whole and low >= -128 and high <= 127:
            call.op = "webgpu.linear_rounded"
            call.args = [before, low, high, eps, *weight]


def static_codes(graph: ir.Graph, made: Producers, x: ir.Arg) -> list[ir.Arg] | None:
    """The int8 tensor behind a dequantized one, its scale and its zero point."""
    call = made_by(made, x, _DEQUANTIZE)
    if call is None:
        return None
    codes, scale, zero = call.args[:3]
    (made_value,) = call.outputs
    if not isinstance(codes, ir.Ref):
        return None
    types = graph.values[codes.id].dtype, graph.values[made_value].dtype
    if types != (DType.INT8, DType.FLOAT32):
        return None
    if not isinstance(scale, float) or not isinstance(zero, int):
        return None
    # Codes less a zero point of 8 bits have 9.
    return [codes, scale, zero] if -128 <= zero <= 127 else None


def _convolution(
    graph: ir.Graph, constants: Constants, made: Producers, call: ir.Call
) -> None:
    given: list[Any] = call.args
    x, weight, bias, stride, padding, dilation, transposed, _, groups = given
    static = static_codes(graph, made, x)
    filters = _filters(constants, made, weight)
    if static is None or filters is None or transposed:
        return
    rank = len(graph.values[weight.id].shape)
    if len(graph.values[x.id].shape) != rank:
        return
    geometry = [
        values * (rank - 2) if len(values) == 1 else values
        for values in (stride, padding, dilation)
    ]
    call.op = "webgpu.conv_codes"
    call.args = [*static, *filters, bias, *geometry, groups]


def _filters(
    constants: Constants, made: Producers, weight: ir.Arg
) -> list[ir.Arg] | None:
    """Constant int8 filters without zero points, and their scales."""
    channels = "quantized_decomposed.dequantize_per_channel.default"
    call = made_by(made, weight, channels, _DEQUANTIZE)
    given: list[Any] = [] if call is None else call.args
    codes = constants.of(given[0]) if given else None
    if call is None or codes is None or codes.dtype is not torch.int8:
        return None
    if call.op == _DEQUANTIZE:
        scale, zero = given[1:3]
        if zero != 0 or not isinstance(scale, float):
            return None
        return [given[0], constants.add("scales", torch.full(codes.shape[:1], scale))]
    scales, zeros = map(constants.of, given[1:3])
    if given[3] != 0 or scales is None or zeros is None or bool(zeros.any()):
        return None
    return [given[0], constants.add("scales", scales.float())]
