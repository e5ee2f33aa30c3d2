"""What a chain of reshapes and permutations does, in terms of its source.

Dimensions of the source are split into pieces as reshapes need it. A view of the
chain is then a list of dimensions, each some pieces in some order; pieces of one
element are left out, because their order does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from .... import ir
from ..rewrite import is_reshape, permutation


@dataclass(frozen=True, order=True)
class Piece:
    """A factor of a dimension; pieces sort by their order in the source."""

    index: tuple[int, ...]  # the dimension, then which factor of each split
    extent: ir.Dim
    bound: int


View: TypeAlias = "list[list[Piece]]"


def is_link(graph: ir.Graph, call: ir.Call) -> bool:
    """Whether a call may be in a chain: a reshape or a permutation, nothing else."""
    known = is_reshape(call) or permutation(graph, call) is not None
    return known and not call.post


def whole(value: ir.Value) -> View:
    """The source itself as a view: one piece for each dimension."""
    dims = zip(value.shape, value.bound)
    return [[Piece((d,), n, b)] if n != 1 else [] for d, (n, b) in enumerate(dims)]


def after(graph: ir.Graph, call: ir.Call, view: View) -> View | None:
    """What a reshape or permutation makes of a view; None if that is not known."""
    order = permutation(graph, call)
    if order is not None:
        return [view[d] for d in order]
    if not is_reshape(call):
        return None
    left = [piece for dim in view for piece in dim]
    made: View = []
    for extent in graph.values[call.outputs[0]].shape:
        dim = _take(left, extent)
        if dim is None:
            return None
        made.append(dim)
    return None if left else made


def _take(left: list[Piece], extent: ir.Dim) -> list[Piece] | None:
    """The pieces, from the first on, that are a dimension; the last may be split."""
    taken: list[Piece] = []
    if isinstance(extent, str):
        return [left.pop(0)] if left and left[0].extent == extent else None
    while extent > 1:
        size = left[0].extent if left else 0
        if not isinstance(size, int) or not size:
            return None
        first = left.pop(0)
        if size > extent and size % extent == 0:
            rest = size // extent
            left.insert(0, Piece((*first.index, 1), rest, rest))
            first, size = Piece((*first.index, 0), extent, extent), extent
        if extent % size:
            return None
        taken.append(first)
        extent //= size
    return taken if extent == 1 else None


def joins(view: View) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The pairs of pieces that follow each other within a dimension."""
    return {(a.index, b.index) for dim in view for a, b in pairwise(dim)}


def is_free(view: View, hidden: Sequence[Piece] = ()) -> bool:
    """Whether the view is a strided one of a contiguous source: the pieces of each
    dimension are adjacent there, without a hidden one between them."""
    seen = [piece for dim in view for piece in dim]
    indices = sorted(piece.index for piece in (*seen, *hidden))
    return joins(view) <= set(pairwise(indices))


def refined(view: View, like: View) -> View:
    """A view in the pieces into which a later one has split its own."""
    small = sorted(piece for dim in like for piece in dim)
    return [
        [s for p in dim for s in small if s.index[: len(p.index)] == p.index]
        for dim in view
    ]


def apply(graph: ir.Graph, source: int, view: View, result: int) -> list[ir.Call]:
    """Calls that make `result` the view of `source`, as few as it takes."""
    pieces = sorted(piece for dim in view for piece in dim)
    wanted = [piece for dim in view for piece in dim]
    calls: list[ir.Call] = []
    at = source
    if wanted != pieces:
        at = reshape(graph, calls, at, pieces, result)
        order: list[ir.Arg] = [pieces.index(piece) for piece in wanted]
        at = _add(graph, calls, "aten.permute_copy.default", at, order, wanted, result)
    shape: list[ir.Arg] = [
        ir.Expr(n) if isinstance(n, str) else n for n in graph.values[result].shape
    ]
    calls.append(ir.Call("aten.view_copy.default", [ir.Ref(at), shape], [result]))
    return calls


def reshape(
    graph: ir.Graph, calls: list[ir.Call], at: int, pieces: list[Piece], like: int
) -> int:
    """`at` with one dimension for each piece; a call is added if that takes one."""
    if graph.values[at].shape == tuple(piece.extent for piece in pieces):
        return at
    shape: list[ir.Arg] = [
        ir.Expr(p.extent) if isinstance(p.extent, str) else p.extent for p in pieces
    ]
    return _add(graph, calls, "aten.view_copy.default", at, shape, pieces, like)


def _add(
    graph: ir.Graph,
    calls: list[ir.Call],
    op: str,
    at: int,
    arg: ir.Arg,
    pieces: list[Piece],
    like: int,
) -> int:
    value = graph.values[like]
    shape = tuple(piece.extent for piece in pieces)
    bound = tuple(piece.bound for piece in pieces)
    made = graph.add(ir.Value(f"{value.name}_view", value.dtype, shape, bound))
    calls.append(ir.Call(op, [ir.Ref(at), arg], [made]))
    return made
