"""The scores of attention that is written out, taken apart: product, scale, masks.

Used by `attention.py`. Going back from what a softmax reads, each call's result must be
float32 and read by nothing but the next; reshapes of batch and heads may be between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .... import ir
from ....ir.dtypes import DType
from ...constants import Constants
from ..layout import view_chain
from ..rewrite import (
    Producers,
    consumers,
    is_reshape,
    made_by,
    permutation,
    producers,
)

PRODUCTS = ("aten.matmul.default", "aten.bmm.default", "aten.mm.default")
_FACTORS = ("aten.mul.Tensor", "aten.mul.Scalar")
_DIVISORS = ("aten.div.Tensor", "aten.div.Scalar")
_FILLS = ("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")


@dataclass
class Context:
    """A graph as it is before the pass, with who makes and who reads its values."""

    graph: ir.Graph
    constants: Constants
    made: Producers = field(init=False)
    readers: dict[int, list[ir.Call]] = field(init=False)
    uses: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.made, self.readers = producers(self.graph), consumers(self.graph)
        self.uses = ir.uses(self.graph)

    def value(self, arg: ir.Arg) -> ir.Value:
        assert isinstance(arg, ir.Ref), arg
        return self.graph.values[arg.id]

    def batch(self, arg: ir.Arg) -> tuple[ir.Dim, ...]:
        return self.value(arg).shape[:-2]

    def alone(self, arg: ir.Arg, *ops: str) -> ir.Call | None:
        """The call of one of `ops` that made a float32 which is read only here."""
        call = made_by(self.made, arg, *ops)
        if call is None or not isinstance(arg, ir.Ref) or self.uses[arg.id] != 1:
            return None
        return call if self.value(arg).dtype is DType.FLOAT32 else None


@dataclass(frozen=True)
class Mask:
    """A mask, and the scores that it meets."""

    tensor: ir.Ref
    scores: ir.Ref
    hidden: float | None = None  # the score where it hides a key; None: it is added
    hides: bool = True  # the value with which it hides


@dataclass(frozen=True)
class Scores:
    """A scaled product of queries and keys, with masks."""

    product: ir.Ref
    q: ir.Ref
    k: ir.Ref
    transposed: bool  # k is [.., E, S]
    scale: float
    masks: tuple[Mask, ...] = ()


def take_apart(c: Context, x: ir.Arg, masks: tuple[Mask, ...] = ()) -> Scores | None:
    """What a softmax reads, from its last mask to the product; None if it is other."""
    x = behind_views(c, x)
    if not isinstance(x, ir.Ref) or len(c.value(x).shape) < 2:
        return None
    for mask in _masks(c, x):
        if c.value(mask.scores).shape == c.value(x).shape:
            scores = take_apart(c, mask.scores, (*masks, mask))
            if scores is not None:
                return scores
    return _scaled_product(c, x, masks)


# -- masks ---------------------------------------------------------------------------


def _masks(c: Context, x: ir.Ref) -> list[Mask]:
    """The ways to see a value as masked scores."""
    add = c.alone(x, "aten.add.Tensor")
    fill = c.alone(x, *_FILLS)
    where = c.alone(x, "aten.where.self")
    if add is not None and add.args[2:] == [1]:
        a, b = add.args[:2]
        return [*_added(c, b, a), *_added(c, a, b)]
    if fill is not None:
        scores, mask, number = fill.args
        return _filled(c, mask, scores, number, True)
    if where is not None:
        mask, a, b = where.args
        return [*_filled(c, mask, a, b, False), *_filled(c, mask, b, a, True)]
    return []


def _added(c: Context, mask: ir.Arg, scores: ir.Arg) -> list[Mask]:
    if not isinstance(mask, ir.Ref) or not isinstance(scores, ir.Ref):
        return []
    return [Mask(mask, scores)] if c.value(mask).dtype is DType.FLOAT32 else []


def _filled(
    c: Context, mask: ir.Arg, scores: ir.Arg, number: ir.Arg, hides: bool
) -> list[Mask]:
    """Scores with a number in their place where the mask is `hides`."""
    hidden = c.constants.number(number)
    if hidden is None or not isinstance(mask, ir.Ref) or not isinstance(scores, ir.Ref):
        return []
    boolean = c.value(mask).dtype is DType.BOOL
    return [Mask(mask, scores, hidden, hides)] if boolean else []


# -- the product ---------------------------------------------------------------------


def _scaled_product(c: Context, x: ir.Ref, masks: tuple[Mask, ...]) -> Scores | None:
    at, scale = x, 1.0
    while (scaled := _unscaled(c, c.alone(at, *_FACTORS, *_DIVISORS))) is not None:
        at, scale = behind_views(c, scaled[0]), scale * scaled[1]
    product = c.alone(at, *PRODUCTS)
    if product is None:
        return None
    q, by_q, _ = _operand(c, product.args[0], may_transpose=False)
    k, by_k, transposed = _operand(c, product.args[1], may_transpose=True)
    scale *= by_q * by_k
    if min(len(c.value(arg).shape) for arg in (q, k)) < 2 or not math.isfinite(scale):
        return None
    if any(c.value(arg).dtype is not DType.FLOAT32 for arg in (q, k)):
        return None
    return Scores(at, q, k, transposed, scale, masks)


def _unscaled(c: Context, call: ir.Call | None) -> tuple[ir.Ref, float] | None:
    """x and the factor of x * factor, factor * x or x / divisor."""
    if call is None or call.post or call.op not in _FACTORS + _DIVISORS:
        return None
    for index in (0, 1) if call.op in _FACTORS else (0,):
        x, number = call.args[index], c.constants.number(call.args[1 - index])
        if number is None or not isinstance(x, ir.Ref):
            continue
        value, result = c.value(x), c.graph.values[call.outputs[0]]
        if value.dtype is not DType.FLOAT32 or value.shape != result.shape:
            continue
        if call.op in _FACTORS:
            return x, number
        return (x, 1 / number) if number else None
    return None


def _operand(
    c: Context, arg: ir.Arg, may_transpose: bool
) -> tuple[ir.Ref, float, bool]:
    """What is multiplied, behind factors and transposes; the factor; and whether it is
    read as it is: after an even number of transposes."""
    assert isinstance(arg, ir.Ref)
    scale, even = 1.0, True
    while (call := c.made.get(arg.id)) is not None and not call.post:
        scaled = _unscaled(c, call)
        if scaled is not None:
            arg, scale = scaled[0], scale * scaled[1]
            continue
        order = permutation(c.graph, call) if may_transpose else None
        if order is None or len(order) < 2 or order != swap_last(len(order)):
            break
        (source,) = ir.call_inputs(call)
        arg, even = ir.Ref(source), not even
    return arg, scale, even


def swap_last(rank: int) -> list[int]:
    """The order of dimensions that transposes matrices."""
    return [*range(rank - 2), rank - 1, rank - 2]


# -- views ---------------------------------------------------------------------------


def behind_views(c: Context, arg: ir.Arg) -> ir.Ref:
    """What `arg` is behind views that only change batch dimensions and are read only
    here."""
    assert isinstance(arg, ir.Ref)
    chain: list[ir.Call] = []
    source = arg
    while c.uses[source.id] == 1:
        call = c.made.get(source.id)
        if call is None or not view_chain.is_link(c.graph, call):
            break
        chain.insert(0, call)
        (before,) = ir.call_inputs(call)
        source = ir.Ref(before)
    return source if chain and _keeps_matrices(c.graph, source, chain) else arg


def before_views(c: Context, result: ir.Ref) -> ir.Ref:
    """The last of the views after a result that only split its batch dimension into
    batch and heads; the result itself if there is none."""
    chain: list[ir.Call] = []
    at, best = result, result
    while c.uses[at.id] == 1 and at.id in c.readers:
        (reader,) = c.readers[at.id]
        if not view_chain.is_link(c.graph, reader):
            break
        chain.append(reader)
        at = ir.Ref(reader.outputs[0])
        if len(c.batch(at)) == 2 and _keeps_matrices(c.graph, result, chain):
            best = at
    return best


def _keeps_matrices(graph: ir.Graph, source: ir.Ref, chain: Sequence[ir.Call]) -> bool:
    """Whether a chain of views leaves matrices as they are, in their order."""
    given = graph.values[source.id]
    made = graph.values[chain[-1].outputs[0]]
    if len(made.shape) < 2 or given.shape[-2:] != made.shape[-2:]:
        return False
    if all(is_reshape(call) for call in chain):
        return True
    view: view_chain.View | None = view_chain.whole(given)
    for call in chain:
        view = None if view is None else view_chain.after(graph, call, view)
    pieces = [piece for dim in view or () for piece in dim]
    return view is not None and pieces == sorted(pieces)
