"""Key and value caches written in plain PyTorch become the ops for them.

- cache[:, :, positions] = rows, of a state: `cache_put`, which writes in place.
  Positions that count up from an integer of the data become that integer.
- attention masked by the positions' rows of a lower triangle: `attend_cached`,
  which reads only what the positions reach, of heads that are not repeated.
- a float16 cache that is cast for attention is read as it is: kernels compute in
  float32 whatever they read, and a cast would convert all of it in every call.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from .... import ir
from ....ir.dtypes import DType
from ....ir.signatures import (
    AttendCached,
    Attention,
    CachePut,
    CustomSdpa,
    Index,
    IndexPut,
    ScaledDotProductAttention,
    Slice,
)
from ...constants import Constants
from ..rewrite import Producers, cast_of, made_as, made_by, producers

_ATTENTION = (ScaledDotProductAttention.NAME, Attention.NAME)
_VIEWS = (
    "aten.view_copy.default",
    "aten.unsqueeze_copy.default",
    "aten.expand_copy.default",
    "aten.alias_copy.default",
    "aten.clone.default",
)


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    for call in graph.calls:
        if call.op == IndexPut.NAME and not call.post:
            _fuse_cache(graph, constants, made, call)
    for call in graph.calls:
        if call.op == CustomSdpa.NAME:
            given = CustomSdpa.of(call)
            k, v = (_uncast(graph, made, x) for x in (given.key, given.value))
            replace(given, key=k, value=v).write_to(call)
        elif call.op in _ATTENTION and not call.post:
            _fuse_attention(graph, constants, made, call)


# -- caches -----------------------------------------------------------------------


def _fuse_cache(
    graph: ir.Graph, constants: Constants, made: Producers, call: ir.Call
) -> None:
    given = IndexPut.of(call)
    cache, value = graph.values[given.x.id], graph.values[given.values.id]
    if given.accumulate or not cache.state:
        return
    *others, at = given.indices
    if any(index is not None for index in others) or at is None:
        return
    if len(graph.values[at.id].shape) != 1 or not graph.values[at.id].dtype.is_int:
        return
    dim = len(others)
    start = _counting_from(constants, made, at)
    positions, extents = graph.values[at.id].shape, cache.shape
    fits = value.shape == (*extents[:dim], *positions, *extents[dim + 1 :])
    first = start if start is not None and fits else at
    CachePut(given.x, given.values, dim, first).write_to(call)


def _counting_from(constants: Constants, made: Producers, at: ir.Arg) -> ir.Expr | None:
    """n of arange(length) + n, an integer that is no constant."""
    add = made_by(made, at, "aten.add.Tensor")
    if add is None or add.args[2] != 1:
        return None
    for index in (0, 1):
        if not _counts(constants, made, add.args[index]):
            continue
        number = add.args[1 - index]
        cast = cast_of(made, number)
        scalar = made_by(
            made, number if cast is None else cast.args[0], "aten.scalar_tensor.default"
        )
        if scalar is not None and isinstance(scalar.args[0], ir.Expr):
            return scalar.args[0]
    return None


def _counts(constants: Constants, made: Producers, arg: ir.Arg) -> bool:
    """Whether a tensor is 0, 1, 2, ..."""
    count = made_by(made, arg, "aten.arange.start_step")
    if count is not None:
        return count.args[0] == 0 and count.args[2] == 1
    values = constants.of(arg)
    if values is None or values.dim() != 1:
        return False
    return bool((values == torch.arange(len(values))).all())


# -- attention ----------------------------------------------------------------------


def _fuse_attention(
    graph: ir.Graph, constants: Constants, made: Producers, call: ir.Call
) -> None:
    written_out = call.op == Attention.NAME
    given = (Attention if written_out else ScaledDotProductAttention).of(call)
    if given.dropout_p or given.is_causal:
        return
    if isinstance(given, Attention) and given.hidden != float("-inf"):
        return
    k, v = (_uncast(graph, made, arg) for arg in (given.k, given.v))
    if not given.enable_gqa:
        # Heads are repeated before or after the cast.
        once = (single_heads(graph, made, arg) for arg in (k, v))
        k, v = (_uncast(graph, made, arg) for arg in once)
    if not _fit(graph, given.q, k, v):
        return
    at = _masked_by(graph, constants, made, given.attn_mask, k)
    if isinstance(at, ir.Ref):
        # The cache's write reports positions outside, those of the mask too.
        puts = [made_as(made, cache, CachePut) for cache in (k, v)]
        if any(put is None or (put.dim, put.at) != (2, at) for put in puts):
            return
    if at is not None:
        AttendCached(given.q, k, v, at, given.scale).write_to(call)


def _uncast(graph: ir.Graph, made: Producers, arg: ir.Ref) -> ir.Ref:
    """What was cast to float32 from a narrower float type: the same numbers."""
    cast = cast_of(made, arg)
    if cast is None or not isinstance(cast.args[0], ir.Ref):
        return arg
    narrow = graph.values[cast.args[0].id].dtype
    wide = graph.values[cast.outputs[0]].dtype
    exact = narrow in (DType.FLOAT16, DType.BFLOAT16) and wide is DType.FLOAT32
    return cast.args[0] if exact else arg


def single_heads(graph: ir.Graph, made: Producers, arg: ir.Ref) -> ir.Ref:
    """[B, H, S, D] of [B, H * n, S, D] in which each head is repeated n times; else
    the argument."""
    view = made_by(made, arg, "aten.view_copy.default")
    expand = made_by(made, view.args[0], "aten.expand_copy.default") if view else None
    single = (
        made_by(made, expand.args[0], "aten.unsqueeze_copy.default") if expand else None
    )
    if view is None or expand is None or single is None or single.args[1] != 2:
        return arg
    source = single.args[0]
    assert isinstance(source, ir.Ref)
    shape = graph.values[source.id].shape
    wide = graph.values[expand.outputs[0]].shape
    if len(shape) != 4 or (*wide[:2], *wide[3:]) != shape:
        return arg
    heads, count = shape[1], wide[2]
    if not isinstance(heads, int) or not isinstance(count, int):
        return arg
    made_shape = graph.values[view.outputs[0]].shape
    return source if made_shape == (shape[0], heads * count, *shape[2:]) else arg


def _fit(graph: ir.Graph, q: ir.Ref, k: ir.Ref, v: ir.Ref) -> bool:
    """Whether the kernel takes the shapes: alike, head sizes in fours."""
    queries, shape, other = (graph.values[x.id].shape for x in (q, k, v))
    if shape != other or len(queries) != 4 or len(shape) != 4:
        return False
    batch, keys, _, size = shape
    heads = queries[1]
    if not isinstance(heads, int) or not isinstance(keys, int) or not keys:
        return False
    alike = queries[0] == batch and queries[3] == size and heads % keys == 0
    return alike and isinstance(size, int) and size % 4 == 0


def _masked_by(
    graph: ir.Graph,
    constants: Constants,
    made: Producers,
    mask: ir.Arg,
    keys: ir.Ref,
) -> ir.Ref | ir.Expr | None:
    """The positions of which the mask is the rows of a lower triangle, or the first
    position; None if it is another mask."""
    view = made_by(made, mask, *_VIEWS)
    while view is not None:
        mask = view.args[0]
        view = made_by(made, mask, *_VIEWS)
    rows = made_as(made, mask, Index) or made_as(made, mask, Slice)
    at: ir.Arg = None
    if isinstance(rows, Index) and len(rows.indices) == 1:
        at = rows.indices[0]
    elif isinstance(rows, Slice) and (rows.dim, rows.step) == (0, 1):
        at = rows.start
    if rows is None or not isinstance(at, (ir.Ref, ir.Expr)):
        return None
    length = graph.values[keys.id].shape[2]
    return at if _is_triangle(constants.of(rows.x), length) else None


def _is_triangle(values: torch.Tensor | None, length: ir.Dim) -> bool:
    """Whether a constant of `length` columns hides exactly the later positions."""
    if values is None or values.dim() != 2 or values.shape[1] != length:
        return False
    keep = torch.ones_like(values, dtype=torch.bool).tril()
    if values.dtype == torch.bool:
        return bool((values == keep).all())
    low = torch.full_like(values, float("-inf")).masked_fill(keep, 0.0)
    return values.is_floating_point() and bool((values == low).all())
