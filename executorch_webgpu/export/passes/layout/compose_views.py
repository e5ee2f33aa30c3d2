"""Replaces a chain of views that would take a copy by one strided view.

Attention merges heads into the batch and splits them again: a reshape merges two
dimensions, which takes a copy if they are not adjacent in memory, and a later one
splits them. If the result is a permutation of the source, it is a strided view of it.
"""

from __future__ import annotations

from .... import ir
from ...constants import Constants
from ..cleanup import remove_dead
from ..rewrite import producers
from . import view_chain


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    calls: list[ir.Call] = []
    for call in graph.calls:
        calls += _composed(graph, made, call) or [call]
    graph.calls = calls
    # Later passes look at who reads a value.
    remove_dead.run(graph, constants)


def _composed(
    graph: ir.Graph, made: dict[int, ir.Call], call: ir.Call
) -> list[ir.Call] | None:
    """The calls that replace the last of a chain of views; None if it needs no copy."""
    chain: list[ir.Call] = []
    link: ir.Call | None = call
    while link is not None and view_chain.is_link(graph, link):
        chain.insert(0, link)
        (source,) = ir.call_inputs(link)
        link = made.get(source)
    if len(chain) < 2:
        return None
    views = [view_chain.whole(graph.values[source])]
    for link in chain:
        view = view_chain.after(graph, link, views[-1])
        if view is None:
            return None
        views.append(view)
    first, *between, last = (view_chain.refined(view, views[-1]) for view in views)
    joined = set().union(*(view_chain.joins(view) for view in between))
    needed = view_chain.joins(first) | view_chain.joins(last)
    if joined <= needed or not view_chain.is_free(last):
        return None
    return view_chain.apply(graph, source, last, call.outputs[0])
