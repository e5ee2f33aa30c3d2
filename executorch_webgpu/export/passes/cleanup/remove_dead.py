"""Removes dead calls: those whose results nothing reads."""

from __future__ import annotations

from .... import ir
from ....plan import registry
from ...constants import Constants


def run(graph: ir.Graph, constants: Constants) -> None:
    needed = {*graph.outputs, *graph.mutations.values()}
    kept = []
    for call in reversed(graph.calls):
        found = registry.find(call.op)
        mutates = found is not None and bool(found.mutates)
        if mutates or needed & set(call.outputs):
            kept.append(call)
            needed |= set(ir.call_inputs(call))
    graph.calls = kept[::-1]
    for index, value in enumerate(graph.values):
        if index not in needed and not value.state:
            value.data_key = ""  # nothing reads it: the program need not store it
