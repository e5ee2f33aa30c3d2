"""Which results are written straight into their place in a concatenation.

A pure function of the graph. A result goes where `cat` would copy it if cat alone
reads it and the kernel that makes it stores each element once, by its row-major index
(`fusible`). What an op function puts elsewhere all the same is copied as ever.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from .. import ir
from . import registry
from .output import Place
from .tensor import Store

CAT = "aten.cat.default"


def placed(graph: ir.Graph, waiting: Collection[int]) -> dict[int, int]:
    """The calls whose first output is a part of a cat, with the index of that call.

    Programs that wait for their reader are computed by the cat itself.
    """
    uses = ir.uses(graph)
    makers = {call.outputs[0]: index for index, call in enumerate(graph.calls)}
    found: dict[int, int] = {}
    for index, call in enumerate(graph.calls):
        if call.op != CAT or call.post:
            continue
        whole = graph.values[call.outputs[0]]
        for value in ir.refs(call.args[0]):
            maker = makers.get(value)
            if maker is None or maker in waiting or uses[value] > 1:
                continue
            # A cat that others write into cannot lie within another one.
            inner = maker in found.values()
            op = registry.find(graph.calls[maker].op)
            part = graph.values[value]
            same = part.dtype is whole.dtype and len(part.shape) == len(whole.shape)
            if same and not inner and op is not None and op.fusible:
                found[maker] = index
    return found


def place_of(
    store: Store,
    dim: int,
    part: int,
    shapes: list[tuple[int, ...]],
    whole: tuple[int, ...],
    one_run: bool,
) -> Place:
    """Where part number `part` of the live `shapes` lies in the whole."""
    inner = math.prod(whole[dim + 1 :])
    # torch ignores empty vectors, whose rank may be another.
    before = [s[dim] for s in shapes[:part] if len(s) == len(whole)]
    span = shapes[part][dim] * inner
    return Place(store, whole, sum(before) * inner, span, whole[dim] * inner, one_run)
