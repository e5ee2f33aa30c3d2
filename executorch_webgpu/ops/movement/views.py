"""Shape ops: another strided view of the same store, without a dispatch.

Only a reshape may need a copy, of a view whose dimensions cannot be merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import MOVED
from ...plan.recorder import DataInt, Output, Recorder, Tensor
from ...plan.registry import View
from ...plan.tensor import reach

op = partial(registry.op, accuracy=MOVED)


@op(
    "aten.view_copy.default",
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    view=View.RESHAPED,
)
def view(g: Recorder, x: Tensor, size: list[int], *, out: Output) -> None:
    g.alias(out, g.reshape(x, out.shape))


@op(
    "aten.squeeze_copy.default",
    "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.unsqueeze_copy.default",
    "aten.unsqueeze.default",
    view=View.RESHAPED,
)
@op(
    "aten.alias_copy.default",
    "aten.alias.default",
    "aten.clone.default",
    "aten.detach_copy.default",
    "aten.lift_fresh_copy.default",
    "dim_order_ops._clone_dim_order.default",
    view=View.SAME,
)
def same_elements(g: Recorder, x: Tensor, *_: object, out: Output) -> None:
    g.alias(out, g.reshape(x, out.shape))


@op("aten.permute_copy.default", "aten.permute.default", view=View.EACH)
def permute(g: Recorder, x: Tensor, dims: list[int], *, out: Output) -> None:
    g.alias(out, x.permute(dims))


@op("aten.transpose_copy.int", "aten.t_copy.default", view=View.EACH)
def transpose(
    g: Recorder, x: Tensor, first: int = 0, second: int = 1, *, out: Output
) -> None:
    g.alias(out, x.transpose(first, second) if x.rank > 1 else x)


@op("aten.expand_copy.default", "aten.expand.default", view=View.SOME)
def expand(
    g: Recorder, x: Tensor, size: list[int], implicit: bool = False, *, out: Output
) -> None:
    g.alias(out, x.expand(out.shape))


@op("aten.slice_copy.Tensor", "aten.slice.Tensor", data_ints=(2, 3), view=View.SOME)
def slice_(
    g: Recorder,
    x: Tensor,
    dim: int = 0,
    start: int | DataInt | None = None,
    end: int | DataInt | None = None,
    step: int = 1,
    *,
    out: Output,
) -> None:
    if isinstance(start, DataInt):
        g.require(step == 1, "a slice from a position in data must have step 1", step)
        g.run("webgpu.slice_at", x, dim, start, out=out)
        return
    extent = x.shape[x.dim(dim)]
    first = 0 if start is None else start
    first = max(0, min(first + extent if first < 0 else first, extent))
    g.alias(out, x.slice(dim, first, out.shape[x.dim(dim)], step))


@op("aten.select_copy.int", "aten.select.int", view=View.SOME)
def select(g: Recorder, x: Tensor, dim: int, index: int, *, out: Output) -> None:
    extent = x.shape[x.dim(dim)]
    g.require(
        -extent <= index < extent, f"index must be in [-{extent}, {extent})", index
    )
    g.alias(out, x.select(dim, index + extent if index < 0 else index))


# -- slices of a tensor --------------------------------------------------------------


def _slices(
    g: Recorder, x: Tensor, sizes: Sequence[int], dim: int, out: Output | list[Output]
) -> None:
    start = 0
    for target, size in zip(out if isinstance(out, list) else [out], sizes):
        g.alias(target, x.slice(dim, start, size))
        start += size


@op(
    "aten.split_with_sizes_copy.default",
    "aten.split_with_sizes.default",
    view=View.SOME,
)
def split_with_sizes(
    g: Recorder,
    x: Tensor,
    sizes: list[int],
    dim: int = 0,
    *,
    out: Output | list[Output],
) -> None:
    _slices(g, x, sizes, dim, out)


@op("aten.split_copy.Tensor", "aten.split.Tensor", "aten.chunk.default", view=View.SOME)
def split(
    g: Recorder, x: Tensor, size: int, dim: int = 0, *, out: Output | list[Output]
) -> None:
    outs = out if isinstance(out, list) else [out]
    _slices(g, x, [target.shape[dim] for target in outs], dim, out)


@op("aten.unbind_copy.int", "aten.unbind.int", view=View.SOME)
def unbind(g: Recorder, x: Tensor, dim: int = 0, *, out: Output | list[Output]) -> None:
    for index, target in enumerate(out if isinstance(out, list) else [out]):
        g.alias(target, x.select(dim, index))


@op("aten.diagonal_copy.default", "aten.diagonal.default", view=View.SOME)
def diagonal(
    g: Recorder, x: Tensor, offset: int, dim1: int, dim2: int, *, out: Output
) -> None:
    """The diagonal's stride is the sum of both dimensions' strides."""
    first, second = x.dim(dim1), x.dim(dim2)
    rest = [d for d in range(x.rank) if d not in (first, second)]
    begin = max(offset, 0) * x.strides[second] + max(-offset, 0) * x.strides[first]
    strides = [x.strides[d] for d in rest]
    g.alias(
        out,
        x.with_view(
            out.shape,
            [*strides, x.strides[first] + x.strides[second]],
            x.offset + (begin if out.numel else 0),
        ),
    )


@op("aten.as_strided_copy.default", "aten.as_strided.default", view=View.SOME)
def as_strided(
    g: Recorder,
    x: Tensor,
    size: list[int],
    stride: list[int],
    start: int | None,
    *,
    out: Output,
) -> None:
    # Strides are of torch's storage: that of an edge program's tensor is row-major.
    x = g.contiguous(x)
    g.require(tuple(size) == out.shape, f"size must be {list(out.shape)}", size)
    require_inside(g, x, size, stride, start or 0)
    g.alias(out, x.with_view(size, stride, start or 0))


def require_inside(
    g: Recorder, x: Tensor, size: Sequence[int], stride: Sequence[int], start: int
) -> None:
    """Requires that a strided view of the contiguous x stays within its elements."""
    g.require(len(size) == len(stride), f"strides must be {len(size)}", len(stride))
    lowest, highest = reach(size, stride, start)
    inside = lowest >= 0 and highest < x.numel
    g.require(
        inside or 0 in size,
        f"a strided view must lie in [0, {x.numel})",
        f"[{lowest}, {highest}]",
    )


@op("aten.unfold_copy.default", "aten.unfold.default", view=View.SOME)
def unfold(
    g: Recorder, x: Tensor, dim: int, size: int, step: int, *, out: Output
) -> None:
    """Overlapping windows along a dimension, whose elements are a new last one."""
    if x.rank == 0:
        g.alias(out, x.with_view(out.shape, (1,)))
        return
    dim = x.dim(dim)
    strides = list(x.strides)
    strides[dim] *= step
    g.alias(out, x.with_view(out.shape, [*strides, x.strides[dim]]))


@op("aten.narrow_copy.default", "aten.narrow.default", view=View.SOME)
def narrow(
    g: Recorder, x: Tensor, dim: int, start: int, length: int, *, out: Output
) -> None:
    extent = x.shape[x.dim(dim)]
    g.alias(out, x.slice(dim, start + extent if start < 0 else start, length))


@op("aten.native_dropout.default", view=View.SOME)
def native_dropout(
    g: Recorder, x: Tensor, p: float, train: bool | None, *, out: list[Output]
) -> None:
    g.require(train is False or p == 0, "dropout must not train", train)
    g.alias(out[0], x)
    if out[1].needed:
        g.copy(g.number(1, DType.INT32).expand(out[1].shape), out[1])


@op("et_vk.prepack.default", accuracy=MOVED)
def prepack(g: Recorder, x: Tensor, *, out: Output) -> None:
    """Nothing to do: a kernel's constants are packed as it asks for."""
    g.alias(out, x)
