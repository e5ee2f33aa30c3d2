"""Resampling: nearest, linear, cubic and antialiased, of one to three dimensions.

All are computed on planes of depth, height and width, of which the missing ones have
extent 1. The output's shape is given; a scale factor only decides which input position
an output element has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import MOVED, TOLERANT
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param, load

op = partial(registry.op, accuracy=TOLERANT)

Numbers = Sequence[float | None] | None
# Ratios of output to input for which torch ignores the scale factor, per op.
Fractions = tuple[int, ...]


def _scale(
    given: float | None, extent: int, count: int, align_corners: bool, exact: Fractions
) -> float:
    """Input elements per output element, rounded to f32 where torch rounds."""
    if extent and count / extent in exact:
        return extent / count
    if align_corners:
        spans = np.float32(extent - 1), np.float32(count - 1)
        return float(spans[0] / spans[1]) if count > 1 else 0.0
    if given is not None and given > 0:
        return 1.0 / given
    return float(np.float32(extent) / np.float32(max(count, 1)))


def _params(
    x: Tensor, out: Output, factors: Numbers, align_corners: bool, exact: Fractions
) -> dict[str, Param]:
    dims = x.rank - 2
    missing = [1] * (3 - dims)
    given = list(factors) if factors else [None] * dims
    scales = [1.0] * (3 - dims) + [
        _scale(factor, extent, count, align_corners, exact)
        for factor, extent, count in zip(given, x.shape[2:], out.shape[2:])
    ]
    return {
        "in": missing + list(x.shape[2:]),
        "out": missing + list(out.shape[2:]),
        **dict(zip(("scale_z", "scale_y", "scale_x"), scales)),
    }


def _resample(
    g: Recorder,
    kernel: str,
    x: Tensor,
    out: Output,
    factors: Numbers,
    align_corners: bool = False,
    consts: dict[str, int | float | bool] | None = None,
    helpers: Sequence[str] = ("resample_position",),
    exact: Fractions = (),
) -> None:
    g.dispatch(
        kernel,
        {"x": x},
        {"y": out},
        _params(x, out, factors, align_corners, exact),
        invocations=out.numel,
        consts={
            "DIMS": x.rank - 2,
            "ALIGN_CORNERS": align_corners,
            **(consts or {}),
        },
        code="\n".join(load(name) for name in helpers),
    )


def _nearest(offset: float) -> tuple[Callable[..., None], Callable[..., None]]:
    """The op functions of the overloads `vec` and `default`."""

    def vec(
        g: Recorder, x: Tensor, size: list[int] | None, factors: Numbers, *, out: Output
    ) -> None:
        # Only torch's kernel for two dimensions has these cases.
        exact = () if x.rank != 4 else (1,) if offset else (1, 2)
        consts: dict[str, int | float | bool] = {"OFFSET": offset}
        _resample(g, "resample_nearest", x, out, factors, consts=consts, exact=exact)

    def plain(
        g: Recorder, x: Tensor, size: list[int], *factors: float | None, out: Output
    ) -> None:
        vec(g, x, size, factors, out=out)

    return vec, plain


for _base, _offset in (("upsample_nearest", 0.0), ("_upsample_nearest_exact", 0.5)):
    _vec, _plain = _nearest(_offset)
    for _overload, _function in (("vec", _vec), ("default", _plain)):
        _names = [f"aten.{_base}{_dims}d.{_overload}" for _dims in (1, 2, 3)]
        op(*_names, fusible=True, keep=True, accuracy=MOVED)(_function)


# Positions are fractions whose denominator has at most 16 bits, so that weights are
# exact in 32.
_LARGEST_UNIT = (1 << 16) - 1
_MOST_PIXELS = 1 << 20  # in a row or column of bytes, whose positions are all computed


def _byte_positions(
    given: float | None, extent: int, count: int, align_corners: bool
) -> tuple[int, int, int, int]:
    """Stride, first, unit and one: integers such that output o is at position
    (o * stride + first) / unit, and the integer that is a weight of 1.

    As in torch, integer weights have the most bits with which all of them fit 16.
    """
    extent, count = int(extent), int(count)  # what a fraction is made of is a number
    if extent == count or (align_corners and count == 1):
        ratio = Fraction(int(extent == count))
    elif align_corners:
        ratio = Fraction(extent - 1, count - 1)
    elif given is not None and given > 0:
        ratio = Fraction(1.0 / given).limit_denominator(_LARGEST_UNIT // 2)
    else:
        ratio = Fraction(extent, count)
    stride, unit = 2 * ratio.numerator, 2 * ratio.denominator
    first = 0 if align_corners else (stride - unit) // 2
    at = np.maximum(np.arange(count, dtype=np.int64) * stride + first, 0)
    fraction = np.where(at // unit < extent - 1, at % unit, 0)
    largest = float(np.maximum(fraction, unit - fraction).max(initial=0)) / unit
    bits = 14 if int(0.5 + largest * 2**15) >= 2**15 else 15
    return stride, first, unit, 1 << bits


def _resample_bytes(
    g: Recorder, x: Tensor, out: Output, factors: Numbers, align_corners: bool
) -> None:
    given = list(factors) if factors else [None, None]
    params: dict[str, Param] = {"in": (1, *x.shape[2:]), "out": (1, *out.shape[2:])}
    for name, factor, extent, count in zip("yx", given, x.shape[2:], out.shape[2:]):
        g.require(
            count <= _MOST_PIXELS, f"rows must have <= {_MOST_PIXELS} bytes", count
        )
        stride, first, unit, one = _byte_positions(factor, extent, count, align_corners)
        small = unit <= _LARGEST_UNIT and stride * count + abs(first) < 2**31
        g.require(small, "sizes of bytes must have a short ratio", (extent, count))
        params |= {f"stride_{name}": stride, f"first_{name}": first}
        params |= {f"unit_{name}": unit, f"one_{name}": one}
    g.dispatch(
        "resample_bytes",
        {"x": x},
        {"y": out},
        params,
        invocations=out.numel,
        consts={"DIMS": 2, "ALIGN_CORNERS": align_corners},
        code=load("resample_position"),
    )


@op(
    "aten.upsample_linear1d.vec",
    "aten.upsample_bilinear2d.vec",
    "aten.upsample_trilinear3d.vec",
    fusible=True,
    keep=True,
)
def linear_vec(
    g: Recorder,
    x: Tensor,
    size: list[int] | None,
    align_corners: bool,
    factors: Numbers,
    *,
    out: Output,
) -> None:
    if x.dtype is DType.UINT8 and x.rank == 4:
        _resample_bytes(g, x, out, factors, align_corners)
        return
    g.require(x.dtype.is_float, "x must be of a float type", x.dtype.label)
    _resample(
        g,
        "resample_linear",
        x,
        out,
        factors,
        align_corners,
        exact=() if align_corners else (1,),
    )


@op(
    "aten.upsample_linear1d.default",
    "aten.upsample_bilinear2d.default",
    "aten.upsample_trilinear3d.default",
    fusible=True,
    keep=True,
)
def linear(
    g: Recorder,
    x: Tensor,
    size: list[int],
    align_corners: bool,
    *factors: float | None,
    out: Output,
) -> None:
    linear_vec(g, x, size, align_corners, factors, out=out)


@op("aten.upsample_bicubic2d.vec", fusible=True, keep=True)
def cubic_vec(
    g: Recorder,
    x: Tensor,
    size: list[int] | None,
    align_corners: bool,
    factors: Numbers,
    *,
    out: Output,
) -> None:
    g.require(x.dtype.is_float, "x must be of a float type", x.dtype.label)
    helpers = ("resample_position", "cubic")
    _resample(g, "resample_cubic", x, out, factors, align_corners, helpers=helpers)


@op("aten.upsample_bicubic2d.default", fusible=True, keep=True)
def cubic(
    g: Recorder,
    x: Tensor,
    size: list[int],
    align_corners: bool,
    *factors: float | None,
    out: Output,
) -> None:
    cubic_vec(g, x, size, align_corners, factors, out=out)


def _antialias(is_cubic: bool) -> tuple[Callable[..., None], Callable[..., None]]:
    """The op functions of the overloads `vec` and `default`."""

    def vec(
        g: Recorder,
        x: Tensor,
        size: list[int] | None,
        align_corners: bool,
        factors: Numbers,
        *,
        out: Output,
    ) -> None:
        g.require(x.dtype.is_float, "x must be of a float type", x.dtype.label)
        _resample(
            g,
            "resample_antialias",
            x,
            out,
            factors,
            align_corners,
            {"CUBIC": is_cubic},
            ("resample_position", "cubic"),
            () if is_cubic and x.shape != out.shape else (1,),
        )

    def plain(
        g: Recorder,
        x: Tensor,
        size: list[int],
        align_corners: bool,
        *factors: float | None,
        out: Output,
    ) -> None:
        vec(g, x, size, align_corners, factors, out=out)

    return vec, plain


for _base, _cubic in (
    ("_upsample_bilinear2d_aa", False),
    ("_upsample_bicubic2d_aa", True),
):
    _vec, _plain = _antialias(_cubic)
    op(f"aten.{_base}.vec", fusible=True, keep=True)(_vec)
    op(f"aten.{_base}.default", fusible=True, keep=True)(_plain)


_NEAREST, _CUBIC = 1, 2


# `grid_sampler` is the op of any rank: an edge program may not contain the 3d one.
@op(
    "aten.grid_sampler.default",
    "aten.grid_sampler_2d.default",
    "aten.grid_sampler_3d.default",
    fusible=True,
    keep=True,
)
def grid_sampler(
    g: Recorder,
    x: Tensor,
    grid: Tensor,
    mode: int,
    padding: int,
    align_corners: bool,
    *,
    out: Output,
) -> None:
    g.require(x.dtype.is_float, "x must be of a float type", x.dtype.label)
    dims = x.rank - 2
    extents = [1] * (3 - dims) + list(x.shape[2:])
    helpers = ["sample_coordinates"] + (["cubic"] if mode == _CUBIC else [])
    g.dispatch(
        "grid_sample_cubic" if mode == _CUBIC else "grid_sample",
        {"x": x, "grid": grid},
        {"y": out},
        {
            "in": extents,
            "channels": x.shape[1],
            "points": grid.numel // max(grid.shape[0] * dims, 1),
        },
        invocations=out.numel,
        consts={
            "DIMS": dims,
            "PADDING": padding,
            "NEAREST": mode == _NEAREST,
            "ALIGN_CORNERS": align_corners,
        },
        code="\n".join(load(name) for name in helpers),
    )
