"""Attention written out as softmax(q @ k^T * scale + mask) @ v becomes the op for it.

Written out, every score is stored, read, stored as a weight and read again. The op
stores a block of them at a time or none, writes the heads of a token side by side, and
reads heads that are repeated as they are.

- The scale may be on the product, on q or on k, as a factor or as a divisor.
- A mask may be added, or replace scores by a number (`masked_fill`, `where`), -inf or
  not: the op does the same. One that hides exactly the later keys makes the attention
  causal. Several are combined only if they are constants, added, and leave every query
  a key, because where all scores are far below 0 rounding would show.
- Reshapes of batch and heads may stand between all ops.

Scores and weights must be read by nothing else. Only float32: ops of a smaller type
round in between, which the op does not. Keys and values that all batches share, or that
are constants, stay matrix products, which have better kernels for them; so does
everything with three or more batch dimensions throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from .... import ir
from ....ir.dtypes import DType
from ....ir.signatures import Attention, Slice, Softmax
from ...constants import Constants
from ...torch_dtypes import to_torch
from ..cleanup import remove_dead
from ..evaluate import applied, evaluate
from ..layout import view_chain
from ..rewrite import is_reshape, made_by
from .attention_scores import (
    PRODUCTS,
    Context,
    Mask,
    Scores,
    before_views,
    behind_views,
    swap_last,
    take_apart,
)
from .kv_cache import single_heads

_MINUS_INFINITY = float("-inf")
_NOT = ("aten.logical_not.default", "aten.bitwise_not.default")
# What does to the top left of a table the same as to all of it.
_CORNERWISE = (
    "aten.tril.default",
    "aten.triu.default",
    "aten.eq.Scalar",
    "aten.ne.Scalar",
    *_NOT,
)
# Bytes of a mask that is worth storing, and how far below 0 a sum of masks may be for
# a query's best key: float32 still tells scores there apart.
_LARGE = 4 << 20
_NEAR = 128.0


def run(graph: ir.Graph, constants: Constants) -> None:
    # What an earlier pass has replaced still reads the scores.
    remove_dead.run(graph, constants)
    making = _Making(Context(graph, constants))
    calls: list[ir.Call] = []
    for call in graph.calls:
        calls += making.calls if _fuse(making, call) else [call]
        making.calls = []
    graph.calls = [call for call in calls if id(call) not in making.gone]
    # Later passes look at who reads a value.
    remove_dead.run(graph, constants)


@dataclass
class _Making:
    """What the pass makes: calls in place of one at hand, and constants."""

    c: Context
    calls: list[ir.Call] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)  # calls that others stand for, by id()
    masks: dict[str, ir.Ref] = field(default_factory=dict)  # constants, by key
    opposites: dict[int, ir.Ref] = field(default_factory=dict)  # by boolean mask

    def add(
        self, op: str, args: list[ir.Arg], like: ir.Value, dims: Sequence[_Dim]
    ) -> ir.Ref:
        """A call that gives a value like another one, of these extents."""
        shape, bound = tuple(d.extent for d in dims), tuple(d.bound for d in dims)
        value = ir.Value(f"{like.name}_attended", like.dtype, shape, bound)
        made = self.c.graph.add(value)
        self.calls.append(ir.Call(op, args, [made]))
        return ir.Ref(made)

    def view(self, x: ir.Ref, dims: Sequence[_Dim]) -> ir.Ref:
        value = self.c.value(x)
        if value.shape == tuple(d.extent for d in dims):
            return x
        return self.add("aten.view_copy.default", [x, _sizes(dims)], value, dims)

    def constant(self, tensor: torch.Tensor) -> ir.Ref:
        key = self.c.constants.key(tensor)
        if key not in self.masks:
            self.masks[key] = self.c.constants.add("mask", tensor)
        return self.masks[key]


@dataclass(frozen=True)
class _Dim:
    """An extent, and the largest that it can be."""

    extent: ir.Dim
    bound: int


def _dims(value: ir.Value) -> list[_Dim]:
    return [_Dim(extent, bound) for extent, bound in zip(value.shape, value.bound)]


def _sizes(dims: Sequence[_Dim]) -> list[ir.Arg]:
    sizes = [d.extent for d in dims]
    return [ir.Expr(n) if isinstance(n, str) else n for n in sizes]


# -- the op --------------------------------------------------------------------------


def _fuse(making: _Making, call: ir.Call) -> bool:
    """Whether a product of weights and values was attention; `making` has it then."""
    c = making.c
    if call.op not in PRODUCTS or call.post:
        return False
    weights, v = call.args
    result = ir.Ref(call.outputs[0])
    last = c.alone(behind_views(c, weights), Softmax.NAME)
    if last is None or not isinstance(v, ir.Ref) or len(c.value(v).shape) < 2:
        return False
    soft = Softmax.of(last)
    rank = len(c.value(soft.x).shape)
    if soft.dim not in (-1, rank - 1) or c.batch(weights) != c.batch(result):
        return False
    scores = take_apart(c, soft.x)
    if scores is None or not all(_are_tokens(c, arg) for arg in (scores.k, v)):
        return False
    end = before_views(c, result)
    for way in _ways(c, scores, end):
        batch = _dims(c.value(way))[:-2]
        if not _fit(c, scores, v, result, batch):
            continue
        mask = _mask(making, scores, batch)
        if mask is not None:
            operands = _operands(making, scores, v, batch)
            _attend(making, operands, mask, scores.scale, batch, end)
            making.gone.add(id(c.made.pop(end.id)))
            c.made.pop(result.id, None)  # the product is no more: none takes it apart
            return True
    return False


def _are_tokens(c: Context, arg: ir.Ref) -> bool:
    """Whether keys or values are float32 and computed: no weights of a layer."""
    while arg.id in c.made and view_chain.is_link(c.graph, c.made[arg.id]):
        (source,) = ir.call_inputs(c.made[arg.id])
        arg = ir.Ref(source)
    value = c.value(arg)
    return value.dtype is DType.FLOAT32 and not value.is_constant


def _ways(c: Context, scores: Scores, end: ir.Ref) -> list[ir.Ref]:
    """Values whose batch dimensions the op could have, those with heads first."""
    ways = [end, *(mask.scores for mask in scores.masks), scores.product]
    ways = [way for way in ways if len(c.batch(way)) <= 2]
    return sorted(ways, key=lambda way: -len(c.batch(way)))


def _fit(
    c: Context, scores: Scores, v: ir.Ref, result: ir.Ref, batch: list[_Dim]
) -> bool:
    """Whether views give the operands these batch dimensions. Only q may be
    broadcast, where the product has them too."""
    given = c.batch(scores.product)
    if c.batch(scores.k) != given or c.batch(v) != c.batch(result):
        return False
    return c.batch(scores.q) == given or given == tuple(d.extent for d in batch)


def _operands(
    making: _Making, scores: Scores, v: ir.Ref, batch: list[_Dim]
) -> tuple[ir.Ref, ir.Ref, ir.Ref, bool]:
    """q, k and v in these dimensions, and whether heads of k and v are shared."""
    c, q, k = making.c, scores.q, scores.k
    whole = c.batch(q) == c.batch(scores.product)
    if scores.transposed:
        order = swap_last(len(c.value(k).shape))
        dims = [_dims(c.value(k))[d] for d in order]
        k = making.add("aten.permute_copy.default", [k, [*order]], c.value(k), dims)
    if whole:
        q = making.view(q, [*batch, *_dims(c.value(q))[-2:]])
    k, v = (making.view(x, [*batch, *_dims(c.value(x))[-2:]]) for x in (k, v))
    keys, values = (single_heads(c.graph, c.made, x) for x in (k, v))
    shared = {c.batch(keys), c.batch(values)}
    grouped = whole and len(shared) == 1 and c.batch(k) not in shared
    return (q, keys, values, True) if grouped else (q, k, v, False)


def _attend(
    making: _Making,
    operands: tuple[ir.Ref, ir.Ref, ir.Ref, bool],
    mask: _Masking,
    scale: float,
    batch: list[_Dim],
    end: ir.Ref,
) -> None:
    """The call that gives `end`, perhaps with a view after it."""
    q, k, v, grouped = operands
    masked = (mask.tensor, 0.0, mask.causal, scale, grouped, mask.hidden)
    attention = Attention(q, k, v, *masked)
    value = making.c.value(end)
    dims = _dims(value)
    if dims[:-2] == batch:
        making.calls.append(attention.call(end.id))
        return
    made = making.add(attention.NAME, attention.args(), value, [*batch, *dims[-2:]])
    view: list[ir.Arg] = [made, _sizes(dims)]
    making.calls.append(ir.Call("aten.view_copy.default", view, [end.id]))


# -- its mask ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Masking:
    """The op's arguments that say what a query sees."""

    tensor: ir.Ref | None = None
    causal: bool = False
    hidden: float = _MINUS_INFINITY


def _mask(making: _Making, scores: Scores, batch: list[_Dim]) -> _Masking | None:
    """The masks as one, for scores with these batch dimensions; None if there is no
    such mask, and then nothing is made."""
    c, masks = making.c, scores.masks
    if not masks:
        return _Masking()
    if len(masks) > 1:
        return _sum(making, masks, batch)
    (mask,) = masks
    if _is_causal(c, mask):
        return _Masking(causal=True)
    hidden = _MINUS_INFINITY if mask.hidden is None else mask.hidden
    inverted = mask.hidden is not None and mask.hides
    table = _table(c, mask, batch) if inverted or not _fits(c, mask, batch) else None
    if table is not None:
        stored = making.constant(table.logical_not() if inverted else table)
        return _Masking(stored, hidden=hidden)
    if not _fits(c, mask, batch):
        return None
    tensor = _opposite(making, mask.tensor) if inverted else mask.tensor
    dims = _dims(c.value(tensor))
    return _Masking(making.view(tensor, dims[-len(batch) - 2 :]), hidden=hidden)


def _opposite(making: _Making, mask: ir.Ref) -> ir.Ref:
    """The mask that is true where this one is not."""
    inverse = made_by(making.c.made, mask, *_NOT)
    if inverse is not None and isinstance(inverse.args[0], ir.Ref):
        return inverse.args[0]
    if mask.id not in making.opposites:
        value = making.c.value(mask)
        made = making.add(_NOT[0], [mask], value, _dims(value))
        making.opposites[mask.id] = made
    return making.opposites[mask.id]


def _own(c: Context, mask: Mask) -> tuple[ir.Dim, ...]:
    """A mask's batch dimensions without those in front that are 1."""
    batch = list(c.batch(mask.tensor))
    while batch and batch[0] == 1:
        batch.pop(0)
    return tuple(batch)


def _fits(c: Context, mask: Mask, batch: list[_Dim]) -> bool:
    """Whether the mask broadcasts to scores with these dimensions as to its own."""
    count = len(_own(c, mask))
    wanted = tuple(d.extent for d in batch)
    same = c.batch(mask.scores)[-count:] == wanted[-count:] or not count
    return same and count <= len(wanted) and bool(c.value(mask.tensor).shape)


def _table(c: Context, mask: Mask, batch: list[_Dim]) -> torch.Tensor | None:
    """The numbers of a constant mask, for scores with these dimensions."""
    values = evaluate(c.constants, c.made, mask.tensor)
    sizes = [*c.value(mask.scores).shape, *(d.extent for d in batch)]
    if values is None or not values.dim() or any(isinstance(n, str) for n in sizes):
        return None
    if _fits(c, mask, batch):
        return values.reshape(values.shape[-len(_own(c, mask)) - 2 :])
    last = (1, 1, *values.shape)[-2:]
    if math.prod(d.bound for d in batch) * math.prod(last) * 4 > _LARGE:
        return None
    full = values.expand(*c.value(mask.scores).bound[:-2], *last)
    return full.reshape(*(d.bound for d in batch), *last)


def _sum(making: _Making, masks: Sequence[Mask], batch: list[_Dim]) -> _Masking | None:
    """Constants that are added, as one of moderate size."""
    total: torch.Tensor | None = None
    for mask in masks:
        table = _table(making.c, mask, batch) if mask.hidden is None else None
        if table is None:
            return None
        total = table if total is None else total + table
    assert total is not None
    moderate = total.numel() * 4 <= _LARGE
    near = bool((total.amax(-1).abs() <= _NEAR).all())
    return _Masking(making.constant(total)) if moderate and near else None


def _is_causal(c: Context, mask: Mask) -> bool:
    """Whether a mask hides exactly the keys that come after a query."""
    queries, keys = c.value(mask.scores).shape[-2:]
    shape = c.value(mask.tensor).shape[-2:]
    if queries != keys or shape != (queries, keys):
        return False
    if mask.hidden not in (None, _MINUS_INFINITY):
        return False
    table = _corner_of(c, mask.tensor)
    if table is None or table.dim() < 2 or math.prod(table.shape[:-2]) != 1:
        return False
    ones = torch.ones(table.shape, dtype=torch.bool)
    if mask.hidden is None:
        wanted = torch.zeros(table.shape).masked_fill(ones.triu(1), _MINUS_INFINITY)
    else:
        wanted = ones.triu(1) if mask.hides else ones.tril()
    return table.dtype is wanted.dtype and torch.equal(table, wanted)


def _corner_of(c: Context, arg: ir.Arg) -> torch.Tensor | None:
    """A table of which a value is the top left, however large that is."""
    if not isinstance(arg, ir.Ref):
        return None
    value, call, table = c.value(arg), c.made.get(arg.id), c.constants.of(arg)
    if table is not None or call is None or call.post:
        return table
    if call.op == "aten.full.default":
        number = c.constants.number(call.args[1])
        dtype = to_torch(value.dtype)
        return None if number is None else torch.full(value.bound, number, dtype=dtype)
    source = _corner_of(c, call.args[0]) if call.args else None
    if source is None or source.dim() < 2:
        return None
    if call.op in _CORNERWISE:
        return applied(call, source)
    if call.op == Slice.NAME:
        cut = Slice.of(call)
        return source if cut.start in (None, 0) and cut.step == 1 else None
    same = value.shape[-2:] == c.value(call.args[0]).shape[-2:]
    reshaped = is_reshape(call) or call.op == "aten.expand_copy.default"
    return source if same and reshaped else None
