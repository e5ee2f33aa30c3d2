"""What passes share: who makes a value, who reads it, and replacing one."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from ... import ir
from ...ir.signatures import Signature
from ...plan import registry
from ...plan.registry import View

_PERMUTES = ("aten.permute_copy.default", "aten.permute.default")
_TRANSPOSES = ("aten.transpose_copy.int", "aten.t_copy.default")

Producers: TypeAlias = "dict[int, ir.Call]"
S = TypeVar("S", bound=Signature)


def producers(graph: ir.Graph) -> Producers:
    """The call that defines each computed value."""
    return {value: call for call in graph.calls for value in call.outputs}


def made_by(made: Producers, arg: ir.Arg, *ops: str) -> ir.Call | None:
    """The call of one of `ops` that made an argument, if nothing is fused into it."""
    call = made.get(arg.id) if isinstance(arg, ir.Ref) else None
    return call if call is not None and call.op in ops and not call.post else None


def made_as(made: Producers, arg: ir.Arg, kind: type[S]) -> S | None:
    """The arguments of the op of this kind that made an argument, as `made_by`."""
    call = made_by(made, arg, kind.NAME)
    return None if call is None else kind.of(call)


def cast_of(made: Producers, arg: ir.Arg) -> ir.Call | None:
    """The call that converted an argument's type, if nothing is fused into it."""
    call = made.get(arg.id) if isinstance(arg, ir.Ref) else None
    return call if call is not None and is_cast(call) and not call.post else None


def is_cast(call: ir.Call) -> bool:
    found = registry.find(call.op)
    return found is not None and found.cast


def is_reshape(call: ir.Call) -> bool:
    """Whether a call only gives the elements of its operand another shape."""
    return registry.view_of(call.op) is View.RESHAPED


def permutation(graph: ir.Graph, call: ir.Call) -> list[int] | None:
    """The order in which a call gives its operand's dimensions, if it does that."""
    rank = len(graph.values[call.outputs[0]].shape)
    given = call.args[1] if call.op in _PERMUTES else call.args[1:] or [0, 1]
    if call.op not in _PERMUTES + _TRANSPOSES or not isinstance(given, list):
        return None
    dims = [d % rank for d in given if isinstance(d, int) and rank]
    if call.op in _PERMUTES:
        return dims if len(dims) == rank else None
    order = list(range(rank))
    if rank > 1:
        first, second = dims
        order[first], order[second] = second, first
    return order


def consumers(graph: ir.Graph) -> dict[int, list[ir.Call]]:
    """The calls that read each value, once for every time they do."""
    readers: dict[int, list[ir.Call]] = {}
    for call in graph.calls:
        for value in ir.call_inputs(call):
            readers.setdefault(value, []).append(call)
    return readers


def replace_value(graph: ir.Graph, old: int, new: int) -> None:
    """Everything that reads `old` reads `new`, which equals it."""
    graph.renamed[old] = new

    def swap(arg: ir.Arg) -> ir.Arg:
        return ir.Ref(new) if arg == ir.Ref(old) else arg

    for call in graph.calls:
        call.args = ir.map_arg(call.args, swap)
        call.post = [step.map_args(swap) for step in call.post]
    graph.outputs = [new if value == old else value for value in graph.outputs]
    graph.mutations = {
        state: new if value == old else value
        for state, value in graph.mutations.items()
    }
