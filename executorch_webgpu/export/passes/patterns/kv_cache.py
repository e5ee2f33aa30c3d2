"""Key and value caches written in plain PyTorch become the ops for them.

- cache[:, :, positions] = rows, of a state: `cache_put`, which writes in place.
  Positions that count up from an integer which only the data knows become it.
- attention masked by the positions' rows of a lower triangle: `attend_cached`,
  which reads only what the positions reach, of heads that are not repeated.
- a cache of halves that is cast for attention is read as it is: kernels compute in
  float32 whatever they read, and a cast would go over all of it in every call.
"""

from __future__ import annotations

import torch

from .... import ir
from ....ir.dtypes import DType
from ...constants import Constants
from ..rewrite import Producers, cast_of, made_by, producers

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
        if call.op == "aten.index_put.default" and not call.post:
            _fuse_cache(graph, constants, made, call)
    for call in graph.calls:
        if call.op == "aten.scaled_dot_product_attention.default" and not call.post:
            _fuse_attention(graph, constants, made, call)
        elif call.op == "llama.custom_sdpa.default":
            caches = [_uncast(graph, made, arg) for arg in call.args[1:3]]
            call.args[1:3] = caches


# -- caches -----------------------------------------------------------------------


def _fuse_cache(
    graph: ir.Graph, constants: Constants, made: Producers, call: ir.Call
) -> None:
    cache, indices, value, accumulate = call.args
    if accumulate or not isinstance(cache, ir.Ref) or not isinstance(value, ir.Ref):
        return
    if not graph.values[cache.id].state or not isinstance(indices, list):
        return
    at = indices[-1]
    if any(index is not None for index in indices[:-1]) or not isinstance(at, ir.Ref):
        return
    if len(graph.values[at.id].shape) != 1 or not graph.values[at.id].dtype.is_int:
        return
    dim = len(indices) - 1
    start = _counting_from(constants, made, at)
    rows, place = graph.values[value.id].shape, graph.values[cache.id].shape
    fits = rows == (*place[:dim], *graph.values[at.id].shape, *place[dim + 1 :])
    call.op = "webgpu.cache_put"
    call.args = [cache, value, dim, start if start is not None and fits else at]


def _counting_from(constants: Constants, made: Producers, at: ir.Arg) -> ir.Expr | None:
    """n of arange(length) + n, an integer that is no constant."""
    add = made_by(made, at, "aten.add.Tensor")
    if add is None or add.args[2] != 1:
        return None
    for place in (0, 1):
        if not _counts(constants, made, add.args[place]):
            continue
        number = add.args[1 - place]
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
    q, k, v, mask, dropout, causal, scale, grouped, *hidden = call.args
    if dropout or causal or not isinstance(q, ir.Ref):
        return
    if any(score not in (None, float("-inf")) for score in hidden):
        return
    caches = [_uncast(graph, made, arg) for arg in (k, v)]
    if not grouped:
        # Heads are repeated before or after the cast.
        caches = [
            _uncast(graph, made, single_heads(graph, made, arg)) for arg in caches
        ]
    if not _fit(graph, q.id, caches):
        return
    at = _masked_by(graph, constants, made, mask, caches[0])
    if isinstance(at, ir.Ref):
        # The cache's write reports positions outside, those of the mask too.
        puts = [made_by(made, cache, "webgpu.cache_put") for cache in caches]
        if any(put is None or put.args[2:] != [2, at] for put in puts):
            return
    if at is not None:
        call.op = "webgpu.attend_cached"
        call.args = [q, *caches, at, scale]


def _uncast(graph: ir.Graph, made: Producers, arg: ir.Arg) -> ir.Arg:
    """What was cast to float32 from a narrower float type: the same numbers."""
    cast = cast_of(made, arg)
    if cast is None or not isinstance(cast.args[0], ir.Ref):
        return arg
    narrow = graph.values[cast.args[0].id].dtype
    wide = graph.values[cast.outputs[0]].dtype
    exact = narrow in (DType.FLOAT16, DType.BFLOAT16) and wide is DType.FLOAT32
    return cast.args[0] if exact else arg


def single_heads(graph: ir.Graph, made: Producers, arg: ir.Arg) -> ir.Arg:
    """The heads of [B, H * n, S, D] where each of H stands n times in a row."""
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


def _fit(graph: ir.Graph, q: int, caches: list[ir.Arg]) -> bool:
    """Whether the kernel takes the shapes: alike, head sizes in fours."""
    shapes = [graph.values[c.id].shape for c in caches if isinstance(c, ir.Ref)]
    queries = graph.values[q].shape
    if len(shapes) != 2 or shapes[0] != shapes[1] or len(queries) != 4:
        return False
    batch, keys, _, size = shapes[0] if len(shapes[0]) == 4 else (0, 0, 0, 0)
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
    keys: ir.Arg,
) -> ir.Ref | ir.Expr | None:
    """The positions whose rows of a lower triangle the mask is; or the first."""
    view = made_by(made, mask, *_VIEWS)
    while view is not None:
        mask = view.args[0]
        view = made_by(made, mask, *_VIEWS)
    rows = made_by(made, mask, "aten.index.Tensor", "aten.slice_copy.Tensor")
    if rows is None or not isinstance(keys, ir.Ref):
        return None
    at: ir.Arg
    if rows.op == "aten.index.Tensor":
        indices = rows.args[1]
        at = indices[0] if isinstance(indices, list) and len(indices) == 1 else None
    else:
        at = rows.args[2] if rows.args[1] == 0 and rows.args[4] == 1 else None
    if not isinstance(at, (ir.Ref, ir.Expr)):
        return None
    length = graph.values[keys.id].shape[2]
    return at if _is_triangle(constants.of(rows.args[0]), length) else None


def _is_triangle(values: torch.Tensor | None, length: ir.Dim) -> bool:
    """Whether a constant of `length` columns hides exactly what is to come."""
    if values is None or values.dim() != 2 or values.shape[1] != length:
        return False
    keep = torch.ones_like(values, dtype=torch.bool).tril()
    if values.dtype == torch.bool:
        return bool((values == keep).all())
    low = torch.full_like(values, float("-inf")).masked_fill(keep, 0.0)
    return values.is_floating_point() and bool((values == low).all())
