"""Shuffles: elements in another order, written by one kernel.

Their decompositions end in a view of a permuted copy, into which nothing can be fused;
here one kernel reads the permuted view and writes the result, with an epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...plan import registry
from ...plan.accuracy import MOVED
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import compute_type

op = partial(registry.op, accuracy=MOVED)


def _write_permuted(
    g: Recorder, x: Tensor, shape: Sequence[int], order: Sequence[int], out: Output
) -> None:
    """Writes x, reshaped to `shape` and permuted by `order`, in row-major order."""
    view = g.reshape(x, shape).permute(order)
    kind = compute_type(x.dtype)
    g.dispatch(
        "elementwise",
        {"x": view},
        {"y": out},
        invocations=out.numel,
        strided=("x",),
        code=f"fn program(i: i32) -> {kind} {{ return get_x(i); }}",
    )


@op("aten.pixel_shuffle.default", fusible=True, keep=True)
def pixel_shuffle(g: Recorder, x: Tensor, factor: int, *, out: Output) -> None:
    channels, height, width = out.shape[-3:]
    batch = out.numel // max(channels * height * width, 1)
    rows, columns = height // factor, width // factor
    shape = (batch, channels, factor, factor, rows, columns)
    _write_permuted(g, x, shape, (0, 1, 4, 2, 5, 3), out)


@op("aten.pixel_unshuffle.default", fusible=True, keep=True)
def pixel_unshuffle(g: Recorder, x: Tensor, factor: int, *, out: Output) -> None:
    channels, height, width = x.shape[-3:]
    batch = x.numel // max(channels * height * width, 1)
    shape = (batch, channels, height // factor, factor, width // factor, factor)
    _write_permuted(g, x, shape, (0, 1, 3, 5, 2, 4), out)


@op("aten.channel_shuffle.default", fusible=True, keep=True)
def channel_shuffle(g: Recorder, x: Tensor, groups: int, *, out: Output) -> None:
    batch, channels = x.shape[:2]
    inner = x.numel // max(batch * channels, 1)
    shape = (batch, groups, channels // groups, inner)
    _write_permuted(g, x, shape, (0, 2, 1, 3), out)
