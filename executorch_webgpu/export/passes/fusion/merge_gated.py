"""One dispatch for gate and up projections: act(x @ G) * (x @ U).

Before this pass, `fuse_pointwise` has made two linear layers of one input: the
epilogue of the first applies act, that of the second multiplies by the first's result.
In one product of both weights an invocation has both sums of an element, so that the
two epilogues can follow each other in it: one dispatch less, one tensor less that is
written and read, and the input is read once. The same holds for one layer whose result
is cut in two halves. Rows of the weights alternate as `ops/matmul/gated_linear.py`
says.

Layers are not merged if anything else reads the first one's result, or a weight, which
would be stored twice, or if the joined weight is larger than a binding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .... import ir
from ....ir.dtypes import DType
from ....ir.signatures import GatedLinear, GatedLinearPacked, Linear, Slice
from ....plan.caps import AOT_CAPS
from ....plan.pointwise import is_program, steps_of
from ...constants import Constants
from ..rewrite import Producers, made_as, producers
from .fuse_pointwise import plannable
from .linear_layers import Layer, layer_of

_PAIR = 2


@dataclass(frozen=True)
class _Pair:
    """Gate and up projection: each a layer, or its rows from a row on; and the steps of
    the merged epilogue."""

    layers: tuple[tuple[Layer, int], tuple[Layer, int]]
    steps: list[ir.Step]
    calls: list[ir.Call]  # what a merged call replaces, the one with the result last


def run(graph: ir.Graph, constants: Constants) -> None:
    made, reads = producers(graph), ir.uses(graph)
    for call in list(graph.calls):
        layer = layer_of(call)
        if layer is not None:
            pair = _two_layers(graph, made, reads, layer)
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
    graph: ir.Graph, made: Producers, reads: dict[int, int], second: Layer
) -> _Pair | None:
    """`second` and the layer whose result only the steps after `second` read."""
    after = second.call.post
    read = list(ir.step_inputs(after))
    for value in read:
        first = layer_of(made[value]) if value in made else None
        if (
            first is not None
            and reads[value] == read.count(value)
            and graph.values[value].shape == graph.values[second.call.outputs[0]].shape
            and _own_type(graph, first.call) == _own_type(graph, second.call)
            and _alike(graph, first, second)
            and all(_constant(graph, reads, layer) for layer in (first, second))
        ):
            by = len(first.call.post)
            steps = _renamed(after, {value: ir.Local(by - 1)}, by)
            calls = [first.call, second.call]
            return _Pair(((first, 0), (second, 0)), [*calls[0].post, *steps], calls)
    return None


def _two_halves(
    graph: ir.Graph, made: Producers, reads: dict[int, int], call: ir.Call
) -> _Pair | None:
    """A layer of whose result `call`, elementwise, reads the two halves."""
    steps = steps_of(graph, call) if is_program(call) else []
    read = list(ir.step_inputs(steps))
    halves: dict[int, tuple[int, Slice]] = {}  # by the row with which they begin
    for value in read:
        cut = made_as(made, ir.Ref(value), Slice)
        if cut is None or reads[value] != read.count(value):
            continue
        start = _half(graph, cut, value)
        if start is not None:
            halves[start] = (value, cut)
    if len(halves) != 2:
        return None
    (gate, first), (up, second) = (halves[start] for start in sorted(halves))
    source = made.get(first.x.id)
    layer = None if source is None or source.post else layer_of(source)
    rows = graph.values[gate].shape
    if (
        layer is None
        or first.x != second.x
        or reads[first.x.id] != 2
        or rows != graph.values[call.outputs[0]].shape
        or not _constant(graph, reads, layer)
    ):
        return None
    names = {gate: ir.Local(-1), up: ir.Local(-2)}
    layers = ((layer, 0), (layer, max(halves)))
    calls = [layer.call, made[gate], made[up], call]
    return _Pair(layers, _renamed(steps, names, 0), calls)


def _half(graph: ir.Graph, cut: Slice, result: int) -> int | None:
    """The column with which a slice begins, if it is the first or the second half."""
    whole = graph.values[cut.x.id]
    width = whole.bound[-1] if whole.bound else 0
    half = graph.values[result].bound[-1:] == (width / 2,)
    along = cut.dim in (-1, len(whole.bound) - 1)
    if not along or cut.step != 1 or not half or not isinstance(cut.start, int):
        return None
    return cut.start if cut.start in (0, width // 2) else None


def _own_type(graph: ir.Graph, call: ir.Call) -> DType:
    """The type of a call's result before its epilogue."""
    own = graph.values[call.outputs[0]].dtype
    return own if call.result is None else call.result


def _alike(graph: ir.Graph, first: Layer, second: Layer) -> bool:
    """Whether two layers differ in nothing but their weights."""
    if first.call.op != second.call.op or first.others() != second.others():
        return False
    pairs = zip(first.constants().items(), second.constants().values())
    for (name, one), other in pairs:
        types = {arg and graph.values[arg.id].dtype.label for arg in (one, other)}
        if len(types - {None} if name == "bias" else types) > 1:
            return False
    return True


def _constant(graph: ir.Graph, reads: dict[int, int], layer: Layer) -> bool:
    """Whether the layer's weight is a constant matrix that nothing else reads, and
    its bias, if it has one, a constant with an element for each row."""
    given = [arg for arg in layer.constants().values() if arg is not None]
    rows = graph.values[layer.call.outputs[0]].bound[-1:]
    weight, bias = graph.values[layer.weight.id], layer.args.bias
    return (
        all(graph.values[arg.id].is_constant for arg in given)
        and (bias is None or graph.values[bias.id].bound == rows)
        and len(weight.bound) == 2
        and 0 not in weight.bound
        and reads[layer.weight.id] == 1
    )


def _fits(graph: ir.Graph, pair: _Pair) -> bool:
    """Whether the joined weight still fits one binding."""
    weights = {layer.weight.id for layer, _ in pair.layers}
    tensors = [graph.values[value] for value in weights]
    size = sum(math.prod(w.bound) * w.dtype.size for w in tensors)
    return size <= AOT_CAPS.max_binding


def _merge(graph: ir.Graph, constants: Constants, pair: _Pair) -> ir.Call:
    first, result = pair.layers[0][0], pair.calls[-1].outputs
    rows = graph.values[result[0]].bound[-1]
    joined = {
        name: _alternate(graph, constants, pair, name, rows)
        for name in first.constants()
    }
    args = first.with_constants(joined, rows)
    kind = GatedLinear if isinstance(args, Linear) else GatedLinearPacked
    gated = kind(**vars(args))
    result_type = _own_type(graph, first.call)
    return ir.Call(gated.NAME, gated.args(), result, pair.steps, result_type)


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
    graph: ir.Graph, constants: Constants, pair: _Pair, name: str, rows: int
) -> ir.Ref | None:
    """Both layers' constants by one name: two rows of one, two of the other."""
    given = [layer.constants()[name] for layer, _ in pair.layers]
    known = next((arg for arg in given if arg is not None), None)
    like = constants.of(known)
    if known is None or like is None:
        return None
    along = pair.layers[0][0].along
    tensors = [constants.of(arg) for arg in given]
    pair_rows = [
        like.new_zeros(rows)
        if tensor is None
        else tensor.movedim(along, 0).narrow(0, start, rows)
        for tensor, (_, start) in zip(tensors, pair.layers)
    ]
    joined = alternate(*pair_rows).movedim(0, along).contiguous()
    return constants.add(graph.values[known.id].name, joined)


def alternate(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Rows of two tensors in turn, in pairs; zeros fill up a last one."""
    pairs = []
    for x in (first, second):
        filled = torch.cat([x, x.new_zeros(-len(x) % _PAIR, *x.shape[1:])])
        pairs.append(filled.reshape(-1, _PAIR, *x.shape[1:]))
    return torch.stack(pairs, 1).flatten(0, 2)
