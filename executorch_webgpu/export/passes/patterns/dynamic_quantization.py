"""Activations that are quantized and dequantized become one op for all readers.

choose_qparams_affine, quantize_affine and dequantize_affine of one tensor, row by
row, become `round_rows`. The linear layers that read the same tensor (query, key and
value) each bring their own three ops; they get one result, and can then be merged.
"""

from __future__ import annotations

from .... import ir
from ....ir.dtypes import DType
from ....ir.signatures import (
    ChooseQparamsAffine,
    DequantizeAffine,
    QuantizeAffine,
    RoundRows,
)
from ...constants import Constants
from ..rewrite import Producers, made_as, producers, replace_value

_TINY = 2.0**-126  # torchao's least scale, of float32


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    known: dict[RoundRows, int] = {}
    for call in graph.calls:
        rounding = _match(graph, made, call)
        if rounding is None:
            continue
        before = known.setdefault(rounding, call.outputs[0])
        if before == call.outputs[0]:
            rounding.write_to(call)
        else:
            replace_value(graph, call.outputs[0], before)


def _match(graph: ir.Graph, made: Producers, call: ir.Call) -> RoundRows | None:
    if call.op != DequantizeAffine.NAME or call.post:
        return None
    back = DequantizeAffine.of(call)
    there = made_as(made, back.x, QuantizeAffine)
    if there is None:
        return None
    choose = made_as(made, there.scale, ChooseQparamsAffine)
    if choose is None:
        return None
    x, scale, low, high = there.x, there.scale, there.low, there.high
    chosen = [ir.Ref(value) for value in made[scale.id].outputs]
    if chosen != [scale, there.zero] or chosen != [back.scale, back.zero]:
        return None
    if (choose.x, choose.mapping) != (x, "ASYMMETRIC"):
        return None
    if not there.block == back.block == choose.block:
        return None
    if not (low, high) == (back.low, back.high) == (choose.low, choose.high):
        return None
    if not isinstance(low, int) or not isinstance(high, int):
        return None
    eps = _TINY if choose.eps is None else choose.eps
    length = _row(graph, x, there.block)
    values = (x.id, scale.id, call.outputs[0])
    float32 = all(graph.values[value].dtype is DType.FLOAT32 for value in values)
    return RoundRows(x, length, low, high, eps) if length and float32 else None


def _row(graph: ir.Graph, x: ir.Ref, block: list[int]) -> int:
    """The last dimension, if a block is one row of it; else 0."""
    width = graph.values[x.id].shape[-1] if graph.values[x.id].shape else 0
    rows = all(size == 1 for size in block[:-1])
    return width if isinstance(width, int) and rows and block[-1] == width else 0
