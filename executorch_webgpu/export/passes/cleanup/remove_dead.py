"""Removes dead calls: those whose results nothing reads."""

from __future__ import annotations

from .... import ir
from ....plan.live_calls import live_calls
from ...constants import Constants


def run(graph: ir.Graph, constants: Constants) -> None:
    graph.calls = live_calls(graph)
    needed = {*graph.outputs, *graph.mutations.values()}
    for call in graph.calls:
        needed |= set(ir.call_inputs(call))
    for index, value in enumerate(graph.values):
        if index not in needed and not value.state:
            value.data_key = ""  # nothing reads it: the program need not store it
