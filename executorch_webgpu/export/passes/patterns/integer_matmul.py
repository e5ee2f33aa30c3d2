"""Products of quantized activations and weights become products of integers.

A packed linear layer whose input is a dequantized int8 tensor with one scale becomes
`linear_codes`, one whose input is quantized to 8 bits row by row `linear_rounded`:
their sums are exact integers. So are those of a convolution of such a tensor with
constant int8 filters, `conv_codes`. Dequantized tensors stay only if others read them.
"""

from __future__ import annotations

import torch

from .... import ir
from ....ir.dtypes import DType
from ....ir.signatures import (
    ConvCodes,
    Convolution,
    DequantizePerChannel,
    DequantizePerTensor,
    LinearCodes,
    LinearPacked,
    LinearRounded,
    RoundRows,
)
from ....ops.quantized.integer_matmul import MOST_CODES
from ...constants import Constants
from ..cleanup import remove_dead
from ..rewrite import Producers, made_as, producers


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    for call in graph.calls:
        if call.op == LinearPacked.NAME and not call.post:
            _linear(graph, made, call)
        elif call.op == Convolution.NAME and not call.post:
            _convolution(graph, constants, made, call)
    # Later passes look at who reads a value.
    remove_dead.run(graph, constants)


def _linear(graph: ir.Graph, made: Producers, call: ir.Call) -> None:
    layer = LinearPacked.of(call)
    weight = (layer.words, layer.scales, layer.offsets)
    shape = (layer.rows, layer.bits, layer.group)
    static = _static_codes(graph, made, layer.x)
    rounding = made_as(made, layer.x, RoundRows)
    if layer.group > MOST_CODES:
        return
    if static is not None:
        codes = (static.x, static.scale, static.zero)
        LinearCodes(*codes, *weight, *shape, layer.bias).write_to(call)
    elif rounding is not None:
        # Words of activations and of weights hold the same columns.
        whole = layer.group % (32 // layer.bits) == 0
        if whole and rounding.low >= -128 and rounding.high <= 127:
            rows = (rounding.x, rounding.low, rounding.high, rounding.eps)
            LinearRounded(*rows, *weight, *shape, layer.bias).write_to(call)


def _static_codes(
    graph: ir.Graph, made: Producers, x: ir.Ref
) -> DequantizePerTensor | None:
    """What an int8 tensor is dequantized by, if `x` is the result."""
    given = made_as(made, x, DequantizePerTensor)
    if given is None:
        return None
    types = graph.values[given.x.id].dtype, graph.values[x.id].dtype
    if types != (DType.INT8, DType.FLOAT32) or not _is_known(given):
        return None
    # A quantized value minus a zero point of 8 bits has 9.
    return given if -128 <= given.zero <= 127 else None


def _is_known(given: DequantizePerTensor) -> bool:
    """Whether the scale and the zero point are numbers, not expressions."""
    return isinstance(given.scale, float) and isinstance(given.zero, int)


def _convolution(
    graph: ir.Graph, constants: Constants, made: Producers, call: ir.Call
) -> None:
    given = Convolution.of(call)
    rank = len(graph.values[given.weight.id].shape)
    static = _static_codes(graph, made, given.x)
    if static is None or given.transposed:
        return
    if len(graph.values[given.x.id].shape) != rank:
        return
    filters = _filters(constants, made, given.weight)
    if filters is None:
        return
    stride, padding, dilation = (
        values * (rank - 2) if len(values) == 1 else values
        for values in (given.stride, given.padding, given.dilation)
    )
    ConvCodes(
        static.x,
        static.scale,
        static.zero,
        *filters,
        given.bias,
        stride,
        padding,
        dilation,
        given.groups,
    ).write_to(call)


def _filters(
    constants: Constants, made: Producers, weight: ir.Ref
) -> tuple[ir.Ref, ir.Ref] | None:
    """Constant int8 filters without zero points, and their scales."""
    whole = made_as(made, weight, DequantizePerTensor)
    given = whole or made_as(made, weight, DequantizePerChannel)
    codes = constants.of(given.x) if given is not None else None
    if given is None or codes is None or codes.dtype is not torch.int8:
        return None
    if isinstance(given, DequantizePerTensor):
        if given.zero != 0 or not _is_known(given):
            return None
        scales = torch.full(codes.shape[:1], given.scale)
        return given.x, constants.add("scales", scales)
    each, zeros = constants.of(given.scales), constants.of(given.zeros)
    if given.axis != 0 or each is None or zeros is None or bool(zeros.any()):
        return None
    return given.x, constants.add("scales", each.float())
