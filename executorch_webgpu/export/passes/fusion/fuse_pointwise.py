"""Fuses elementwise ops into one elementwise program, or into a kernel's epilogue.

Every dispatch costs time on the host and a round trip through memory. An elementwise
op that is the only reader of a value of its own shape becomes a step in the epilogue of
the kernel that computes the value: a matmul's bias and activation, a convolution's
residual and clamp, a norm's scale. A long chain becomes several programs, because
compilers take time with the square of a program's length. Every fused call is planned
once here, so that none needs more buffers than the least adapter binds.
"""

from __future__ import annotations

from dataclasses import replace

from .... import ir
from ....errors import Unsupported
from ....ir.verify import MAX_STEPS
from ....plan import registry
from ....plan.pointwise import PROGRAM, is_formula, is_program, steps_of
from ...constants import Constants
from ...support import check_supported
from ..rewrite import producers


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    reads = ir.uses(graph)
    calls: dict[int, ir.Call] = {}  # by identity, in the order they will run
    for call in graph.calls:
        fused = call
        if is_formula(call):
            fused = _fuse(graph, made, reads, calls, call)
        calls[id(fused)] = fused
        for value in fused.outputs:
            made[value] = fused
    graph.calls = list(calls.values())


def _fuse(
    graph: ir.Graph,
    made: dict[int, ir.Call],
    reads: dict[int, int],
    calls: dict[int, ir.Call],
    call: ir.Call,
) -> ir.Call:
    """`call` merged with each producer it can take in, and with theirs."""
    current = call
    order = {key: position for position, key in enumerate(calls)}
    refused: set[int] = set()

    def rank(value: int) -> tuple[bool, int]:
        # A kernel ends the search, so what other operands are made of comes first.
        return not is_program(made[value]), -order[id(made[value])]

    while True:
        # A value that several of the merged steps read has them all for readers.
        candidates = {
            value
            for value in ir.call_inputs(current)
            if value in made and id(made[value]) in calls and value not in refused
        }
        joinable = (
            value
            for value in sorted(candidates, key=rank)
            if _may_join(graph, reads, made[value], current, value)
        )
        value = next(joinable, None)
        if value is None:
            return current
        producer = made[value]
        joined = _join(graph, producer, current, value)
        if joined is None or not plannable(graph, joined):
            refused.add(value)
            continue
        del calls[id(producer)]
        current = joined
        if not is_program(producer):
            return current  # only one kernel can be the one that computes


def _may_join(
    graph: ir.Graph,
    reads: dict[int, int],
    producer: ir.Call,
    call: ir.Call,
    value: int,
) -> bool:
    found = registry.find(producer.op)
    fusible = producer.op == PROGRAM or (found is not None and found.fusible)
    times = sum(1 for read in ir.call_inputs(call) if read == value)
    out = graph.values[call.outputs[0]]
    return (
        fusible
        and producer.outputs[0] == value
        and reads[value] == times
        and graph.values[value].shape == out.shape
    )


def _join(
    graph: ir.Graph, producer: ir.Call, call: ir.Call, value: int
) -> ir.Call | None:
    """One call that computes `producer`'s value and then `call`'s steps."""
    first, second = steps_of(graph, producer), steps_of(graph, call)
    if not is_program(call):
        return None  # `call` already has a kernel in front of its steps
    if len(first) + len(second) > MAX_STEPS:
        return None
    op, args, result = PROGRAM, [], graph.values[call.outputs[0]].dtype
    if not is_program(producer):
        op, args = producer.op, producer.args
        made = graph.values[value].dtype
        result = made if producer.result is None else producer.result

    def shift(arg: ir.Arg) -> ir.Arg:
        if arg == ir.Ref(value):
            return ir.Local(len(first) - 1)
        return ir.Local(arg.step + len(first)) if isinstance(arg, ir.Local) else arg

    shifted = [step.map_args(shift) for step in second]
    outputs = [call.outputs[0], *producer.outputs[1:]]
    return ir.Call(op, args, outputs, [*first, *shifted], result)


def plannable(graph: ir.Graph, call: ir.Call) -> bool:
    """Whether a call can be planned on any adapter, at its largest shapes."""
    alone = ir.Graph(symbols=dict(graph.symbols))
    numbers: dict[int, int] = {}
    for value in [*ir.call_inputs(call), *call.outputs]:
        if value not in numbers:
            numbers[value] = alone.add(replace(graph.values[value]))
            if value not in call.outputs and not graph.values[value].data_key:
                alone.inputs.append(numbers[value])

    def renumber(arg: ir.Arg) -> ir.Arg:
        return ir.Ref(numbers[arg.id]) if isinstance(arg, ir.Ref) else arg

    alone.outputs = [numbers[value] for value in call.outputs]
    alone.calls = [replace(call.map_args(renumber), outputs=alone.outputs)]
    try:
        check_supported(alone, smallest=False)
    except Unsupported:
        return False
    return True
