"""Which results are written straight to their place in a concatenation's buffer.

A pure function of the graph. A result goes where the concatenation would copy it if
that alone reads it, and if the kernel that makes it stores each element once, by its
row-major index (`fusible`). What an op function stores elsewhere all the same, such as
a view, is copied as if it had no place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from .. import ir
from . import registry
from .output import Place
from .tensor import Store


def placed(graph: ir.Graph, inlined: Collection[int]) -> dict[int, int]:
    """The calls whose first output has a place, with the index of its concatenation.

    Elementwise programs that are inlined are computed by the concatenation itself.
    """
    uses = ir.uses(graph)
    makers = {call.outputs[0]: index for index, call in enumerate(graph.calls)}
    found: dict[int, int] = {}
    wholes: set[int] = set()  # concatenations that have placed inputs
    for index, call in enumerate(graph.calls):
        joined = registry.find(call.op)
        if joined is None or not joined.concat or call.post:
            continue
        whole = graph.values[call.outputs[0]]
        for value in ir.refs(call.args[0]):
            maker = makers.get(value)
            if maker is None or maker in inlined or uses[value] > 1:
                continue
            # A concatenation that has placed inputs cannot have a place itself.
            inner = maker in wholes
            op = registry.find(graph.calls[maker].op)
            made = graph.values[value]
            same = made.dtype is whole.dtype and len(made.shape) == len(whole.shape)
            if same and not inner and op is not None and op.fusible:
                found[maker] = index
                wholes.add(index)
    return found


def places(
    store: Store,
    dim: int,
    shapes: Sequence[tuple[int, ...]],
    whole: tuple[int, ...],
    one_run: bool,
) -> list[Place]:
    """The place of each input in the concatenation, of shape `whole`, in `store`.

    `shapes` are those of the inputs, live; `dim` is where they are concatenated.
    """
    inner = math.prod(whole[dim + 1 :])
    made, before = [], 0
    for shape in shapes:
        # torch ignores empty vectors, whose rank may be another.
        extent = shape[dim] if len(shape) == len(whole) else 0
        at, span, total = (n * inner for n in (before, extent, whole[dim]))
        made.append(Place(store, whole, at, span, total, one_run))
        before += extent
    return made
