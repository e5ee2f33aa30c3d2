"""Sorting: sort, argsort and topk.

Blocks of a row are sorted by counting, then merged pairwise. Each invocation finds the
rank of one element, so no kernel needs a barrier; the sort is stable. NaN sorts as the
largest, as in torch. If only the first k elements are wanted, every run keeps no more
than k.
"""

from __future__ import annotations

import math
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import EQUAL
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import row_major
from ...plan.wgsl_text import Param

op = partial(registry.op, accuracy=EQUAL)

_BLOCK = 64
_SMALL = 128  # rows up to this length are one block

_BEFORE = {
    (True, False): "(a < b) || (is_nan(b) && !is_nan(a))",
    (True, True): "(a > b) || (is_nan(a) && !is_nan(b))",
    (False, False): "a < b",
    (False, True): "a > b",
}


def _before(dtype: DType, descending: bool) -> str:
    kind = "f32" if dtype.is_float else "i32"
    code = _BEFORE[dtype.is_float, descending]
    return f"fn before(a: {kind}, b: {kind}) -> bool {{ return {code}; }}"


def sort_rows(
    g: Recorder,
    x: Tensor,
    keep: int,
    descending: bool,
    outs: tuple[Output, Output] | None = None,
) -> tuple[Tensor, Tensor]:
    """The first `keep` elements of each sorted row of x[rows, length], and their
    indices in the row before sorting."""
    rows, length = x.shape
    code = _before(x.dtype, descending)
    width = max(1, length) if length <= _SMALL else _BLOCK
    runs = max(1, -(-length // width))

    def room(runs: int, slot: int) -> tuple[Output, Output]:
        if runs == 1 and outs is not None:
            return outs
        shape = (rows, runs * slot) if runs > 1 else (rows, keep)
        return g.output(shape, x.dtype), g.output(shape, DType.INT64)

    slot = min(width, keep)
    values, indices = room(runs, slot)
    row = runs * slot if runs > 1 else keep
    params: dict[str, Param] = {
        "length": length,
        "block": width,
        "keep": keep,
        "slot": slot,
        "row": row,
    }
    g.dispatch(
        "sort_blocks",
        {"x": x},
        {"value": values, "index": indices},
        params,
        invocations=rows * length,
        code=code,
    )
    while runs > 1:
        merged, out_slot = -(-runs // 2), min(2 * width, keep)
        new_values, new_indices = room(merged, out_slot)
        out_row = merged * out_slot if merged > 1 else keep
        params = {
            "length": length,
            "width": width,
            "slot": slot,
            "row": row,
            "keep": keep,
            "out_slot": out_slot,
            "out_row": out_row,
        }
        g.dispatch(
            "sort_merge",
            {"value_in": values.tensor, "index_in": indices.tensor},
            {"value": new_values, "index": new_indices},
            params,
            invocations=rows * row,
            code=code,
        )
        values, indices = new_values, new_indices
        runs, width, slot, row = merged, 2 * width, out_slot, out_row
    return values.tensor, indices.tensor


def _rows(g: Recorder, x: Tensor, dim: int) -> Tensor:
    """x as [rows, length] with `dim` last."""
    last = g.contiguous(x.transpose(dim, -1))
    length = x.shape[dim]
    rows = math.prod(last.shape[:-1])
    return last.with_view((rows, length), (length, 1))


def _sort(
    g: Recorder, x: Tensor, dim: int, keep: int, descending: bool, out: list[Output]
) -> None:
    if x.rank == 0:
        g.copy(x, out[0])
        g.copy(g.number(0, DType.INT64), out[1])
        return
    dim = x.dim(dim)
    if dim == x.rank - 1:
        sort_rows(g, _rows(g, x, dim), keep, descending, (out[0], out[1]))
        return
    shape = list(x.transpose(dim, -1).shape)
    shape[-1] = keep
    for made, target in zip(sort_rows(g, _rows(g, x, dim), keep, descending), out):
        view = made.with_view(shape, row_major(shape))
        g.alias(target, view.transpose(dim, -1))


@op("aten.sort.default")
def sort(
    g: Recorder, x: Tensor, dim: int, descending: bool, *, out: list[Output]
) -> None:
    _sort(g, x, dim, x.shape[dim] if x.rank else 1, descending, out)


@op("aten.argsort.default", "aten.argsort.stable", keep=True)
def argsort(g: Recorder, x: Tensor, *args: int | bool, out: Output) -> None:
    # The stable overload has its flag in front.
    dim, descending = args[-2:]
    values = g.output(x.shape, x.dtype)
    keep = x.shape[dim] if x.rank else 1
    _sort(g, x, dim, keep, bool(descending), [values, out])


@op("aten.topk.default")
def topk(
    g: Recorder,
    x: Tensor,
    k: int,
    dim: int,
    largest: bool,
    ordered: bool,
    *,
    out: list[Output],
) -> None:
    extent = x.shape[dim] if x.rank else 1
    g.require(0 <= k <= extent, f"k must be in [0, {extent}]", k)
    _sort(g, x, dim, k, largest, out)
