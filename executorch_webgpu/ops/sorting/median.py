"""Medians and modes: one element of a sorted row.

A median is the lower of the two middles, NaN if the row has one; those that ignore
NaN are of the numbers in the row. A mode is the smallest of the most frequent
elements, and its index that of the last of them; NaN equals nothing, so it is the
mode only of a row without numbers. (torch's own index depends on how std::sort orders
equal elements: it is the last too in rows of up to 16, and any in longer ones.)
"""

from __future__ import annotations

from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import EQUAL
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import compute_type
from .sort import sort_rows

op = partial(registry.op, accuracy=EQUAL)

# The index of the result for row r, which starts at `first`. NaN sorts as the largest.
_OF_ALL = "median_of_all(first)"
_OF_NUMBERS = "median_of_numbers(first)"
_OF_RUNS = "first + get_longest(r)"


def _is_missing(dtype: DType) -> str:
    test = "is_nan(v)" if dtype.is_float else "false"
    return f"fn is_missing(v: {compute_type(dtype)}) -> bool {{ return {test}; }}\n"


def _pick(
    g: Recorder,
    inputs: dict[str, Tensor],
    indices: Tensor,
    chosen: str,
    out: list[Output],
) -> None:
    """An element of each row of inputs["sorted"] and, if needed, its index before
    sorting, which `indices` has for every element."""
    value, *rest = out
    values, outputs = inputs["sorted"], {"value": value}
    stored = ""
    for index in rest:
        if index.needed:
            inputs["indices"], outputs["index"] = indices, index
            stored = "put_index(i, get_indices(at));"
    g.dispatch(
        "sorted_pick",
        inputs,
        outputs,
        {"keep": values.shape[1]},
        invocations=values.shape[0],
        code=f"{_is_missing(values.dtype)}"
        f"fn chosen(r: i32, first: i32) -> i32 {{ return {chosen}; }}\n"
        f"fn store_index(i: i32, at: i32) {{ {stored} }}",
    )


def _median(g: Recorder, rows: Tensor, ignore_nan: bool, out: list[Output]) -> None:
    length = rows.shape[1]
    g.require(length > 0, "a median must be of some elements", length)
    ignore_nan &= rows.dtype.is_float
    keep = length if ignore_nan else length // 2 + 1
    values, indices = sort_rows(g, rows, keep, descending=not ignore_nan)
    chosen = _OF_NUMBERS if ignore_nan else _OF_ALL
    _pick(g, {"sorted": values}, indices, chosen, out)


@op("aten.median.default", fusible=True, keep=True)
def median(g: Recorder, x: Tensor, *, out: Output) -> None:
    _median(g, g.reshape(x, (1, x.numel)), False, [out])


@op("aten.nanmedian.default", fusible=True, keep=True)
def nanmedian(g: Recorder, x: Tensor, *, out: Output) -> None:
    _median(g, g.reshape(x, (1, x.numel)), True, [out])


@op("aten.median.dim", twin=True, fusible=True)
def median_dim(
    g: Recorder, x: Tensor, dim: int, keepdim: bool, *, out: list[Output]
) -> None:
    _median(g, _rows(g, x, dim), False, out)


@op("aten.nanmedian.dim", twin=True, fusible=True)
def nanmedian_dim(
    g: Recorder, x: Tensor, dim: int, keepdim: bool, *, out: list[Output]
) -> None:
    _median(g, _rows(g, x, dim), True, out)


def _rows(g: Recorder, x: Tensor, dim: int) -> Tensor:
    """x as [rows, length], with `dim` last."""
    if x.rank == 0:
        x = x.unsqueeze(0)
    # Moved to the end, so that the rows are in the order of the output.
    at = x.dim(dim)
    order = [*(d for d in range(x.rank) if d != at), at]
    length = x.shape[at]
    return g.reshape(x.permute(order), (x.numel // max(length, 1), length))


@op("aten.mode.default", twin=True, fusible=True)
def mode(g: Recorder, x: Tensor, dim: int, keepdim: bool, *, out: list[Output]) -> None:
    rows = _rows(g, x, dim)
    count, length = rows.shape
    g.require(length > 0, "a mode must be of some elements", length)
    values, indices = sort_rows(g, rows, length, descending=False)
    lengths = g.temp(rows.shape, DType.INT32)
    g.dispatch(
        "run_lengths",
        {"sorted": values},
        {"y": lengths},
        {"length": length},
        invocations=rows.numel,
        code=_is_missing(rows.dtype),
    )
    longest = g.output((count,), DType.INT32)
    g.run("aten.argmax.default", lengths, 1, False, out=longest)
    _pick(g, {"sorted": values, "longest": longest.tensor}, indices, _OF_RUNS, out)
