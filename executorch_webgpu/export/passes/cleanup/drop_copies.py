"""Removes calls that copy a tensor to the same type and shape.

Exported graphs are full of clones and casts that change nothing; without them
the fusion passes see neighbours that they can fuse.
"""

from __future__ import annotations

from .... import ir
from ....plan import registry
from ....plan.registry import View
from ...constants import Constants
from ..rewrite import replace_value


def run(graph: ir.Graph, constants: Constants) -> None:
    kept = []
    for call in graph.calls:
        source = call.args[0] if call.args else None
        if (
            _is_copy(call)
            and isinstance(source, ir.Ref)
            and _is_same(graph, source.id, call.outputs[0])
        ):
            replace_value(graph, call.outputs[0], source.id)
        else:
            kept.append(call)
    graph.calls = kept


def _is_copy(call: ir.Call) -> bool:
    found = registry.find(call.op)
    return found is not None and (found.cast or found.view is View.SAME)


def _is_same(graph: ir.Graph, source: int, copy: int) -> bool:
    """Whether the copy can stand for its source, whose content may not change."""
    old, new = graph.values[source], graph.values[copy]
    if old.state or old.dtype is not new.dtype or old.shape != new.shape:
        return False
    # An output keeps the memory order it was exported with.
    return copy not in graph.outputs or old.dim_order == new.dim_order
