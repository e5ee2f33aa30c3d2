"""Attention stores its result token by token, where its heads are then concatenated.

Nearly all models end attention[B, H, S, D] with transpose(1, 2) and a reshape to
[B, S, H * D]. If the result is stored as [B, S, H, D], neither needs a copy.
"""

from __future__ import annotations

from dataclasses import replace

from .... import ir
from ....ir.signatures import (
    AttendCached,
    Attention,
    AttentionByToken,
    ScaledDotProductAttention,
)
from ...constants import Constants
from ..rewrite import consumers, permutation

_ATTENTION = (ScaledDotProductAttention, Attention, AttendCached)
# Heads inside tokens, in batches or, as nn.MultiheadAttention has it, around them.
_BY_TOKEN = ([0, 2, 1, 3], [2, 0, 1, 3])


def run(graph: ir.Graph, constants: Constants) -> None:
    readers = consumers(graph)
    gone: set[int] = set()
    for call in graph.calls:
        kind = next((kind for kind in _ATTENTION if call.op == kind.NAME), None)
        if call.post or kind is None:
            continue
        (result,) = call.outputs
        following = readers.get(result, [])
        kept = result in graph.outputs or result in graph.mutations.values()
        if len(following) != 1 or kept:
            continue
        order = permutation(graph, following[0])
        if order not in _BY_TOKEN or following[0].post:
            continue
        given = kind.of(call)
        if isinstance(given, AttendCached):
            replace(given, by_token=True).write_to(call)
        else:
            AttentionByToken(**vars(given)).write_to(call)
        if order == _BY_TOKEN[0]:
            call.outputs = following[0].outputs
            gone.add(id(following[0]))
        else:
            call.outputs = [_swapped(graph, result)]
            following[0].op = "aten.permute_copy.default"
            following[0].args = [ir.Ref(call.outputs[0]), [1, 0, 2, 3]]
    graph.calls = [call for call in graph.calls if id(call) not in gone]


def _swapped(graph: ir.Graph, result: int) -> int:
    """A value for the result with its inner two of four dimensions swapped."""
    value = graph.values[result]
    shape = tuple(value.shape[d] for d in _BY_TOKEN[0])
    bound = tuple(value.bound[d] for d in _BY_TOKEN[0])
    return graph.add(replace(value, shape=shape, bound=bound))
