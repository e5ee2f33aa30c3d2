"""Pooling: maxima and averages over windows of one, two or three dimensions.

All are computed in three dimensions, of which the missing ones have extent 1. The
output's shape is given, so that ceil_mode needs no code; kernels cut windows to the
input.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import EQUAL, SUM
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param, load, rounded
from ..conv.geometry import check_windows

op = partial(registry.op, accuracy=EQUAL)


@dataclass(frozen=True)
class _Windows:
    """The geometry of windows, one number for each of the `dims` dimensions."""

    dims: int
    kernel: Sequence[int] = (1,)
    stride: Sequence[int] = ()
    padding: Sequence[int] = (0,)
    dilation: Sequence[int] = (1,)
    adaptive: bool = False

    def check(self, g: Recorder) -> None:
        check_windows(
            g,
            self.dims,
            kernel=self.kernel,
            stride=self.stride or self.kernel,
            padding=self.padding,
            dilation=self.dilation,
        )

    def params(self, x: Tensor, out: Output) -> dict[str, Param]:
        return {
            "in": _three(x.shape[-self.dims :], self.dims, 1),
            "out": _three(out.shape[-self.dims :], self.dims, 1),
            "kernel": _three(self.kernel, self.dims, 1),
            "stride": _three(self.stride or self.kernel, self.dims, 1),
            "pad": _three(self.padding, self.dims, 0),
            "dilation": _three(self.dilation, self.dims, 1),
        }

    def consts(self) -> dict[str, int | float | bool]:
        return {"DIMS": max(self.dims, 2), "ADAPTIVE": self.adaptive}

    def inputs(self) -> dict[str, Tensor]:
        return {}

    def code(self) -> str:
        return load("pool_position") + load("pool_window")


# Significant bits of the types that random samples have.
_SIGNIFICANT = {DType.FLOAT32: 24, DType.FLOAT16: 11, DType.BFLOAT16: 8}


@dataclass(frozen=True)
class _Fractional(_Windows):
    """Windows whose positions come from random samples, `dims` for each plane."""

    samples: Tensor = field(kw_only=True)

    def params(self, x: Tensor, out: Output) -> dict[str, Param]:
        spatial = (x.shape[-self.dims :], self.kernel, out.shape[-self.dims :])
        sizes = zip(*(_three(values, self.dims, 1) for values in spatial))
        return {**super().params(x, out), "alpha": [self._alpha(*s) for s in sizes]}

    def _alpha(self, extent: int, kernel: int, count: int) -> int:
        """The bits of (extent - kernel) / (count - 1) as an f32, of operands rounded to
        the samples' type. Computed here because WGSL's division may be inexact."""
        bits = _SIGNIFICANT[self.samples.dtype]
        top, bottom = _nearest(extent - kernel, bits), _nearest(count - 1, bits)
        (quotient,) = struct.unpack("<i", struct.pack("<f", top / max(bottom, 1)))
        return int(quotient)

    def inputs(self) -> dict[str, Tensor]:
        return {"samples": self.samples}

    def code(self) -> str:
        # In two dimensions the sample of the width comes first.
        order = "d" if self.dims == 3 else "2 - d"
        code = [
            f"fn sample(plane: i32, d: i32) -> f32"
            f" {{ return get_samples(plane * {self.dims} + {order}); }}",
            f"fn rounded(v: f32) -> f32"
            f" {{ return {rounded(self.samples.dtype, 'v')}; }}",
        ]
        return "\n".join([load("pool_position"), load("pool_fractional"), *code])


def _nearest(number: int, bits: int) -> int:
    """The nearest number of so many significant bits, ties to even."""
    value = int(number)
    spacing = 1 << max(value.bit_length() - bits, 0)
    return round(value / spacing) * spacing


def _three(values: Sequence[int], dims: int, missing: int) -> list[int]:
    """One number for each of three dimensions; a single one stands for all."""
    given = list(values) * dims if len(values) == 1 else list(values)
    return [missing] * (3 - dims) + given


def _max(g: Recorder, x: Tensor, windows: _Windows, out: list[Output]) -> None:
    values, indices = out
    g.require(x.dtype is not DType.BOOL, "x must be a number", x.dtype.label)
    windows.check(g)
    code = [windows.code()]
    if x.dtype.is_float:
        code.append("fn lowest() -> f32 { return -inf(); }")
        code.append("fn above(v: f32, w: f32) -> bool { return v > w || is_nan(v); }")
    else:
        code.append("fn lowest() -> i32 { return -2147483647 - 1; }")
        code.append("fn above(v: i32, w: i32) -> bool { return v > w; }")
    outputs = {"y": values}
    if indices.needed:
        outputs["index"] = indices
    stored = "put_index(i, at);" if indices.needed else ""
    code.append(f"fn store_index(i: i32, at: i32) {{ {stored} }}")
    g.dispatch(
        "pool_max",
        {"x": x, **windows.inputs()},
        outputs,
        windows.params(x, values),
        invocations=values.numel,
        consts=windows.consts(),
        code="\n".join(code),
    )


@op("aten.max_pool2d_with_indices.default", fusible=True)
def max_pool2d(
    g: Recorder,
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    *,
    out: list[Output],
) -> None:
    _max(g, x, _Windows(2, kernel, stride, padding, dilation), out)


@op("aten.max_pool3d_with_indices.default", fusible=True)
def max_pool3d(
    g: Recorder,
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    *,
    out: list[Output],
) -> None:
    _max(g, x, _Windows(3, kernel, stride, padding, dilation), out)


@op("aten.adaptive_max_pool1d.default", twin=True, fusible=True)
def adaptive_max_pool1d(
    g: Recorder, x: Tensor, size: list[int], *, out: list[Output]
) -> None:
    _max(g, x, _Windows(1, adaptive=True), out)


@op("aten.adaptive_max_pool2d.default", twin=True, fusible=True)
def adaptive_max_pool2d(
    g: Recorder, x: Tensor, size: list[int], *, out: list[Output]
) -> None:
    _max(g, x, _Windows(2, adaptive=True), out)


@op("aten.adaptive_max_pool3d.default", twin=True, fusible=True)
def adaptive_max_pool3d(
    g: Recorder, x: Tensor, size: list[int], *, out: list[Output]
) -> None:
    _max(g, x, _Windows(3, adaptive=True), out)


@op("aten.fractional_max_pool2d.default", twin=True, fusible=True)
def fractional_max_pool2d(
    g: Recorder,
    x: Tensor,
    kernel: list[int],
    size: list[int],
    samples: Tensor,
    *,
    out: list[Output],
) -> None:
    _max(g, x, _Fractional(2, kernel, samples=samples), out)


@op("aten.fractional_max_pool3d.default", twin=True, fusible=True)
def fractional_max_pool3d(
    g: Recorder,
    x: Tensor,
    kernel: list[int],
    size: list[int],
    samples: Tensor,
    *,
    out: list[Output],
) -> None:
    _max(g, x, _Fractional(3, kernel, samples=samples), out)


def _average(
    g: Recorder,
    x: Tensor,
    windows: _Windows,
    out: Output,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> None:
    g.require(x.dtype.is_float, "x must be of a float type", x.dtype.label)
    windows.check(g)
    g.dispatch(
        "pool_average",
        {"x": x},
        {"y": out},
        {**windows.params(x, out), "divisor": divisor or 0},
        invocations=out.numel,
        consts={**windows.consts(), "COUNT_PADDING": count_include_pad},
        code=windows.code(),
    )


@op("aten.avg_pool1d.default", fusible=True, accuracy=SUM)
def avg_pool1d(
    g: Recorder,
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    *,
    out: Output,
) -> None:
    _average(g, x, _Windows(1, kernel, stride, padding), out, count_include_pad)


@op("aten.avg_pool2d.default", fusible=True, accuracy=SUM)
def avg_pool2d(
    g: Recorder,
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
    *,
    out: Output,
) -> None:
    windows = _Windows(2, kernel, stride, padding)
    _average(g, x, windows, out, count_include_pad, divisor)


@op("aten.avg_pool3d.default", fusible=True, accuracy=SUM)
def avg_pool3d(
    g: Recorder,
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
    *,
    out: Output,
) -> None:
    windows = _Windows(3, kernel, stride, padding)
    _average(g, x, windows, out, count_include_pad, divisor)


@op("aten.adaptive_avg_pool1d.default", fusible=True, accuracy=SUM)
def adaptive_avg_pool1d(
    g: Recorder, x: Tensor, size: list[int], *, out: Output
) -> None:
    _average(g, x, _Windows(1, adaptive=True), out)


@op("aten._adaptive_avg_pool2d.default", fusible=True, accuracy=SUM)
def adaptive_avg_pool2d(
    g: Recorder, x: Tensor, size: list[int], *, out: Output
) -> None:
    _average(g, x, _Windows(2, adaptive=True), out)


@op("aten._adaptive_avg_pool3d.default", fusible=True, accuracy=SUM)
def adaptive_avg_pool3d(
    g: Recorder, x: Tensor, size: list[int], *, out: Output
) -> None:
    _average(g, x, _Windows(3, adaptive=True), out)
