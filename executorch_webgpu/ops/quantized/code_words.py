"""Quantized values in words of four on GPUs: rows, images, and columns of im2col.

Enters: an int8 tensor as a strided view. Leaves: words of four neighbouring channels,
as `dot4I8Packed` multiplies them, made once for all that read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...plan.recorder import Recorder, Tensor


@dataclass(frozen=True)
class Taps:
    """The pixels under a kernel, in two dimensions."""

    kernel: Sequence[int] = (1, 1)
    stride: Sequence[int] = (1, 1)
    padding: Sequence[int] = (0, 0)
    dilation: Sequence[int] = (1, 1)


def words_of_rows(g: Recorder, codes: Tensor) -> Tensor:
    """[..., K] as words [rows, K / 4]."""
    width = codes.shape[-1]
    rows = g.reshape(codes, (codes.numel // width, width, 1, 1))
    words = words_of_image(g, rows, 1)
    return words.with_view((rows.shape[0], width // 4), (width // 4, 1))


def words_of_image(g: Recorder, x: Tensor, groups: int) -> Tensor:
    """x[n, c, y, x] as words [n, groups, fours, y, x]."""
    fours = -(-x.shape[1] // groups // 4)
    pixels = x.shape[2] * x.shape[3]

    def made() -> Tensor:
        words = g.temp((x.shape[0], groups, fours, *x.shape[2:]), DType.INT32)
        strides = (groups * fours * pixels, fours * pixels, 0, pixels)
        _dispatch(g, x, groups, Taps(), (x.shape[2], x.shape[3], 0), words, strides)
        return words

    return g.once(f"words of {groups} groups", x, made)


def words_of_columns(
    g: Recorder,
    x: Tensor,
    groups: int,
    taps: Taps,
    out: tuple[int, int],
    zero: int,
    padded: int,
) -> Tensor:
    """im2col: words [group, four, tap, pixel of all images], a row of which has
    `padded` places. Outside of x is `zero`."""
    fours, count = -(-x.shape[1] // groups // 4), math.prod(taps.kernel)
    words = g.temp((groups * count * fours, padded), DType.INT32)
    strides = (math.prod(out), count * fours * padded, padded, count * padded)
    _dispatch(g, x, groups, taps, (*out, zero), words, strides)
    return words


def _dispatch(
    g: Recorder,
    x: Tensor,
    groups: int,
    taps: Taps,
    out: tuple[int, int, int],
    words: Tensor,
    strides: Sequence[int],
) -> None:
    """im2col_codes, for `out` pixels (y, x) of an image; `out` ends with the zero
    point."""
    high, wide, zero = out
    channels, count = x.shape[1] // groups, math.prod(taps.kernel)
    fours = -(-channels // 4)
    g.dispatch(
        "im2col_codes",
        {"x": x},
        {"y": words},
        {
            "pixels": high * wide,
            "channels": channels,
            "fours": fours,
            "groups": groups,
            "taps": count,
            "zero": zero,
            "kernel_wide": taps.kernel[1],
            "out_wide": wide,
            "size": x.shape[2:],
            "stride": taps.stride,
            "padding": taps.padding,
            "dilation": taps.dilation,
            "x": (x.offset, *x.strides),
            "y": strides,
        },
        invocations=x.shape[0] * groups * count * fours * high * wide,
        raw=["x"],
    )
