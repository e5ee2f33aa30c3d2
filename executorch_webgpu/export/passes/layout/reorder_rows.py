"""A linear layer reads its input's rows in memory order; its result is reordered.

A layer does the same to every row. Where its input is a permutation of rows, which
would be copied first, it reads the rows as they are stored, and the permutation is a
view of the result. That pays if the readers take strided views, or restore the order,
as nn.MultiheadAttention does with its sequence and batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .... import ir
from ....ir.signatures import (
    Attention,
    AttentionByToken,
    Linear,
    ScaledDotProductAttention,
    Select,
)
from ....plan.pointwise import is_formula
from ...constants import Constants
from ..cleanup import remove_dead
from ..rewrite import Producers, consumers, producers
from . import view_chain
from .view_chain import Piece, View

# Besides formulas, what reads its operands through strides.
_STRIDED = (ScaledDotProductAttention.NAME, Attention.NAME, AttentionByToken.NAME)


def run(graph: ir.Graph, constants: Constants) -> None:
    made, readers = producers(graph), consumers(graph)
    kept = {*graph.outputs, *graph.mutations.values()}
    calls: list[ir.Call] = []
    for call in graph.calls:
        rows = None
        if call.op == Linear.NAME and not call.post:
            rows = _rows(graph, made, call)
        if rows is None:
            calls.append(call)
            continue
        (result,) = call.outputs
        value = graph.values[result]
        last = len(graph.values[rows.source].shape)
        columns = Piece((last,), value.shape[-1], value.bound[-1])
        view = [*rows.view, [columns]]
        if _pays(graph, readers, kept, result, view, []):
            calls += _reordered(graph, call, rows.source, view)
        else:
            calls.append(call)
    graph.calls = calls
    # Later passes look at who reads a value.
    remove_dead.run(graph, constants)


@dataclass(frozen=True)
class _Rows:
    """The rows of a layer's input, in terms of what they are a permutation of."""

    source: int
    view: View


def _rows(graph: ir.Graph, made: Producers, call: ir.Call) -> _Rows | None:
    """None if the rows are in order, or if columns are not whole in the source."""
    chain: list[ir.Call] = []
    layer = Linear.of(call)
    source = layer.x.id
    if len(graph.values[layer.weight.id].shape) != 2:
        return None
    while source in made and view_chain.is_link(graph, made[source]):
        chain.insert(0, made[source])
        (source,) = ir.call_inputs(made[source])
    view: View | None = view_chain.whole(graph.values[source])
    for link in chain:
        view = None if view is None else view_chain.after(graph, link, view)
    if not view:
        return None
    *rows, columns = view
    flat = [piece for dim in rows for piece in dim]
    pieces = sorted([*flat, *columns])
    reordered = pieces[: len(flat)] != flat
    return _Rows(source, rows) if pieces[len(flat) :] == columns and reordered else None


def _pays(
    graph: ir.Graph,
    readers: dict[int, list[ir.Call]],
    kept: set[int],
    value: int,
    view: View | None,
    hidden: list[Piece],
) -> bool:
    """Whether all that follows reads a view of the result without a copy; pieces
    that are `hidden` lie in memory, but only one index of them is read."""
    if view is None or value in kept:
        return False
    for reader in readers.get(value, []):
        seen, more = None, hidden
        if view_chain.is_link(graph, reader):
            seen = view_chain.after(graph, reader, view)
        elif reader.op == Select.NAME:
            at = Select.of(reader).dim % len(view)
            seen, more = view[:at] + view[at + 1 :], [*hidden, *view[at]]
        elif is_formula(reader) or reader.op in _STRIDED:
            if not view_chain.is_free(view, hidden):
                return False
            continue
        if not _pays(graph, readers, kept, reader.outputs[0], seen, more):
            return False
    return True


def _reordered(
    graph: ir.Graph, call: ir.Call, source: int, view: View
) -> list[ir.Call]:
    """The layer on the source's rows, and views that put them in the old order."""
    layer = Linear.of(call)
    (result,) = call.outputs
    given, made = graph.values[layer.x.id], graph.values[result]
    *rows, columns = sorted(piece for dim in view for piece in dim)
    depth = Piece(columns.index, given.shape[-1], given.bound[-1])
    calls: list[ir.Call] = []
    before = view_chain.reshape(graph, calls, source, [*rows, depth], layer.x.id)
    shape = tuple(piece.extent for piece in (*rows, columns))
    bound = tuple(piece.bound for piece in (*rows, columns))
    after = graph.add(ir.Value(f"{made.name}_rows", made.dtype, shape, bound))
    calls.append(replace(layer, x=ir.Ref(before)).call(after))
    return [*calls, *view_chain.apply(graph, after, view, result)]
