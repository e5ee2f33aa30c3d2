"""The calls of a graph that something needs: an output, a state or another call."""

from __future__ import annotations

from .. import ir
from . import registry


def live_calls(graph: ir.Graph) -> list[ir.Call]:
    """In order; those that change an argument are needed for that."""
    needed = {*graph.outputs, *graph.mutations.values()}
    live = []
    for call in reversed(graph.calls):
        found = registry.find(call.op)
        mutates = found is not None and bool(found.mutates)
        if mutates or needed & set(call.outputs):
            live.append(call)
            needed |= set(ir.call_inputs(call))
    return live[::-1]
