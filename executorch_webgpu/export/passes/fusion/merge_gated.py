"""One launch for gate and up projections: act(x @ G) * (x @ U).

Of two linear layers of one input, `fuse_pointwise` has let the first store act(gate)
and the second multiply by it as it stores. One product of both weights has the two
sums of an element in one invocation, so that the steps of the first and then those of
the second can follow at once: a launch less, a tensor less that is written and read,
and the input is read once. So it is with one layer whose result is cut in two halves.
Rows of the weights alternate as `ops/gated_linear.py` says.

Layers stay apart if anything else reads the first one's result or a weight, which
would be kept twice, or if the two weights are more than every adapter can bind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .... import ir
from ....ir.dtypes import DType
from ....plan.caps import AOT_CAPS
from ...constants import Constants
from ..rewrite import Producers, made_by, producers
from .fuse_pointwise import is_program, plannable, steps_of

_PAIR = 2
_SLICE = "aten.slice_copy.Tensor"


@dataclass(frozen=True)
class _Form:
    """What an op is for two layers, and along which dimension of its constants, by
    argument, their rows lie."""

    op: str
    along: dict[int, int]
    bias: int  # the constant that may be missing: then it is 0
    rows: int | None = None  # the argument that is their number, if there is one


_FORMS = {
    "aten.linear.default": _Form("webgpu.gated_linear", {1: 0, 2: 0}, bias=2),
    "webgpu.linear_packed": _Form(
        "webgpu.gated_linear_packed", {1: -1, 2: -1, 3: -1, 7: 0}, bias=7, rows=4
    ),
}


@dataclass(frozen=True)
class _Pair:
    """Two layers, each some rows of a call from one on, and what becomes of them."""

    layers: tuple[tuple[ir.Call, int], tuple[ir.Call, int]]
    steps: list[ir.Step]
    calls: list[ir.Call]  # what a merged call replaces, the one with the result last


def run(graph: ir.Graph, constants: Constants) -> None:
    made, reads = producers(graph), ir.uses(graph)
    for call in list(graph.calls):
        if call.op in _FORMS:
            pair = _two_layers(graph, made, reads, call)
        else:
            pair = _two_halves(graph, made, reads, call)
        if pair is None or not _fits(graph, pair):
            continue
        merged = _merge(graph, constants, pair)
        if plannable(graph, merged):
            graph.calls[graph.calls.index(call)] = merged
            gone = {id(other) for other in pair.calls}
            graph.calls = [other for other in graph.calls if id(other) not in gone]
            made[call.outputs[0]] = merged


def _two_layers(
    graph: ir.Graph, made: Producers, reads: dict[int, int], second: ir.Call
) -> _Pair | None:
    """`second` and the layer whose result only the steps after `second` read."""
    read = list(ir.step_inputs(second.post))
    for value in read:
        first = made.get(value)
        if (
            first is not None
            and first.op == second.op
            and reads[value] == read.count(value)
            and graph.values[value].shape == graph.values[second.outputs[0]].shape
            and _own_type(graph, first) == _own_type(graph, second)
            and _alike(graph, first, second)
            and all(_constant(graph, reads, call) for call in (first, second))
        ):
            by = len(first.post)
            steps = _renamed(second.post, {value: ir.Local(by - 1)}, by)
            layers = ((first, 0), (second, 0))
            return _Pair(layers, [*first.post, *steps], [first, second])
    return None


def _two_halves(
    graph: ir.Graph, made: Producers, reads: dict[int, int], call: ir.Call
) -> _Pair | None:
    """A layer of whose result `call`, elementwise, reads the two halves."""
    steps = steps_of(graph, call) if is_program(call) else []
    read = list(ir.step_inputs(steps))
    halves: dict[int, tuple[int, ir.Call]] = {}  # by the row with which they begin
    for value in read:
        cut = made_by(made, ir.Ref(value), _SLICE)
        if cut is None or reads[value] != read.count(value):
            continue
        start = _half(graph, cut)
        if start is not None:
            halves[start] = (value, cut)
    if len(halves) != 2:
        return None
    (gate, first), (up, second) = (halves[start] for start in sorted(halves))
    layer = made_by(made, first.args[0], *_FORMS)
    rows = graph.values[gate].shape
    if (
        layer is None
        or first.args[0] != second.args[0]
        or reads[layer.outputs[0]] != 2
        or rows != graph.values[call.outputs[0]].shape
        or not _constant(graph, reads, layer)
    ):
        return None
    names = {gate: ir.Local(-1), up: ir.Local(-2)}
    layers = ((layer, 0), (layer, max(halves)))
    return _Pair(layers, _renamed(steps, names, 0), [layer, first, second, call])


def _half(graph: ir.Graph, cut: ir.Call) -> int | None:
    """The column with which a slice begins, if it is the first or the second half."""
    source, dim, start, _, step = cut.args
    assert isinstance(source, ir.Ref)
    assert isinstance(dim, int)
    whole = graph.values[source.id]
    width = whole.bound[-1] if whole.bound else 0
    half = graph.values[cut.outputs[0]].bound[-1:]
    along = dim in (-1, len(whole.bound) - 1)
    if not along or step != 1 or half != (width / 2,) or not isinstance(start, int):
        return None
    return start if start in (0, width // 2) else None


def _own_type(graph: ir.Graph, call: ir.Call) -> DType:
    """The type of a call's result before the steps that follow it."""
    own = graph.values[call.outputs[0]].dtype
    return own if call.result is None else call.result


def _given(call: ir.Call) -> list[ir.Arg]:
    """The arguments with those that were left out."""
    return [*call.args, *[None] * (max(_FORMS[call.op].along) + 1 - len(call.args))]


def _alike(graph: ir.Graph, first: ir.Call, second: ir.Call) -> bool:
    """Whether two calls differ in nothing but their weights."""
    form = _FORMS[first.op]
    for index, (one, other) in enumerate(zip(_given(first), _given(second))):
        if index not in form.along and one != other:
            return False
        types = {
            graph.values[arg.id].dtype if isinstance(arg, ir.Ref) else None
            for arg in (one, other)
        }
        if len(types - {None} if index == form.bias else types) > 1:
            return False
    return True


def _constant(graph: ir.Graph, reads: dict[int, int], call: ir.Call) -> bool:
    """Whether the call's weight is a constant matrix that nothing else reads, and
    its bias, if it has one, a constant with an element for each row."""
    form, given = _FORMS[call.op], _given(call)
    values = {
        index: graph.values[arg.id]
        for index, arg in ((index, given[index]) for index in form.along)
        if isinstance(arg, ir.Ref)
    }
    rows = graph.values[call.outputs[0]].bound[-1:]
    bias, weight = values.get(form.bias), values[1]
    return (
        all(value.is_constant for value in values.values())
        and (bias is None or bias.bound == rows)
        and len(weight.bound) == 2
        and 0 not in weight.bound
        and all(reads[value] == 1 for value in ir.refs(given[1]))
    )


def _fits(graph: ir.Graph, pair: _Pair) -> bool:
    """Whether the joined weight can still be bound as one buffer."""
    weights = {value for call, _ in pair.layers for value in ir.refs(call.args[1])}
    tensors = [graph.values[value] for value in weights]
    size = sum(math.prod(w.bound) * w.dtype.size for w in tensors)
    return size <= AOT_CAPS.max_binding


def _merge(graph: ir.Graph, constants: Constants, pair: _Pair) -> ir.Call:
    first, result = pair.layers[0][0], pair.calls[-1].outputs
    form, args = _FORMS[first.op], _given(first)
    rows = graph.values[result[0]].bound[-1]
    for index in form.along:
        args[index] = _alternate(graph, constants, pair, index, rows)
    if form.rows is not None:
        args[form.rows] = rows
    return ir.Call(form.op, args, result, pair.steps, _own_type(graph, first))


def _renamed(
    steps: list[ir.Step], names: dict[int, ir.Local], by: int
) -> list[ir.Step]:
    """Steps behind `by` others, with values that have become results of theirs; what
    was the own result of the steps' kernel is its second one."""

    def rename(arg: ir.Arg) -> ir.Arg:
        if isinstance(arg, ir.Ref):
            return names.get(arg.id, arg)
        if isinstance(arg, ir.Local):
            return ir.Local(arg.step + by if arg.step >= 0 else -2)
        return arg

    return [step.map_args(rename) for step in steps]


def _alternate(
    graph: ir.Graph, constants: Constants, pair: _Pair, index: int, rows: int
) -> ir.Arg:
    """Both layers' constants at one argument: two rows of one, two of the other."""
    along = _FORMS[pair.layers[0][0].op].along[index]
    given = [_given(call)[index] for call, _ in pair.layers]
    tensors = [constants.of(arg) for arg in given]
    like = next((tensor for tensor in tensors if tensor is not None), None)
    if like is None:
        return None
    parts = [
        like.new_zeros(rows)
        if tensor is None
        else tensor.movedim(along, 0).narrow(0, start, rows)
        for tensor, (_, start) in zip(tensors, pair.layers)
    ]
    name = next(graph.values[value].name for value in ir.refs(given))
    return constants.add(name, alternate(*parts).movedim(0, along).contiguous())


def alternate(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Rows of two tensors in turn, in pairs; zeros fill up a last one."""
    pairs = []
    for x in (first, second):
        filled = torch.cat([x, x.new_zeros(-len(x) % _PAIR, *x.shape[1:])])
        pairs.append(filled.reshape(-1, _PAIR, *x.shape[1:]))
    return torch.stack(pairs, 1).flatten(0, 2)
