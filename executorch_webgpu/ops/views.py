"""Shape ops: another view of the same elements; no kernel runs for them."""

from __future__ import annotations

from ..graph import Graph, Tensor
from ..registry import op


@op(
    "aten.view_copy.default",
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
)
def view(g: Graph, x: Tensor, size: list[int], *, out: Tensor) -> None:
    g.alias(out, g.reshape(x, out.shape))


@op(
    "aten.squeeze_copy.default",
    "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",
    "aten.squeeze.dims",
    "aten.unsqueeze_copy.default",
    "aten.unsqueeze.default",
    "aten.alias_copy.default",
    "aten.clone.default",
    "aten.detach_copy.default",
    "aten.lift_fresh_copy.default",
    "dim_order_ops._clone_dim_order.default",
)
def same_elements(g: Graph, x: Tensor, *_: object, out: Tensor) -> None:
    g.alias(out, g.reshape(x, out.shape))


@op("aten.permute_copy.default", "aten.permute.default")
def permute(g: Graph, x: Tensor, dims: list[int], *, out: Tensor) -> None:
    g.alias(out, x.permute(dims))


@op("aten.transpose_copy.int", "aten.t_copy.default")
def transpose(
    g: Graph, x: Tensor, first: int = 0, second: int = 1, *, out: Tensor
) -> None:
    g.alias(out, x.transpose(first, second) if x.rank > 1 else x)


@op("aten.expand_copy.default", "aten.expand.default")
def expand(
    g: Graph, x: Tensor, size: list[int], implicit: bool = False, *, out: Tensor
) -> None:
    g.alias(out, x.expand(out.shape))


@op("aten.slice_copy.Tensor", "aten.slice.Tensor")
def slice_(
    g: Graph,
    x: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Tensor,
) -> None:
    extent = x.shape[dim]
    first = 0 if start is None else start
    first = max(0, min(first + extent if first < 0 else first, extent))
    g.alias(out, x.slice(dim, first, out.shape[x.dim(dim)], step))


@op("aten.select_copy.int", "aten.select.int")
def select(g: Graph, x: Tensor, dim: int, index: int, *, out: Tensor) -> None:
    extent = x.shape[dim]
    g.require(-extent <= index < extent, f"index must be in [-{extent}, {extent})", index)
    g.alias(out, x.select(dim, index + extent if index < 0 else index))
