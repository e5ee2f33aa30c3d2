"""Indexing: elements read by index tensors, and searches in sorted rows.

A tensor is seen as [outer, indexed, inner]. An index outside is reported, never used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import EQUAL, MOVED
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import Shaped, row_major
from ...plan.wgsl_text import Param, compute_type
from ..matmul.matmul_lanes import COLUMNS, column_blocks
from ..matmul.product import function
from ..matmul.split_constants import part, parts

op = partial(registry.op, accuracy=MOVED)

# x, y, status and the operands of an epilogue take the other bindings.
_MAX_INDICES = 4


@dataclass(frozen=True)
class Indexed:
    """A tensor with its indexed dimensions together, and the index tensors."""

    view: Tensor
    outer: int
    extents: tuple[int, ...]
    inner: int
    count: int  # indices
    indices: tuple[Tensor, ...]  # of one shape, by broadcasting
    shape: tuple[int, ...]  # of the result of indexing
    order: tuple[int, ...]  # dimensions of the tensor in `view`

    @property
    def linear(self) -> str:
        """WGSL of linear(j): index j, checked, over all indexed dimensions as one."""
        terms = [
            f"checked_index(get_at{k}(j), limit_at({k})) * stride_at({k})"
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
            "stride": row_major(self.extents),
        }

    @property
    def inputs(self) -> dict[str, Tensor]:
        return {f"at{k}": index for k, index in enumerate(self.indices)}


def indexed(g: Recorder, x: Tensor, indices: Sequence[Tensor | None]) -> Indexed:
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
    return Indexed(
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


def _take(
    g: Recorder,
    what: Indexed,
    out: Output,
    *,
    strict: bool = False,
    only: tuple[int, int] | None = None,
) -> None:
    """y[a, j, c] = x[a, linear(j), c], four at a time where rows allow it.

    With `only`, a start and a length, x is a part with those rows: elements of other
    rows are left to other dispatches.
    """
    four = what.inner % 4 == 0 and out.epilogue is None
    params = what.params
    inner = params["inner"] = what.inner // 4 if four else what.inner
    width = "4" if four else ""
    code = what.linear.replace("checked_", "strict_") if strict else what.linear
    body, view = f"put_y{width}(to, get_x{width}(source));", what.view
    if only is not None:
        view = part(g, view, 0, *only)
        params["first"], params["end"] = only[0] * inner, sum(only) * inner
        body = f"put_y{width}(to, get_x{width}(source - p.first));"
        body = f"if (source >= p.first && source < p.end) {{ {body} }}"
    code += f"\nfn transfer(to: i32, source: i32) {{ {body} }}"
    g.dispatch(
        "index_take",
        {"x": view, **what.inputs},
        {"y": out},
        params,
        invocations=out.numel // 4 if four else out.numel,
        consts={"OUTER": what.outer > 1},
        strided=what.inputs.keys(),
        vec4=("x", "y") if four else (),
        code=code,
    )


def require_elements(g: Recorder, x: Tensor, out: Shaped) -> None:
    empty = x.numel == 0 and out.numel > 0
    g.require(not empty, "a tensor to index must have elements", list(x.shape))


@op("aten.index.Tensor", fusible=True)
def index(g: Recorder, x: Tensor, indices: list[Tensor | None], *, out: Output) -> None:
    require_elements(g, x, out)
    _take(g, indexed(g, x, indices), out)


@op("aten.embedding.default", fusible=True)
def embedding(
    g: Recorder,
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    *,
    out: Output,
) -> None:
    require_elements(g, weight, out)
    what = indexed(g, weight, [indices])
    pieces = parts(g, weight, 0)
    if len(pieces) == 1 and _is_packed(g, weight):
        _take_from_blocks(g, what, weight, out)
        return
    for piece in pieces:
        _take(g, what, out, strict=True, only=piece if len(pieces) > 1 else None)


def _is_packed(g: Recorder, weight: Tensor) -> bool:
    """Whether a linear layer packs the weight in blocks anyway: one copy is enough."""
    source = weight.source
    packs = g.caps.is_cpu and g.caps.packs
    if source is None or not (packs and weight.dtype.is_float and weight.numel):
        return False
    return "aten.linear.default" in g.readers.get(source.key, ())


def _take_from_blocks(g: Recorder, what: Indexed, weight: Tensor, out: Output) -> None:
    """y[j, c] = weight[linear(j), c], where the weight is packed by `column_blocks`."""
    body = [
        "let row = source / p.inner;",
        f"let at = (row / {COLUMNS}) * p.inner + source - row * p.inner;",
        f"put_y(to, get_x(at * {COLUMNS} + row % {COLUMNS}));",
    ]
    code = [
        what.linear.replace("checked_", "strict_"),
        function("transfer(to: i32, source: i32)", body),
    ]
    g.dispatch(
        "index_take",
        {"x": column_blocks(g, weight.transpose(0, 1)), **what.inputs},
        {"y": out},
        what.params,
        invocations=out.numel,
        consts={"OUTER": False},
        strided=what.inputs.keys(),
        code="\n".join(code),
    )


@op("aten.index_select.default", fusible=True)
def index_select(
    g: Recorder, x: Tensor, dim: int, index: Tensor, *, out: Output
) -> None:
    require_elements(g, x, out)
    if x.rank == 0:
        x, dim = x.unsqueeze(0), 0
    at = index if index.rank else index.unsqueeze(0)
    where = [None] * x.dim(dim)
    _take(g, indexed(g, x, [*where, at]), out, strict=True)


@op("aten.gather.default", fusible=True)
def gather(
    g: Recorder, x: Tensor, dim: int, index: Tensor, sparse_grad: bool, *, out: Output
) -> None:
    require_elements(g, x, out)
    if x.rank == 0 or index.rank == 0:
        x, index, dim = vector(x), vector(index), 0
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
    )


def vector(x: Tensor) -> Tensor:
    return x if x.rank else x.unsqueeze(0)


# -- searching -----------------------------------------------------------------------


def _search(
    g: Recorder,
    sequence: Tensor,
    values: Tensor,
    right: bool,
    out: Output,
    order: Tensor | None = None,
) -> None:
    kinds = [compute_type(t.dtype) for t in (sequence, values)]
    kind = "f32" if "f32" in kinds else "i32"
    inputs = {"row": sequence, "v": values}
    at = "base + k"
    if order is not None:
        inputs["order"], at = order, "base + get_order(base + k)"
    unordered = "is_nan(a)" if kind == "f32" else "false"
    code = (
        f"fn row_at(base: i32, k: i32) -> {kinds[0]} {{ return get_row({at}); }}\n"
        f"fn unordered(a: {kind}) -> bool {{ return {unordered}; }}"
    )
    shared = sequence.rank == 1
    params: dict[str, Param] = {
        "length": sequence.shape[-1],
        "per_row": max(1, values.numel if shared else values.shape[-1]),
    }
    g.dispatch(
        "search_sorted",
        inputs,
        {"y": out},
        params,
        invocations=out.numel,
        consts={"K": kind, "RIGHT": right},
        code=code,
    )


@op("aten.bucketize.Tensor", fusible=True, keep=True, accuracy=EQUAL)
def bucketize(
    g: Recorder,
    x: Tensor,
    boundaries: Tensor,
    out_int32: bool,
    right: bool,
    *,
    out: Output,
) -> None:
    g.require(
        boundaries.rank == 1, "boundaries must have one dimension", boundaries.rank
    )
    _search(g, boundaries, x, right, out)


@op("aten.searchsorted.Tensor", fusible=True, keep=True, accuracy=EQUAL)
def searchsorted(
    g: Recorder,
    sequence: Tensor,
    values: Tensor,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: Tensor | None,
    *,
    out: Output,
) -> None:
    _search(g, sequence, values, right or side == "right", out, sorter)


# -- coordinates ---------------------------------------------------------------------


@op("aten.nonzero_static.default", fusible=True, keep=True, accuracy=EQUAL)
def nonzero_static(
    g: Recorder, x: Tensor, size: int, fill_value: int, *, out: Output
) -> None:
    """Coordinates of the first `size` elements that are not 0, in row-major order."""
    fits = -(2**31) <= fill_value < 2**31
    g.require(fits, "fill_value must fit int32", fill_value)
    truth = g.output(x.shape, DType.BOOL)
    g.run("aten.ne.Scalar", x, 0, out=truth)
    counts = g.output((x.numel,), DType.INT32)
    row = truth.tensor.with_view((x.numel,), (1,))
    g.run("aten.cumsum.default", row, 0, None, out=counts)
    params: dict[str, Param] = {
        "length": x.numel,
        "rank": max(x.rank, 1),
        "shape": x.shape or (1,),
        "strides": row_major(x.shape) or (1,),
        "fill": fill_value,
    }
    g.dispatch(
        "nonzero_places",
        {"counts": counts.tensor},
        {"y": out},
        params,
        invocations=out.numel,
    )


# -- refused -------------------------------------------------------------------------


@op("aten.nonzero.default", "aten.masked_select.default")
def nonzero(g: Recorder, x: Tensor, *_: object, out: Output) -> None:
    g.require(
        False, "the result's size must not depend on data", "a data-dependent size"
    )
