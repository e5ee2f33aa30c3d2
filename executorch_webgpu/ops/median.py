"""Medians: the lower of the two middles of a sorted row, NaN if the row has one.

Those that ignore NaN are of the numbers in the row.
"""

from __future__ import annotations

from ..graph import Graph, Tensor
from ..kernels import compute_type
from ..registry import op
from .sort import sort_rows

# Where the result is in a row that starts at `first`: NaN sorts as the largest.
_OF_ALL = """
fn middle(first: i32) -> i32 {
  return select(first + p.keep - 1, first, is_missing(get_sorted(first)));
}
"""
_OF_NUMBERS = """
fn middle(first: i32) -> i32 {
  var numbers = 0;
  var end = p.keep;
  while (numbers < end) {
    let half = (numbers + end) / 2;
    if (is_missing(get_sorted(first + half))) { end = half; }
    else { numbers = half + 1; }
  }
  return first + max(numbers - 1, 0) / 2;
}
"""


def _median(
    g: Graph,
    rows: Tensor,
    value: Tensor,
    place: Tensor | None,
    ignore_nan: bool,
) -> None:
    count, length = rows.shape
    g.require(length > 0, "a median must be of some elements", length)
    ignore_nan &= rows.dtype.is_float
    keep = length if ignore_nan else length // 2 + 1
    values, places = sort_rows(g, rows, keep, descending=not ignore_nan)
    inputs, outputs = {"sorted": values}, {"value": value}
    stored = ""
    if place is not None:
        inputs["places"], outputs["place"] = places, place
        stored = "put_place(i, get_places(at));"
    test = "is_nan(v)" if rows.dtype.is_float else "false"
    kind = compute_type(rows.dtype)
    g.dispatch(
        "median_pick",
        inputs,
        outputs,
        {"keep": keep},
        invocations=count,
        code=f"fn is_missing(v: {kind}) -> bool {{ return {test}; }}\n"
        f"{_OF_NUMBERS if ignore_nan else _OF_ALL}"
        f"fn store_place(i: i32, at: i32) {{ {stored} }}",
    )


@op("aten.median.default", fusible=True, keep=True)
def median(g: Graph, x: Tensor, *, out: Tensor) -> None:
    _median(g, g.reshape(x, (1, x.numel)), out, None, False)


@op("aten.nanmedian.default", fusible=True, keep=True)
def nanmedian(g: Graph, x: Tensor, *, out: Tensor) -> None:
    _median(g, g.reshape(x, (1, x.numel)), out, None, True)


@op("aten.median.dim", fusible=True)
def median_dim(
    g: Graph, x: Tensor, dim: int, keepdim: bool, *, out: list[Tensor]
) -> None:
    _median_of_rows(g, x, dim, out, False)


@op("aten.nanmedian.dim", fusible=True)
def nanmedian_dim(
    g: Graph, x: Tensor, dim: int, keepdim: bool, *, out: list[Tensor]
) -> None:
    _median_of_rows(g, x, dim, out, True)


def _median_of_rows(
    g: Graph, x: Tensor, dim: int, out: list[Tensor], ignore_nan: bool
) -> None:
    value, place = out
    if x.rank == 0:
        x = x.unsqueeze(0)
    # Moved to the end, so that the rows are in the order of the output.
    at = x.dim(dim)
    order = [*(d for d in range(x.rank) if d != at), at]
    length = x.shape[at]
    rows = g.reshape(x.permute(order), (x.numel // max(length, 1), length))
    _median(g, rows, value, place if place.needed else None, ignore_nan)
