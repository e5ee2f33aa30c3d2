"""Moves a view that stands between a kernel and an elementwise op below that op.

A reshape or permutation computes nothing, but its result has another shape than the
kernel stores, which keeps `fuse_pointwise` from fusing the two. f(view(x)) is
view(f(x)) if f's other operands have strided views in the shape of x: numbers and
single elements do; for a permutation any tensor; for a reshape one that is contiguous,
or that varies only along dimensions that the reshape does not merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .... import ir
from ....plan import registry
from ....plan.pointwise import is_formula
from ...constants import Constants
from ..rewrite import Producers, is_reshape, permutation, producers
from .view_chain import is_link


@dataclass(frozen=True)
class _Operand:
    """A tensor seen through views: their calls, and the shape it has after them."""

    value: int
    shape: tuple[ir.Dim, ...]
    bound: tuple[int, ...]
    contiguous: bool
    views: tuple[tuple[str, ir.Arg, tuple[ir.Dim, ...], tuple[int, ...]], ...] = ()

    def reshaped(self, shape: tuple[ir.Dim, ...], bound: tuple[int, ...]) -> _Operand:
        if shape == self.shape:
            return self
        size: ir.Arg = [ir.Expr(n) if isinstance(n, str) else n for n in shape]
        view = ("aten.view_copy.default", size, shape, bound)
        return replace(self, shape=shape, bound=bound, views=(*self.views, view))

    def permuted(self, order: list[int]) -> _Operand:
        shape = tuple(self.shape[d] for d in order)
        bound = tuple(self.bound[d] for d in order)
        dims: ir.Arg = [*order]
        view = ("aten.permute_copy.default", dims, shape, bound)
        return _Operand(self.value, shape, bound, False, (*self.views, view))

    def padded(self, rank: int) -> _Operand:
        """With dimensions of 1 in front, as broadcasting adds them."""
        ones = (1,) * (rank - len(self.shape))
        return self.reshaped((*ones, *self.shape), (*ones, *self.bound))


def run(graph: ir.Graph, constants: Constants) -> None:
    made, reads = producers(graph), ir.uses(graph)
    for call in list(graph.calls):
        if not is_formula(call) or any(isinstance(arg, list) for arg in call.args):
            continue
        if _sink(graph, made, reads, call):
            made, reads = producers(graph), ir.uses(graph)


def _sink(
    graph: ir.Graph, made: Producers, reads: dict[int, int], call: ir.Call
) -> bool:
    values = sorted(set(ir.call_inputs(call)))
    if any(_joins(graph, made, reads, call, value) for value in values):
        return False  # there is a kernel to take the op in already
    for value in values:
        chain = _views_behind(graph, made, reads, call, value)
        others = {
            other: _undone(graph, chain, _operand(graph, made, other))
            for other in values
            if other != value
        }
        known = {key: operand for key, operand in others.items() if operand}
        if chain and len(known) == len(others):
            _move(graph, call, value, chain, known)
            return True
    return False


def _joins(
    graph: ir.Graph,
    made: Producers,
    reads: dict[int, int],
    call: ir.Call,
    value: int,
) -> bool:
    """Whether the call is the only reader of a kernel's result of its shape."""
    producer = made.get(value)
    found = registry.find(producer.op) if producer else None
    alone = reads[value] == list(ir.call_inputs(call)).count(value)
    same = graph.values[value].shape == graph.values[call.outputs[0]].shape
    return bool(
        producer
        and found
        and found.fusible
        and producer.outputs[0] == value
        and not is_formula(producer)
        and alone
        and same
    )


def _views_behind(
    graph: ir.Graph,
    made: Producers,
    reads: dict[int, int],
    call: ir.Call,
    value: int,
) -> list[ir.Call]:
    """The views from what the call reads back to a kernel's result, none of which
    has another reader; empty if there is no such kernel."""
    if graph.values[value].shape != graph.values[call.outputs[0]].shape:
        return []
    times, views = list(ir.call_inputs(call)).count(value), []
    view = made.get(value)
    while view is not None and reads[value] == times and is_link(graph, view):
        views.append(view)
        (value,) = ir.call_inputs(view)
        times, view = 1, made.get(value)
    found = registry.find(view.op) if view else None
    kernel = view and found and found.fusible and view.outputs[0] == value
    return views if kernel and reads[value] == times else []


def _operand(graph: ir.Graph, made: Producers, value: int) -> _Operand:
    """What a formula reads, as it is."""
    tensor, source = graph.values[value], value
    while source in made and is_reshape(made[source]):
        (source,) = ir.call_inputs(made[source])
    # Other shape ops walk their source in another order.
    seen = source in made and registry.view_of(made[source].op)
    contiguous = not seen and not graph.values[source].dim_order
    return _Operand(value, tensor.shape, tensor.bound, contiguous)


def _undone(
    graph: ir.Graph, chain: list[ir.Call], operand: _Operand
) -> _Operand | None:
    """The operand as f reads it above the views; None if that would be a copy."""
    for view in chain:
        seen = _above(graph, view, operand)
        if seen is None:
            return None
        operand = seen
    return operand


def _above(graph: ir.Graph, view: ir.Call, operand: _Operand) -> _Operand | None:
    (source,) = ir.call_inputs(view)
    above, below = graph.values[source], graph.values[view.outputs[0]]
    if not any(n != 1 for n in operand.shape):
        return operand.reshaped((), ())
    operand = operand.padded(len(below.shape))
    order = permutation(graph, view)
    if order is not None:
        return operand.permuted(sorted(range(len(order)), key=order.__getitem__))
    shape: list[ir.Dim] = []
    bound: list[int] = []
    for there, here in _groups(above.shape, below.shape):
        extents = operand.shape[here]
        if all(n == 1 for n in extents):
            shape += [1] * len(above.shape[there])
            bound += [1] * len(above.shape[there])
            continue
        # One dimension can be split whatever its stride; several can only be merged
        # if they are contiguous.
        whole = extents == below.shape[here]
        if not whole or (len(extents) > 1 and not operand.contiguous):
            return None
        shape += above.shape[there]
        bound += above.bound[there]
    return operand.reshaped(tuple(shape), tuple(bound))


def _groups(
    above: tuple[ir.Dim, ...], below: tuple[ir.Dim, ...]
) -> Iterator[tuple[slice, slice]]:
    """The dimensions of two shapes of the same elements that stand for each other."""
    rest = min(len(above), len(below))
    head = next((d for d in range(rest) if above[d] != below[d]), rest)
    rest -= head
    tail = next((d for d in range(rest) if above[-1 - d] != below[-1 - d]), rest)
    yield from ((slice(d, d + 1), slice(d, d + 1)) for d in range(head))
    ends = len(above) - tail, len(below) - tail
    yield from _split(above, below, head, ends)
    for d in range(tail):
        yield slice(ends[0] + d, ends[0] + d + 1), slice(ends[1] + d, ends[1] + d + 1)


def _split(
    above: tuple[ir.Dim, ...],
    below: tuple[ir.Dim, ...],
    head: int,
    ends: tuple[int, int],
) -> Iterator[tuple[slice, slice]]:
    """The same for the range in which dimensions differ; one group if not all are
    known numbers."""
    sizes = [*above[head : ends[0]], *below[head : ends[1]]]
    if any(isinstance(n, str) or n == 0 for n in sizes):
        yield slice(head, ends[0]), slice(head, ends[1])
        return
    i = j = head
    while (i, j) != ends:
        first, left, right = (i, j), 1, 1
        while (i, j) == first or left != right:
            if (left <= right and i < ends[0]) or j == ends[1]:
                left, i = left * int(above[i]), i + 1
            else:
                right, j = right * int(below[j]), j + 1
        yield slice(first[0], i), slice(first[1], j)


def _move(
    graph: ir.Graph,
    call: ir.Call,
    value: int,
    chain: list[ir.Call],
    others: dict[int, _Operand],
) -> None:
    """The op on what the chain of views starts from, and the views after it."""
    (source,) = ir.call_inputs(chain[-1])
    (result,) = call.outputs
    at = graph.calls.index(call)
    before: list[ir.Call] = []
    names = {value: source}
    for key, operand in others.items():
        last = key
        for op, arg, shape, bound in operand.views:
            seen = replace(
                graph.values[key], shape=shape, bound=bound, data_key="", state=""
            )
            args: list[ir.Arg] = [ir.Ref(last), arg]
            last = graph.add(replace(seen, dim_order=()))
            before.append(ir.Call(op, args, [last]))
        names[key] = last
    call.args = [
        ir.Ref(names[arg.id]) if isinstance(arg, ir.Ref) else arg for arg in call.args
    ]
    after: list[ir.Call] = []
    last = _like(graph, source, result)
    call.outputs = [last]
    for view in reversed(chain):
        end = view is chain[0]
        target = result if end else _like(graph, view.outputs[0], result)
        after.append(ir.Call(view.op, [ir.Ref(last), *view.args[1:]], [target]))
        last = target
    graph.calls[at : at + 1] = [*before, call, *after]
    gone = {id(view) for view in chain}
    graph.calls = [c for c in graph.calls if id(c) not in gone]


def _like(graph: ir.Graph, shape_of: int, type_of: int) -> int:
    """A new value with the shape of one and the type of another."""
    value, kind = graph.values[shape_of], graph.values[type_of]
    name = f"{kind.name}_above"
    return graph.add(ir.Value(name, kind.dtype, value.shape, value.bound))
