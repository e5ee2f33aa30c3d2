"""Attention whose heads are then put side by side writes them so.

Nearly all models end attention[B, H, S, D] with transpose(1, 2) and a reshape to
[B, S, H * D]. Written in that order the transpose is nothing and the reshape a view.
"""

from __future__ import annotations

from .. import ir
from ..builder import ConstantData
from .rewrite import consumers

_PLAIN, _CACHED = "aten.scaled_dot_product_attention.default", "webgpu.attend_cached"

_SWAPS = {
    "aten.permute_copy.default": ([0, 2, 1, 3], [0, -2, 1, -1], [0, -2, -3, -1]),
    "aten.transpose_copy.int": ([1, 2], [2, 1], [-2, -3], [-3, -2], [1, -2], [-2, 1]),
}


def run(graph: ir.Graph, data: ConstantData) -> None:
    readers = consumers(graph)
    gone: set[int] = set()
    for call in graph.calls:
        if call.post or call.op not in (_PLAIN, _CACHED):
            continue
        (result,) = call.outputs
        following = readers.get(result, [])
        kept = result in graph.outputs or result in graph.mutations.values()
        if len(following) == 1 and not kept and _swaps(graph, following[0]):
            if call.op == _PLAIN:
                call.op = "webgpu.attention_by_token"
            else:
                call.args = [*call.args, True]
            call.outputs = following[0].outputs
            gone.add(id(following[0]))
    graph.calls = [call for call in graph.calls if id(call) not in gone]


def _swaps(graph: ir.Graph, call: ir.Call) -> bool:
    """Whether a call swaps the inner two of four dimensions, and nothing more."""
    order = call.args[1] if call.op == "aten.permute_copy.default" else call.args[1:]
    known = order in _SWAPS.get(call.op, ()) and not call.post
    return known and len(graph.values[call.outputs[0]].shape) == 4
