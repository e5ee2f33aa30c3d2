"""Medians: the lower of the two middles of a sorted row, NaN if the row has one."""

from __future__ import annotations

from ..graph import Graph, Tensor
from ..kernels import compute_type
from ..registry import op
from .sort import sort_rows


def _median(g: Graph, rows: Tensor, value: Tensor, place: Tensor | None) -> None:
    count, length = rows.shape
    g.require(length > 0, "a median must be of some elements", length)
    keep = length // 2 + 1
    values, places = sort_rows(g, rows, keep, descending=True)
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
        f"fn store_place(i: i32, at: i32) {{ {stored} }}",
    )


@op("aten.median.default", fusible=True, keep=True)
def median(g: Graph, x: Tensor, *, out: Tensor) -> None:
    _median(g, g.reshape(x, (1, x.numel)), out, None)


@op("aten.median.dim", fusible=True)
def median_dim(
    g: Graph, x: Tensor, dim: int, keepdim: bool, *, out: list[Tensor]
) -> None:
    value, place = out
    if x.rank == 0:
        x = x.unsqueeze(0)
    # Moved to the end, so that the rows are in the order of the output.
    at = x.dim(dim)
    order = [*(d for d in range(x.rank) if d != at), at]
    length = x.shape[at]
    rows = g.reshape(x.permute(order), (x.numel // max(length, 1), length))
    _median(g, rows, value, place if place.needed else None)
