"""Scatter: elements replaced, or combined with others, by index tensors.

Replacing is a copy and then a write per index. Where several indices may name one
element that combines their values, one invocation owns the element and looks for them,
so that nothing races and the order is torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ... import ir
from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import MOVED, SUM
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import collapse, row_major
from ...plan.wgsl_text import Param, compute_type, wrap
from ..movement.copies import copy_view
from ..movement.views import require_inside
from ..sorting.sort import sort_rows
from .gather import indexed, require_elements, vector

op = partial(registry.op, accuracy=MOVED)

# Reductions as WGSL: how one more value v is combined with the result s so far, and the
# result of n values.
_FLOAT_REDUCTIONS = {
    "sum": ("s + v", "s"),
    "prod": ("s * v", "s"),
    "mean": ("s + v", "s / f32(n)"),
    "amax": ("max_nan(s, v)", "s"),
    "amin": ("min_nan(s, v)", "s"),
}
_INT_REDUCTIONS = {
    **_FLOAT_REDUCTIONS,
    "mean": ("s + v", "divide_floor_int(s, n)"),
    "amax": ("max(s, v)", "s"),
    "amin": ("min(s, v)", "s"),
}
# How int64 values are combined, whose results must fit 32 bits.
_EXACT = {
    "sum": "add_exact(s, v)",
    "prod": "multiply_exact(s, v)",
    "mean": "add_exact(s, v)",
}
# Up to this many indices per row, looking at each is faster than sorting them.
_SCAN = 64


@dataclass(frozen=True)
class _Keys:
    """Checked indices into [outer, extent, inner]: [outer, count, inner] of them or,
    if `shared`, [count], the same for every outer and inner."""

    tensor: Tensor
    outer: int
    extent: int
    count: int
    inner: int
    shared: bool


def _combine_hits(
    g: Recorder,
    x: Tensor,
    keys: _Keys,
    src: Tensor,
    reduce: str,
    include_self: bool,
    out: Output,
) -> None:
    """out[a, d, c] = x[a, d, c] combined with src[a, m, c] of each m whose key is d."""
    if x.dtype is DType.BOOL and reduce == "sum":
        reduce = "amax"  # a sum of truths is one
    more, end = (_FLOAT_REDUCTIONS if x.dtype.is_float else _INT_REDUCTIONS)[reduce]
    if x.dtype is DType.INT64:
        more = _EXACT.get(reduce, more)
    kind = compute_type(x.dtype)
    more = wrap(x.dtype, more)
    code = [
        f"fn more(s: {kind}, v: {kind}) -> {kind} {{ return {more}; }}",
        f"fn finish(s: {kind}, n: i32) -> {kind} {{ return {end}; }}",
    ]
    at = "m" if keys.shared else "(a * p.count + m) * p.inner + c"
    inputs = {"x": x, "src": src, "key": keys.tensor}
    if keys.count > _SCAN:
        rows = keys.tensor.with_view((1, keys.count), (keys.count, 1))
        if not keys.shared:
            shape = (keys.outer, keys.count, keys.inner)
            turned = keys.tensor.with_view(shape, row_major(shape)).permute((0, 2, 1))
            rows = g.contiguous(turned)
            rows = rows.with_view(
                (keys.outer * keys.inner, keys.count), (keys.count, 1)
            )
            at = "(a * p.inner + c) * p.count + m"
        inputs["key"], inputs["index"] = sort_rows(g, rows, keys.count, False)
    code.append(f"fn key_at(a: i32, m: i32, c: i32) -> i32 {{ return {at}; }}")
    params: dict[str, Param] = {
        "extent": keys.extent,
        "count": keys.count,
        "inner": keys.inner,
    }
    g.dispatch(
        "scatter_search" if keys.count > _SCAN else "scatter_scan",
        inputs,
        {"y": out},
        params,
        invocations=out.numel,
        code="\n".join(code),
        consts={"INCLUDE_SELF": include_self},
    )


def _write_view(
    g: Recorder,
    source: Tensor | float,
    shape: Sequence[int],
    strides: Sequence[int],
    out: Output,
    index: Tensor | None = None,
    extent: int = 0,
    index_stride: int = 0,
    start: int = 0,
) -> None:
    """Writes into a view of `out` and leaves its other elements as they are; an element
    is moved by its `index`, which is below `extent`, times `index_stride`."""
    layout = collapse(shape, [strides])
    params: dict[str, Param] = {
        "size": layout.shape,
        "stride": layout.strides[0],
        "start": start,
    }
    inputs: dict[str, Tensor] = {}
    kind = compute_type(out.dtype)
    if isinstance(source, Tensor):
        inputs["src"] = source
        value = f"{kind}(get_src(i))"
    else:
        params["value"] = float(source) if out.dtype.is_float else int(source)
        value = "p.value"
    shift = "p.start"
    if index is not None:
        inputs["index"] = index
        params |= {"extent": extent, "index_stride": index_stride}
        shift = "strict_index(get_index(i), p.extent) * p.index_stride"
    code = (
        f"fn source(i: i32) -> {kind} {{ return {value}; }}\n"
        f"fn shift(i: i32) -> i32 {{ return {shift}; }}"
    )
    g.dispatch(
        "write_view",
        inputs,
        {"y": out},
        params,
        invocations=math.prod(shape),
        consts={"RANK": len(layout.shape)},
        strided=inputs.keys(),
        code=code,
    )


def _scatter_write(
    g: Recorder, x: Tensor, dim: int, index: Tensor, src: Tensor | float, out: Output
) -> None:
    copy_view(g, x, out)
    if x.rank == 0 or index.rank == 0:
        x, index, dim = vector(x), vector(index), 0
        src = vector(src) if isinstance(src, Tensor) else src
    dim = x.dim(dim)
    strides = list(row_major(x.shape))
    index_stride, strides[dim] = strides[dim], 0
    if isinstance(src, Tensor):
        src = _head(src, index.shape)
    _write_view(g, src, index.shape, strides, out, index, x.shape[dim], index_stride)


def _head(x: Tensor, shape: Sequence[int]) -> Tensor:
    for dim, extent in enumerate(shape):
        x = x.slice(dim, 0, extent)
    return x


@op("aten.scatter.src")
def scatter_src(
    g: Recorder, x: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Output
) -> None:
    _scatter_write(g, x, dim, index, src, out)


@op("aten.scatter.value")
def scatter_value(
    g: Recorder, x: Tensor, dim: int, index: Tensor, value: float, *, out: Output
) -> None:
    _scatter_write(g, x, dim, index, value, out)


@op("aten.scatter_add.default", accuracy=SUM)
def scatter_add(
    g: Recorder, x: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Output
) -> None:
    _scatter_combined(g, x, dim, index, src, "sum", True, out)


# What `scatter` calls the reductions that it knows.
_SCATTER_REDUCTIONS = {"add": "sum", "multiply": "prod"}


@op("aten.scatter.reduce", keep=True, accuracy=SUM)
def scatter_with_reduce(
    g: Recorder,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    out: Output,
) -> None:
    _scatter_combined(g, x, dim, index, src, _SCATTER_REDUCTIONS[reduce], True, out)


@op("aten.scatter.value_reduce", keep=True, accuracy=SUM)
def scatter_value_with_reduce(
    g: Recorder,
    x: Tensor,
    dim: int,
    index: Tensor,
    value: float,
    reduce: str,
    *,
    out: Output,
) -> None:
    src = g.number(value, x.dtype).expand(index.shape)
    _scatter_combined(g, x, dim, index, src, _SCATTER_REDUCTIONS[reduce], True, out)


@op("aten.scatter_reduce.two", accuracy=SUM)
def scatter_reduce(
    g: Recorder,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
    *,
    out: Output,
) -> None:
    known = sorted(_FLOAT_REDUCTIONS)
    g.require(reduce in known, f"reduce must be one of {known}", reduce)
    _scatter_combined(g, x, dim, index, src, reduce, include_self, out)


def _scatter_combined(
    g: Recorder,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
    out: Output,
) -> None:
    if x.rank == 0 or index.rank == 0:
        x, index, src, dim = vector(x), vector(index), vector(src), 0
    dim = x.dim(dim)
    if index.numel == 0:
        copy_view(g, x, out)
        return
    shape = [x.shape[d] if d == dim else index.shape[d] for d in range(x.rank)]
    head, src = _head(x, shape), _head(src, index.shape)
    count, extent = index.shape[dim], x.shape[dim]
    keys = _Keys(
        _checked_keys(g, index, extent),
        math.prod(shape[:dim]),
        extent,
        count,
        math.prod(shape[dim + 1 :]),
        False,
    )
    if head.shape == x.shape:
        _combine_hits(g, x, keys, src, reduce, include_self, out)
        return
    made = g.output(shape, x.dtype)
    _combine_hits(g, head, keys, src, reduce, include_self, made)
    copy_view(g, x, out)
    _write_view(g, made.tensor, shape, row_major(x.shape), out)


@op("aten.index_reduce.default", fusible=True, keep=True, accuracy=SUM)
def index_reduce(
    g: Recorder,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
    *,
    out: Output,
) -> None:
    """scatter_reduce with the same indices for all other dimensions."""
    x, index = vector(x), vector(index)
    if not index.numel or not x.numel:
        copy_view(g, x, out)
        return
    dim = x.dim(dim)
    extent = x.shape[dim]
    keys = _Keys(
        _checked_keys(g, index, extent),
        math.prod(x.shape[:dim]),
        extent,
        index.numel,
        math.prod(x.shape[dim + 1 :]),
        True,
    )
    _combine_hits(g, x, keys, src, reduce, include_self, out)


def _checked_keys(g: Recorder, index: Tensor, extent: int) -> Tensor:
    keys = g.temp(index.shape, DType.INT32)
    g.dispatch(
        "index_keys",
        {"index": index},
        {"y": keys},
        {"extent": extent},
        invocations=keys.numel,
        strided=("index",),
        code="fn linear(j: i32) -> i32 {"
        " return strict_index(get_index(j), p.extent); }",
    )
    return keys


@op("aten.diagonal_scatter.default", keep=True)
def diagonal_scatter(
    g: Recorder,
    x: Tensor,
    src: Tensor,
    offset: int,
    dim1: int,
    dim2: int,
    *,
    out: Output,
) -> None:
    copy_view(g, x, out)
    plain = row_major(x.shape)
    first, second = x.dim(dim1), x.dim(dim2)
    rest = [plain[d] for d in range(x.rank) if d not in (first, second)]
    start = max(offset, 0) * plain[second] + max(-offset, 0) * plain[first]
    strides = [*rest, plain[first] + plain[second]]
    _write_view(g, src, src.shape, strides, out, start=start)


@op("aten.as_strided_scatter.default", keep=True, of_storage=True)
def as_strided_scatter(
    g: Recorder,
    x: Tensor,
    src: Tensor,
    size: list[int],
    stride: list[int],
    start: int | None,
    *,
    out: Output,
) -> None:
    require_inside(g, x, size, stride, start or 0)
    g.require(
        0 in size or _is_apart(size, stride),
        "a stride must be larger than what the smaller ones span, so that no two"
        " elements of the view are one",
        stride,
    )
    copy_view(g, x, out)
    _write_view(g, src, size, stride, out, start=start or 0)


def _is_apart(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no two elements of a strided view are the same, as far as strides show:
    each is larger than what the smaller ones span."""
    span = 0
    for stride, extent in sorted(zip(map(abs, strides), shape)):
        if extent > 1 and stride <= span:
            return False
        span += (extent - 1) * stride
    return True


# -- index_put -----------------------------------------------------------------------


@op("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    g: Recorder,
    x: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool,
    *,
    out: Output,
) -> None:
    first = next(index for index in indices if index is not None)
    if first.dtype is DType.BOOL and sum(i is not None for i in indices) == 1:
        _masked_put(g, x, indices, values, accumulate, out)
        return
    what = indexed(g, x, indices)
    if not values.numel or not math.prod(what.shape):
        copy_view(g, x, out)
        return
    src = values.expand(what.shape)
    turned = list(what.order) != list(range(x.rank))
    target = g.output(what.view.shape, x.dtype) if turned else out
    if accumulate:
        keys = g.temp((what.count,), DType.INT32)
        g.dispatch(
            "index_keys",
            what.inputs,
            {"y": keys},
            what.params,
            invocations=what.count,
            strided=what.inputs.keys(),
            code=what.linear,
        )
        extent = math.prod(what.extents)
        every = _Keys(keys, what.outer, extent, what.count, what.inner, True)
        _combine_hits(g, what.view, every, src, "sum", True, target)
    else:
        copy_view(g, what.view, target)
        g.dispatch(
            "index_write",
            {"src": src, **what.inputs},
            {"y": target},
            what.params,
            invocations=src.numel,
            strided=("src", *what.inputs),
            code=what.linear,
        )
    if turned:
        back = [what.order.index(d) for d in range(x.rank)]
        g.copy(target.tensor.permute(back), out)


@op("aten.put.default", keep=True)
def put(
    g: Recorder, x: Tensor, index: Tensor, src: Tensor, accumulate: bool, *, out: Output
) -> None:
    """index_put into the flattened tensor."""
    require_elements(g, x, index)
    x, index, src = (g.reshape(t, (t.numel,)) for t in (x, index, src))
    index_put(g, x, [index], src, accumulate, out=out)


def _masked_put(
    g: Recorder,
    x: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool,
    out: Output,
) -> None:
    """x[mask] = value, or += value, elementwise."""
    lead = next(k for k, index in enumerate(indices) if index is not None)
    mask = indices[lead]
    assert mask is not None
    g.require(
        values.numel == 1, "what a mask selects must be set to one value", values.shape
    )
    value = values.with_view((), ())
    rest = x.rank - lead - mask.rank
    shape = (*mask.shape, *((1,) * rest))
    mask = mask.with_view(shape, (*mask.strides, *((1,) * rest)))
    steps = [ir.Step("aten.where.self", [ir.Ref(1), ir.Ref(2), ir.Ref(0)], out.dtype)]
    if accumulate:
        steps = [
            ir.Step("aten.add.Tensor", [ir.Ref(0), ir.Ref(2), 1], out.dtype),
            ir.Step("aten.where.self", [ir.Ref(1), ir.Local(0), ir.Ref(0)], out.dtype),
        ]
    g.pointwise(steps, {0: x, 1: mask, 2: value}, out)
