"""Ops that move elements: concatenation, padding, repeating, triangles, im2col.

Each element of the output is one element of an input or a fill value, or, of col2im, a
sum of elements; it is written once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

from ...plan import registry
from ...plan.accuracy import MOVED, SUM
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import row_major
from ...plan.wgsl_text import Param, compute_type
from ..conv.geometry import check_windows

op = partial(registry.op, accuracy=MOVED)


def copy_view(g: Recorder, view: Tensor, out: Output) -> None:
    """Copies a strided view's elements, in row-major order, to `out` of any shape."""
    if g.is_large(view, out):
        whole = g.whole(out)
        g.copy_into(view, whole.with_view(view.shape, row_major(view.shape)))
        return
    g.dispatch("copy", {"x": view}, {"y": out}, invocations=out.numel, strided=("x",))


# -- concatenation -------------------------------------------------------------------


@op("aten.cat.default", fusible=True, lazy=1, concat=True)
def cat(g: Recorder, tensors: list[Tensor], dim: int, *, out: Output) -> None:
    """One dispatch copies as many inputs as it can bind; inputs whose producers have
    stored them at their place are not copied."""
    dim = out.dim(dim)
    # torch ignores empty vectors whatever the rank of the others.
    inputs = [t for t in tensors if t.numel]
    if inputs and g.is_large(out):
        _cat_one_by_one(g, inputs, dim, out)
        return
    inner = math.prod(out.shape[dim + 1 :])
    outer = math.prod(out.shape[:dim])
    reads = () if out.epilogue is None else out.epilogue.operands
    room = max(1, min(g.caps.max_storage_buffers, 8) - 1 - len(reads))
    left = [k for k, t in enumerate(inputs) if not _is_there(t, out)]
    # Four elements at a time if no four of them straddle two inputs.
    unit = 4
    if any(t.shape[dim] * inner % 4 for t in inputs):
        unit = 1
    if any(not inputs[k].is_contiguous for k in left):
        unit = 1
    if not inputs:
        g.dispatch("concat", {}, {"y": out}, invocations=0)
    lengths = [t.shape[dim] * inner // unit for t in inputs]
    starts = [0, *itertools.accumulate(lengths)]
    for chosen in _batches(inputs, left, room):
        batch = [inputs[k] for k in chosen]
        span = sum(lengths[k] for k in chosen)
        params: dict[str, Param] = {
            "span": span,
            "total": out.shape[dim] * inner // unit,
            "start": [starts[k] for k in chosen],
            "length": [lengths[k] for k in chosen],
        }
        bound = {f"x{k}": tensor for k, tensor in enumerate(batch)}
        g.dispatch(
            "concat" if unit == 1 else "concat_vec4",
            bound,
            {"y": out},
            params,
            invocations=outer * span,
            code=_pick(len(batch), compute_type(out.dtype), unit),
            strided=bound.keys() if unit == 1 else (),
            vec4=() if unit == 1 else {"y", *bound},
        )


def _cat_one_by_one(
    g: Recorder, inputs: Sequence[Tensor], dim: int, out: Output
) -> None:
    """Copies one input after the other: buffers are too large to be bound whole."""
    start, whole = 0, g.whole(out)
    for x in inputs:
        length = x.shape[dim]
        g.copy_into(x, whole.slice(dim, start, length))
        start += length


def _is_there(x: Tensor, out: Output) -> bool:
    """Whether an input was stored at its place when it was computed."""
    return out.written is not None and x.store is out.written.store


def _batches(
    inputs: Sequence[Tensor], left: Sequence[int], room: int
) -> list[list[int]]:
    """The inputs numbered in `left`, in batches that one kernel can bind: `room`
    buffers. An inlined producer takes a binding for each of its operands."""
    batches: list[list[int]] = []
    free = 0
    for number in left:
        lazy = inputs[number].lazy
        takes = 1 if lazy is None else len(lazy.operands)
        if not batches or takes > free:
            batches.append([])
            free = room
        batches[-1].append(number)
        free -= takes
    return batches


def _pick(count: int, kind: str, unit: int) -> str:
    """WGSL of pick(a, rest), or pick4 in fours: element `rest` of what `count` inputs
    have in outer row a; and of target_of(rest): its index in a row of the output."""
    four = "" if unit == 1 else "4"
    kind = kind if unit == 1 else f"vec4<{kind}>"
    pick = [f"fn pick{four}(a: i32, rest: i32) -> {kind} {{", "  var r = rest;"]
    target = ["fn target_of(rest: i32) -> i32 {", "  var r = rest;"]
    for k in range(count):
        read = f"return {kind}(get_x{k}{four}(a * length_at({k}) + r));"
        at = f"return start_at({k}) + r;"
        for lines, last in ((pick, read), (target, at)):
            if k == count - 1:
                lines.append(f"  {last}\n}}")
                continue
            lines.append(f"  if (r < length_at({k})) {{ {last} }}")
            lines.append(f"  r -= length_at({k});")
    return "\n".join([*pick, *target])


@op("aten.stack.default", fusible=True, lazy=1)
def stack(g: Recorder, tensors: list[Tensor], dim: int, *, out: Output) -> None:
    dim = out.dim(dim)
    cat(g, [tensor.unsqueeze(dim) for tensor in tensors], dim, out=out)


def _replace_slices(
    g: Recorder, x: Tensor, src: Tensor, dim: int, start: int, step: int, out: Output
) -> None:
    params: dict[str, Param] = {
        "inner": math.prod(x.shape[dim + 1 :]),
        "extent": x.shape[dim],
        "start": start,
        "step": step,
        "count": src.shape[dim],
    }
    g.dispatch(
        "region",
        {"x": x, "src": src},
        {"y": out},
        params,
        invocations=out.numel,
        strided=("x", "src"),
    )


@op("aten.slice_scatter.default", fusible=True)
def slice_scatter(
    g: Recorder,
    x: Tensor,
    src: Tensor,
    dim: int,
    start: int | None,
    end: int | None,
    step: int,
    *,
    out: Output,
) -> None:
    dim = x.dim(dim)
    extent = x.shape[dim]
    first = 0 if start is None else start
    first = max(0, min(first + extent if first < 0 else first, extent))
    last = extent if end is None else end
    last = max(first, min(last + extent if last < 0 else last, extent))
    shape = list(x.shape)
    shape[dim] = -(-(last - first) // step)
    if not math.prod(shape):
        copy_view(g, x, out)
        return
    _replace_slices(g, x, src.expand(shape), dim, first, step, out)


@op("aten.select_scatter.default", fusible=True)
def select_scatter(
    g: Recorder, x: Tensor, src: Tensor, dim: int, index: int, *, out: Output
) -> None:
    dim = x.dim(dim)
    extent = x.shape[dim]
    g.require(
        -extent <= index < extent, f"index must be in [-{extent}, {extent})", index
    )
    start = index + extent if index < 0 else index
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    _replace_slices(g, x, src.expand(shape).unsqueeze(dim), dim, start, 1, out)


# -- repeating and reversing ---------------------------------------------------------


@op("aten.repeat.default", fusible=True)
def repeat(g: Recorder, x: Tensor, repeats: list[int], *, out: Output) -> None:
    lead = len(repeats) - x.rank
    shape: list[int] = []
    strides: list[int] = []
    for count, extent, stride in zip(
        repeats, (1,) * lead + x.shape, (0,) * lead + x.strides
    ):
        shape += [count, extent]
        strides += [0, stride]
    copy_view(g, x.with_view(shape, strides), out)


@op("aten.flip.default", fusible=True)
def flip(g: Recorder, x: Tensor, dims: list[int], *, out: Output) -> None:
    strides, offset = list(x.strides), x.offset
    for dim in {x.dim(d) for d in dims} if x.rank else ():
        offset += (x.shape[dim] - 1) * strides[dim]
        strides[dim] = -strides[dim]
    copy_view(g, x.with_view(x.shape, strides, offset), out)


@op("aten.roll.default", fusible=True, keep=True)
def roll(
    g: Recorder, x: Tensor, shifts: list[int], dims: list[int], *, out: Output
) -> None:
    if not dims:
        x = g.contiguous(x)
        x = x.with_view((x.numel,), (1,))
        dims = [0]
    before = [0] * x.rank
    for shift, dim in zip(shifts, dims):
        extent = max(1, x.shape[dim])
        before[x.dim(dim)] = (before[x.dim(dim)] + shift) % extent
    _remap(g, x, before, x.shape, _CIRCULAR, out)


# -- padding -------------------------------------------------------------------------

_CONSTANT, _REFLECT, _REPLICATE, _CIRCULAR = range(4)


def _remap(
    g: Recorder,
    x: Tensor,
    before: Sequence[int],
    shape: Sequence[int],
    mode: int,
    out: Output,
    fill: float = 0,
) -> None:
    """out[c] = x[c - before]; adjacent dimensions that do not change are merged."""
    x = g.contiguous(x)
    sizes: list[int] = []
    outs: list[int] = []
    shifts: list[int] = []
    plain = False
    for size, extent, shift in zip(x.shape, shape, before):
        same = size == extent and shift == 0
        if same and plain:
            sizes[-1] *= size
            outs[-1] *= extent
        else:
            sizes.append(size)
            outs.append(extent)
            shifts.append(shift)
        plain = same
    params: dict[str, Param] = {
        "fill": float(fill) if x.dtype.is_float else int(fill),
        "size": sizes,
        "out": outs,
        "before": shifts,
        "stride": row_major(sizes),
    }
    g.dispatch(
        "remap",
        {"x": x},
        {"y": out},
        params,
        invocations=out.numel,
        consts={"T": compute_type(x.dtype), "RANK": len(sizes), "MODE": mode},
    )


def _before(x: Tensor, pad: Sequence[int]) -> list[int]:
    """Padding before each dimension; `pad` begins with the last one, as in torch."""
    before = [0] * x.rank
    for k in range(len(pad) // 2):
        before[x.rank - 1 - k] = pad[2 * k]
    return before


@op("aten.constant_pad_nd.default", "aten.pad.default", fusible=True)
def constant_pad(
    g: Recorder,
    x: Tensor,
    pad: list[int],
    value: float | str | None = 0,
    fill: float | None = None,
    *,
    out: Output,
) -> None:
    g.require(
        not isinstance(value, str) or value == "constant",
        "mode must be constant",
        value,
    )
    number = fill if isinstance(value, str) else value
    _remap(g, x, _before(x, pad), out.shape, _CONSTANT, out, number or 0)


@op(
    "aten.reflection_pad1d.default",
    "aten.reflection_pad2d.default",
    "aten.reflection_pad3d.default",
    fusible=True,
    keep=True,
)
def reflection_pad(g: Recorder, x: Tensor, pad: list[int], *, out: Output) -> None:
    _remap(g, x, _before(x, pad), out.shape, _REFLECT, out)


@op(
    "aten.replication_pad1d.default",
    "aten.replication_pad2d.default",
    "aten.replication_pad3d.default",
    fusible=True,
    keep=True,
)
def replication_pad(g: Recorder, x: Tensor, pad: list[int], *, out: Output) -> None:
    _remap(g, x, _before(x, pad), out.shape, _REPLICATE, out)


# -- triangles and blocks ------------------------------------------------------------


def _triangle(g: Recorder, x: Tensor, diagonal: int, upper: bool, out: Output) -> None:
    height, width = x.shape[-2:]
    g.dispatch(
        "triangle",
        {"x": x},
        {"y": out},
        {"height": height, "width": width, "diagonal": diagonal},
        invocations=out.numel,
        consts={"T": compute_type(x.dtype), "UPPER": upper},
        strided=("x",),
    )


@op("aten.tril.default", fusible=True, keep=True)
def tril(g: Recorder, x: Tensor, diagonal: int, *, out: Output) -> None:
    _triangle(g, x, diagonal, False, out)


@op("aten.triu.default", fusible=True, keep=True)
def triu(g: Recorder, x: Tensor, diagonal: int, *, out: Output) -> None:
    _triangle(g, x, diagonal, True, out)


def _blocks(
    g: Recorder,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> dict[str, Param]:
    check_windows(
        g, 2, kernel=kernel, dilation=dilation, padding=padding, stride=stride
    )
    g.require(
        len(kernel) == len(dilation) == len(padding) == len(stride) == len(size) == 2,
        "blocks must have two dimensions",
        kernel,
    )
    blocks = [
        (size[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
        for d in range(2)
    ]
    return {
        "size": size,
        "kernel": kernel,
        "dilation": dilation,
        "padding": padding,
        "stride": stride,
        "blocks": blocks,
    }


@op("aten.im2col.default", fusible=True, keep=True)
def im2col(
    g: Recorder,
    x: Tensor,
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
    *,
    out: Output,
) -> None:
    g.dispatch(
        "im2col",
        {"x": x},
        {"y": out},
        _blocks(g, x.shape[-2:], kernel, dilation, padding, stride),
        invocations=out.numel,
        consts={"T": compute_type(x.dtype)},
    )


@op("aten.col2im.default", fusible=True, accuracy=SUM)
def col2im(
    g: Recorder,
    x: Tensor,
    size: list[int],
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
    *,
    out: Output,
) -> None:
    rows = out.shape[-3] * math.prod(kernel)
    g.require(rows <= x.shape[-2], f"x must have {rows} rows", x.shape[-2])
    g.dispatch(
        "col2im",
        {"x": x},
        {"y": out},
        _blocks(g, size, kernel, dilation, padding, stride),
        invocations=out.numel,
        consts={"T": compute_type(x.dtype)},
    )
