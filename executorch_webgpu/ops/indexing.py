"""Indexing: elements chosen, or replaced, by index tensors.

A tensor is seen as [outer, indexed, inner]. A bad index is reported, never used.
Where several indices may name one element, one invocation owns the element and
looks for them, so nothing races and the order is torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .. import ir
from ..dtypes import DType
from ..graph import Graph, Tensor
from ..kernels import Param, compute_type
from ..registry import op
from ..tensor import collapse, row_major
from .movement import copy_view
from .sort import sort_rows

# x, y, status and what is fused take the other bindings.
_MAX_INDICES = 4


@dataclass(frozen=True)
class _Indexed:
    """A tensor with its indexed dimensions together, and the index tensors."""

    view: Tensor
    outer: int
    extents: tuple[int, ...]
    inner: int
    count: int  # indices
    indices: tuple[Tensor, ...]  # of one shape, by broadcasting
    shape: tuple[int, ...]  # of what is indexed
    order: tuple[int, ...]  # dimensions of the tensor in `view`

    @property
    def linear(self) -> str:
        """`linear(j)`: index j as one number over the indexed dimensions."""
        terms = [
            f"checked_index(get_at{k}(j), limit_at({k})) * step_at({k})"
            for k in range(len(self.indices))
        ]
        return f"fn linear(j: i32) -> i32 {{ return {' + '.join(terms)}; }}"

    @property
    def params(self) -> dict[str, Param]:
        return {
            "inner": self.inner,
            "count": self.count,
            "extent": math.prod(self.extents),
            "limit": self.extents,
            "step": row_major(self.extents),
        }

    @property
    def inputs(self) -> dict[str, Tensor]:
        return {f"at{k}": index for k, index in enumerate(self.indices)}


def _indexed(g: Graph, x: Tensor, indices: Sequence[Tensor | None]) -> _Indexed:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    masks = [index for _, index in given if index.dtype in (DType.BOOL, DType.UINT8)]
    g.require(not masks, "indices must not be masks: the result's size is data", "bool")
    g.require(
        len(given) <= _MAX_INDICES, f"at most {_MAX_INDICES} index tensors", len(given)
    )
    dims = [dim for dim, _ in given]
    shape = _broadcast([index.shape for _, index in given])
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    lead = list(range(dims[0])) if together else []
    rest = [d for d in range(x.rank) if d not in dims and d not in lead]
    order = [*lead, *dims, *rest]
    whole = [*(x.shape[d] for d in lead), *shape, *(x.shape[d] for d in rest)]
    return _Indexed(
        x.permute(order),
        math.prod(x.shape[d] for d in lead),
        tuple(x.shape[d] for d in dims),
        math.prod(x.shape[d] for d in rest),
        math.prod(shape),
        tuple(index.expand(shape) for _, index in given),
        tuple(whole),
        tuple(order),
    )


def _broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    rank = max(len(shape) for shape in shapes)
    extents = [1] * rank
    for shape in shapes:
        for dim, extent in enumerate(shape, rank - len(shape)):
            extents[dim] = extents[dim] if extent == 1 else extent
    return tuple(extents)


# -- reading -------------------------------------------------------------------------


def _take(g: Graph, what: _Indexed, out: Tensor, *, strict: bool = False) -> None:
    """y[a, j, c] = x[a, linear(j), c], four at a time where rows allow it."""
    four = what.inner % 4 == 0 and not out.post
    params = what.params
    params["inner"] = what.inner // 4 if four else what.inner
    width = "4" if four else ""
    code = what.linear.replace("checked_", "strict_") if strict else what.linear
    code += f"\nfn transfer(to: i32, source: i32) {{ put_y{width}(to, get_x{width}(source)); }}"
    g.dispatch(
        "index_take",
        {"x": what.view, **what.inputs},
        {"y": out},
        params,
        invocations=out.numel // 4 if four else out.numel,
        consts={"OUTER": what.outer > 1},
        strided=what.inputs.keys(),
        vec4=("x", "y") if four else (),
        checked=True,
        code=code,
    )


def _require_elements(g: Graph, x: Tensor, out: Tensor) -> None:
    empty = x.numel == 0 and out.numel > 0
    g.require(not empty, "a tensor to index must have elements", list(x.shape))


@op("aten.index.Tensor", fusible=True)
def index(g: Graph, x: Tensor, indices: list[Tensor | None], *, out: Tensor) -> None:
    _require_elements(g, x, out)
    _take(g, _indexed(g, x, indices), out)


@op("aten.embedding.default", fusible=True)
def embedding(
    g: Graph,
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    *,
    out: Tensor,
) -> None:
    _require_elements(g, weight, out)
    _take(g, _indexed(g, weight, [indices]), out, strict=True)


@op("aten.index_select.default", fusible=True)
def index_select(g: Graph, x: Tensor, dim: int, index: Tensor, *, out: Tensor) -> None:
    _require_elements(g, x, out)
    if x.rank == 0:
        x, dim = x.unsqueeze(0), 0
    at = index if index.rank else index.unsqueeze(0)
    where = [None] * x.dim(dim)
    _take(g, _indexed(g, x, [*where, at]), out, strict=True)


@op("aten.gather.default", fusible=True)
def gather(
    g: Graph, x: Tensor, dim: int, index: Tensor, sparse_grad: bool, *, out: Tensor
) -> None:
    _require_elements(g, x, out)
    if x.rank == 0 or index.rank == 0:
        x, index, dim = _vector(x), _vector(index), 0
    dim = x.dim(dim)
    for d in range(x.rank):
        if d != dim:
            x = x.slice(d, 0, index.shape[d])
    params: dict[str, Param] = {
        "inner": math.prod(x.shape[dim + 1 :]),
        "extent": x.shape[dim],
        "count": index.shape[dim],
    }
    g.dispatch(
        "gather",
        {"x": x, "index": index},
        {"y": out},
        params,
        invocations=out.numel,
        strided=("x", "index"),
        checked=True,
    )


def _vector(x: Tensor) -> Tensor:
    return x if x.rank else x.unsqueeze(0)


# -- replacing -----------------------------------------------------------------------

# What one more hit does to an element (over s and v), and the end (over s and n).
_FOLDS = {
    "sum": ("s + v", "s"),
    "prod": ("s * v", "s"),
    "mean": ("s + v", "average(s, n)"),
    "amax": ("largest(s, v)", "s"),
    "amin": ("smallest(s, v)", "s"),
}
_FLOAT_FUNCTIONS = """
fn largest(a: f32, b: f32) -> f32 { return max_nan(a, b); }
fn smallest(a: f32, b: f32) -> f32 { return min_nan(a, b); }
fn average(s: f32, n: i32) -> f32 { return s / f32(n); }
"""
_INT_FUNCTIONS = """
fn largest(a: i32, b: i32) -> i32 { return max(a, b); }
fn smallest(a: i32, b: i32) -> i32 { return min(a, b); }
fn average(s: i32, n: i32) -> i32 {
  let q = s / n;
  return select(q, q - 1, s < 0 && q * n != s);
}
"""
# Up to this many indices per row, looking at each is faster than sorting them.
_SCAN = 64


@dataclass(frozen=True)
class _Keys:
    """Valid indices into [outer, extent, inner]: [outer, count, inner] of them, or
    [count] for every outer and inner alike."""

    tensor: Tensor
    outer: int
    extent: int
    count: int
    inner: int
    shared: bool


def _fold_hits(
    g: Graph,
    x: Tensor,
    keys: _Keys,
    src: Tensor,
    reduce: str,
    include_self: bool,
    out: Tensor,
) -> None:
    """out[a, d, c] = x[a, d, c] and src[a, m, c] of each m whose key is d."""
    more, end = _FOLDS[reduce]
    kind = compute_type(x.dtype)
    code = [_FLOAT_FUNCTIONS if kind == "f32" else _INT_FUNCTIONS]
    code.append(f"fn more(s: {kind}, v: {kind}) -> {kind} {{ return {more}; }}")
    code.append(f"fn finish(s: {kind}, n: i32) -> {kind} {{ return {end}; }}")
    place = "m" if keys.shared else "(a * p.count + m) * p.inner + c"
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
            place = "(a * p.inner + c) * p.count + m"
        inputs["key"], inputs["place"] = sort_rows(g, rows, keys.count, False)
    code.append(f"fn key_at(a: i32, m: i32, c: i32) -> i32 {{ return {place}; }}")
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
    g: Graph,
    source: Tensor | float,
    shape: Sequence[int],
    strides: Sequence[int],
    out: Tensor,
    index: Tensor | None = None,
    extent: int = 0,
    step: int = 0,
) -> None:
    """Writes into a view of `out`, whose content stays elsewhere; `index` moves each
    element by so many steps."""
    layout = collapse(shape, [strides])
    params: dict[str, Param] = {"size": layout.shape, "stride": layout.strides[0]}
    inputs: dict[str, Tensor] = {}
    kind = compute_type(out.dtype)
    if isinstance(source, Tensor):
        inputs["src"] = source
        value = f"{kind}(get_src(i))"
    else:
        params["value"] = float(source) if out.dtype.is_float else int(source)
        value = "p.value"
    shift = "0"
    if index is not None:
        inputs["index"] = index
        params |= {"extent": extent, "step": step}
        shift = "strict_index(get_index(i), p.extent) * p.step"
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
        checked=index is not None,
        code=code,
    )


def _scatter_write(
    g: Graph, x: Tensor, dim: int, index: Tensor, src: Tensor | float, out: Tensor
) -> None:
    copy_view(g, x, out)
    if x.rank == 0 or index.rank == 0:
        x, index, dim = _vector(x), _vector(index), 0
        src = _vector(src) if isinstance(src, Tensor) else src
    dim = x.dim(dim)
    strides = list(row_major(x.shape))
    step, strides[dim] = strides[dim], 0
    if isinstance(src, Tensor):
        src = _head(src, index.shape)
    _write_view(g, src, index.shape, strides, out, index, x.shape[dim], step)


def _head(x: Tensor, shape: Sequence[int]) -> Tensor:
    for dim, extent in enumerate(shape):
        x = x.slice(dim, 0, extent)
    return x


@op("aten.scatter.src")
def scatter_src(
    g: Graph, x: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor
) -> None:
    _scatter_write(g, x, dim, index, src, out)


@op("aten.scatter.value")
def scatter_value(
    g: Graph, x: Tensor, dim: int, index: Tensor, value: float, *, out: Tensor
) -> None:
    _scatter_write(g, x, dim, index, value, out)


@op("aten.scatter_add.default")
def scatter_add(
    g: Graph, x: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor
) -> None:
    _scatter_fold(g, x, dim, index, src, "sum", True, out)


@op("aten.scatter_reduce.two")
def scatter_reduce(
    g: Graph,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
    *,
    out: Tensor,
) -> None:
    g.require(reduce in _FOLDS, f"reduce must be one of {sorted(_FOLDS)}", reduce)
    _scatter_fold(g, x, dim, index, src, reduce, include_self, out)


def _scatter_fold(
    g: Graph,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
    out: Tensor,
) -> None:
    if x.rank == 0 or index.rank == 0:
        x, index, src, dim = _vector(x), _vector(index), _vector(src), 0
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
        _fold_hits(g, x, keys, src, reduce, include_self, out)
        return
    made = g.temp(shape, x.dtype)
    _fold_hits(g, head, keys, src, reduce, include_self, made)
    copy_view(g, x, out)
    _write_view(g, made, shape, row_major(x.shape), out)


def _checked_keys(g: Graph, index: Tensor, extent: int) -> Tensor:
    keys = g.temp(index.shape, DType.INT32)
    g.dispatch(
        "index_keys",
        {"index": index},
        {"y": keys},
        {"extent": extent},
        invocations=keys.numel,
        strided=("index",),
        checked=True,
        code="fn linear(j: i32) -> i32 {"
        " return strict_index(get_index(j), p.extent); }",
    )
    return keys


# -- index_put -----------------------------------------------------------------------


@op("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    g: Graph,
    x: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool,
    *,
    out: Tensor,
) -> None:
    first = next(index for index in indices if index is not None)
    if first.dtype is DType.BOOL and sum(i is not None for i in indices) == 1:
        _masked_put(g, x, indices, values, accumulate, out)
        return
    what = _indexed(g, x, indices)
    if not values.numel or not math.prod(what.shape):
        copy_view(g, x, out)
        return
    src = values.expand(what.shape)
    turned = list(what.order) != list(range(x.rank))
    target = g.temp(what.view.shape, x.dtype) if turned else out
    if accumulate:
        keys = g.temp((what.count,), DType.INT32)
        g.dispatch(
            "index_keys",
            what.inputs,
            {"y": keys},
            what.params,
            invocations=what.count,
            strided=what.inputs.keys(),
            checked=True,
            code=what.linear,
        )
        extent = math.prod(what.extents)
        every = _Keys(keys, what.outer, extent, what.count, what.inner, True)
        _fold_hits(g, what.view, every, src, "sum", True, target)
    else:
        copy_view(g, what.view, target)
        g.dispatch(
            "index_write",
            {"src": src, **what.inputs},
            {"y": target},
            what.params,
            invocations=src.numel,
            strided=("src", *what.inputs),
            checked=True,
            code=what.linear,
        )
    if turned:
        back = [what.order.index(d) for d in range(x.rank)]
        g.copy(target.permute(back), out)


def _masked_put(
    g: Graph,
    x: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool,
    out: Tensor,
) -> None:
    """x[mask] = one value, or += it: a choice per element."""
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


# -- refused -------------------------------------------------------------------------


@op("aten.nonzero.default", "aten.masked_select.default")
def nonzero(g: Graph, x: Tensor, *_: object, out: Tensor) -> None:
    g.require(
        False, "the result's size must not depend on data", "a data-dependent size"
    )
