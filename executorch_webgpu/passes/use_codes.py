"""Products of quantized activations take the codes, not what they stand for.

A packed linear layer whose input was rounded to 8 bits row by row (`round_rows`), or
is a dequantized int8 tensor with one scale, becomes `linear_codes`, whose sums are
exact integers. The rounding then stores codes, unless something else reads it.
"""

from __future__ import annotations

from dataclasses import replace

from .. import ir
from ..builder import ConstantData
from ..dtypes import DType
from ..ops.codes import MOST_CODES
from ..packed import Layout
from . import remove_dead
from .rewrite import Producers, made_by, producers

_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


def run(graph: ir.Graph, data: ConstantData) -> None:
    made = producers(graph)
    packed: dict[int, ir.Call] = {}  # by the value that round_rows made
    for call in list(graph.calls):
        if call.op == "webgpu.linear_packed" and not call.post:
            _linear(graph, made, packed, call)
    # Later passes look at who reads a value.
    remove_dead.run(graph, data)


def _linear(
    graph: ir.Graph, made: Producers, packed: dict[int, ir.Call], call: ir.Call
) -> None:
    x, words, scales, offsets, rows, bits, group, bias = call.args
    if not isinstance(group, int) or group > MOST_CODES:
        return
    rounding = made_by(made, x, "webgpu.round_rows")
    codes: list[ir.Arg] | None = static_codes(graph, made, x)
    if rounding is not None and isinstance(bits, int):
        codes = _packed(graph, packed, rounding, bits, group)
    if codes is not None:
        call.op = "webgpu.linear_codes"
        call.args = [*codes, words, scales, offsets, rows, bits, group, bias]


def static_codes(
    graph: ir.Graph, made: Producers, x: ir.Arg
) -> list[ir.Arg] | None:
    """The int8 tensor behind a dequantized one, its scale and its zero point."""
    call = made_by(made, x, _DEQUANTIZE)
    if call is None:
        return None
    codes, scale, zero = call.args[:3]
    assert isinstance(codes, ir.Ref) and isinstance(x, ir.Ref)
    types = graph.values[codes.id].dtype, graph.values[x.id].dtype
    if types != (DType.INT8, DType.FLOAT32):
        return None
    if not isinstance(scale, float) or not isinstance(zero, int):
        return None
    # Codes less a zero point of 8 bits have 9.
    return [codes, scale, zero] if -128 <= zero <= 127 else None


def _packed(
    graph: ir.Graph,
    packed: dict[int, ir.Call],
    rounding: ir.Call,
    bits: int,
    group: int,
) -> list[ir.Arg] | None:
    """The words of a rounded input; the first reader adds the call that makes them."""
    _, length, low, high, _ = rounding.args
    assert isinstance(length, int) and isinstance(low, int) and isinstance(high, int)
    if group % Layout(1, length, bits, group).per_word or low < -128 or high > 127:
        return None
    value = rounding.outputs[0]
    if value not in packed:
        old = graph.values[value]
        width = length // 4 + 2
        new = replace(
            old,
            name=f"{old.name}_codes",
            dtype=DType.INT32,
            shape=(*old.shape[:-1], width),
            bound=(*old.bound[:-1], width),
            dim_order=(),
        )
        call = ir.Call("webgpu.round_codes", list(rounding.args), [graph.add(new)])
        graph.calls.insert(graph.calls.index(rounding), call)
        packed[value] = call
    return [ir.Ref(packed[value].outputs[0]), None, None]
