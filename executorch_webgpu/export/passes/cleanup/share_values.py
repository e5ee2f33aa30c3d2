"""Common subexpression elimination: computes once what a graph computes twice.

Calls of one op with equal arguments have equal results, unless they read a state,
which may have changed in between, or write one. Elementwise ops that only elementwise
ops read stay duplicated: fused they cost nothing, shared they would be a dispatch.
"""

from __future__ import annotations

from collections.abc import Mapping

from .... import ir
from ....plan import registry
from ....plan.pointwise import is_formula
from ...constants import Constants
from ..rewrite import consumers, replace_value
from . import remove_dead


def run(graph: ir.Graph, constants: Constants) -> None:
    readers = consumers(graph)
    kept = {*graph.outputs, *graph.mutations.values()}
    for first, *others in _families(graph):
        results = [value for call in (first, *others) for value in call.outputs]
        elementwise = is_formula(first) and not kept.intersection(results)
        if elementwise and _only_formulas_read(readers, results):
            continue
        for call in others:
            for old, new in zip(call.outputs, first.outputs):
                replace_value(graph, old, new)
    # Later passes look at who reads a value.
    remove_dead.run(graph, constants)


def _families(graph: ir.Graph) -> list[list[ir.Call]]:
    """The calls that compute the same, in the order in which they run."""
    same: dict[int, int] = _equal_constants(graph)
    families: dict[object, list[ir.Call]] = {}
    for call in graph.calls:
        if not _repeatable(graph, call):
            continue
        family = families.setdefault(_key(graph, same, call), [])
        family.append(call)
        same.update(zip(call.outputs, family[0].outputs))
    return [family for family in families.values() if len(family) > 1]


def _equal_constants(graph: ir.Graph) -> dict[int, int]:
    """Each constant to the first one of its content, type and shape."""
    first: dict[object, int] = {}
    return {
        index: first.setdefault((value.data_key, _type(value)), index)
        for index, value in enumerate(graph.values)
        if value.is_constant
    }


def _repeatable(graph: ir.Graph, call: ir.Call) -> bool:
    found = registry.find(call.op)
    writes = found is None or bool(found.mutates)
    return not writes and not any(graph.values[v].state for v in ir.call_inputs(call))


def _key(graph: ir.Graph, same: Mapping[int, int], call: ir.Call) -> object:
    """Equal for calls with equal results; text, in which 1, 1.0 and True differ."""

    def first(arg: ir.Arg) -> ir.Arg:
        return ir.Ref(same.get(arg.id, arg.id)) if isinstance(arg, ir.Ref) else arg

    types = [_type(graph.values[value]) for value in call.outputs]
    args = ir.map_arg(call.args, first)
    return (call.op, repr(args), repr(types), repr(call.post))


def _type(value: ir.Value) -> object:
    return (value.dtype, value.shape, value.dim_order)


def _only_formulas_read(
    readers: Mapping[int, list[ir.Call]], values: list[int]
) -> bool:
    return all(is_formula(r) for value in values for r in readers.get(value, []))
