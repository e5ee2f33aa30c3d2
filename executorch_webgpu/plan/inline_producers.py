"""Which elementwise programs are inlined into their reader, instead of dispatched.

A pure function of the graph. An elementwise program may be inlined if one call alone
reads its result, itself or through views, as the first argument of an op that says how
often its kernel reads each element (`registry.op(..., lazy=n)`). What is expensive to
compute is inlined only where it is read once; whether strides make it expensive is seen
when it is planned. None is inlined that would lengthen the live ranges of several
operands instead of that of one result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate

from .. import ir
from . import registry
from .pointwise import is_program, steps_of
from .registry import Cheap, View

# Elementwise programs of more steps are not computed more than once per element.
_MOST_STEPS = 6


def deferred(graph: ir.Graph) -> dict[int, int]:
    """The calls that may be inlined, with how often each element is then computed.

    The views between an elementwise program and its reader are among them.
    """
    uses = ir.uses(graph)
    makers = {call.outputs[0]: index for index, call in enumerate(graph.calls)}
    kernels = list(accumulate((_is_kernel(call) for call in graph.calls), initial=0))
    found: dict[int, int] = {}
    for index, call in enumerate(graph.calls):
        reader = registry.find(call.op)
        if reader is None or not reader.lazy or not call.args:
            continue
        for value in ir.refs(call.args[0]):
            chain = _chain(graph, makers, uses, value)
            if not chain or not _may_inline(graph, graph.calls[chain[-1]], reader.lazy):
                continue
            if not _keeps_more(graph, makers, kernels, chain[-1], index):
                found.update(dict.fromkeys(chain, reader.lazy))
    return found


def _chain(
    graph: ir.Graph, makers: dict[int, int], uses: dict[int, int], value: int
) -> list[int]:
    """The calls that make a value that nothing else reads: views, last their source.

    Empty if there is no call to inline.
    """
    chain: list[int] = []
    while value in makers and uses[value] == 1:
        chain.append(makers[value])
        call = graph.calls[chain[-1]]
        if not _has_each_element(call):
            return chain
        (value,) = ir.refs(call.args[0])
    return []


def last_uses(graph: ir.Graph, inlined: dict[int, int]) -> dict[int, int]:
    """The last call that reads each value; calls + 1 if it is an output.

    What an inlined elementwise program reads is read when its own reader runs.
    """
    last: dict[int, int] = {}
    for value in (*graph.outputs, *graph.mutations.values()):
        last[value] = len(graph.calls) + 1
    for index in range(len(graph.calls) - 1, -1, -1):
        call = graph.calls[index]
        read_at = last[call.outputs[0]] if index in inlined else index
        for value in ir.call_inputs(call):
            last[value] = max(last.get(value, -1), read_at)
    return last


def _may_inline(graph: ir.Graph, call: ir.Call, reads: int) -> bool:
    if not is_program(call):
        return False
    steps = steps_of(graph, call)
    return reads == 1 or (len(steps) <= _MOST_STEPS and all(map(_is_cheap, steps)))


def _keeps_more(
    graph: ir.Graph,
    computed: Collection[int],
    kernels: Sequence[int],
    index: int,
    reader: int,
) -> bool:
    """Whether several operands, instead of one result, would stay live meanwhile.

    Meanwhile: from the producer to its reader, if any kernel runs between them;
    `kernels` are how many there are before each call.
    """
    operands = {x for x in ir.call_inputs(graph.calls[index]) if x in computed}
    return len(operands) > 1 and kernels[index + 1] < kernels[reader]


def _is_kernel(call: ir.Call) -> bool:
    """Whether a call is neither an elementwise program nor a view."""
    return not (is_program(call) or _has_each_element(call))


def _has_each_element(call: ir.Call) -> bool:
    """Whether a call is a view of all elements of its operand."""
    return registry.view_of(call.op) >= View.EACH and not call.post


def _is_cheap(step: ir.Step) -> bool:
    found = registry.find(step.op)
    if found is None or found.cheap is not Cheap.BY_NUMBER:
        return found is not None and found.cheap is Cheap.ALWAYS
    return isinstance(step.args[1], (int, float))
