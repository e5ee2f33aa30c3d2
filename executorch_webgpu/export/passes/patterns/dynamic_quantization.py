"""Activations that are quantized and back become one op, once for all readers.

choose_qparams_affine, quantize_affine and dequantize_affine of one tensor, row by
row: `round_rows`. The linear layers that read the same tensor (query, key and value)
each bring their own three ops; they get one result, and can then be merged.
"""

from __future__ import annotations

from .... import ir
from ....ir.dtypes import DType
from ...constants import Constants
from ..rewrite import Producers, made_by, producers, replace_value

_TINY = 2.0**-126  # torchao's least scale, of float32


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    known: dict[str, int] = {}
    for call in graph.calls:
        args = _match(graph, made, call)
        if args is None:
            continue
        before = known.setdefault(str(args), call.outputs[0])
        if before == call.outputs[0]:
            call.op, call.args = "webgpu.round_rows", args
        else:
            replace_value(graph, call.outputs[0], before)


def _match(graph: ir.Graph, made: Producers, call: ir.Call) -> list[ir.Arg] | None:
    if call.op != "torchao.dequantize_affine.default" or call.post:
        return None
    quantize = made_by(made, call.args[0], "torchao.quantize_affine.default")
    if quantize is None or quantize.args[1:4] != call.args[1:4]:
        return None
    x, block, scale, zero, _, low, high = quantize.args[:7]
    choose = made_by(made, scale, "torchao.choose_qparams_affine.default")
    if choose is None or choose.args[:3] != [x, "ASYMMETRIC", block]:
        return None
    if [ir.Ref(value) for value in choose.outputs] != [scale, zero]:
        return None
    if not [low, high] == call.args[5:7] == choose.args[4:6]:
        return None
    if not isinstance(low, int) or not isinstance(high, int):
        return None
    eps = _TINY if choose.args[6] is None else choose.args[6]
    length = _row(graph, x, block)
    float32 = all(
        graph.values[arg.id].dtype is DType.FLOAT32
        for arg in (x, scale, ir.Ref(call.outputs[0]))
        if isinstance(arg, ir.Ref)
    )
    return [x, length, low, high, eps] if length and float32 else None


def _row(graph: ir.Graph, x: ir.Arg, block: ir.Arg) -> int:
    """The last dimension, if a block is one row of it; else 0."""
    if not isinstance(x, ir.Ref) or not isinstance(block, list):
        return 0
    width = graph.values[x.id].shape[-1] if graph.values[x.id].shape else 0
    rows = all(size == 1 for size in block[:-1])
    return width if isinstance(width, int) and rows and block[-1] == width else 0
