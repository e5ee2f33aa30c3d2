"""Convolutions of int8 tensors with int8 weights, in exact integer sums.

Enters: an int8 input with one scale and zero point, weights with a scale for every
filter. Leaves: the float result. Two launches: what lies under each tap goes into
words of four channels, and the filters, as rows, are multiplied by those words
(`codes_product`). Where few enough products are summed, floats hold integers exactly
too: what the float kernels are faster at, and a convolution with fewer than four
channels in a group (depthwise), whose words would be mostly empty, is left to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ... import ir
from ...ir.dtypes import DType, Storage
from ...plan.host_packing import packing
from ...plan.output import Epilogue
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op
from ...plan.wgsl_text import Param
from .integer_matmul import MOST_CODES, Supply, product, weight_reader, word_reader

# Products of 9 and 8 bits of which floats hold the sum exactly.
EXACT = 512


@packing("filter_words")
def _filter_words(data: np.ndarray) -> np.ndarray:
    """[filter, channel, y, x] as words [filter, (y, x), four channels]."""
    filters, channels = data.shape[:2]
    codes = data.reshape(filters, channels, -1)
    padded = np.zeros((filters, codes.shape[2], -(-channels // 4) * 4), np.int8)
    padded[:, :, :channels] = codes.transpose(0, 2, 1)
    return padded.view(np.int32).reshape(filters, -1)


@dataclass(frozen=True)
class CodesConv:
    """x[n, c, ...] of int8; filters [f, c / groups, ...] are a constant of int8."""

    x: Tensor
    scale: float
    zero: int
    filters: Tensor
    scales: Tensor
    bias: Tensor | None
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.filters.shape[2:]

    @property
    def channels(self) -> int:
        return self.filters.shape[1]

    @property
    def depth(self) -> int:
        """Codes of a filter, channels in fours."""
        return -(-self.channels // 4) * 4 * math.prod(self.kernel)


def convolve(g: Recorder, conv: CodesConv, out: Output) -> None:
    """Chooses between integers and floats; `out` is float."""
    g.require(
        conv.filters.is_constant, "weight must be a constant", "a computed tensor"
    )
    g.require(-128 <= conv.zero <= 127, "a zero point must have 8 bits", conv.zero)
    names = ["words"] if _fits(g, conv, out) else []
    if not names or conv.channels * math.prod(conv.kernel) <= EXACT:
        names.insert(0 if g.caps.is_cpu else len(names), "numbers")
    pixels = out.numel // max(out.shape[1], 1)
    shape = (conv.groups, out.shape[1], conv.depth, pixels)
    form = g.choose("conv_codes", shape, names, out.dtype)
    if form == "words":
        _words(g, conv, out)
    else:
        _numbers(g, conv, out)


def _fits(g: Recorder, conv: CodesConv, out: Output) -> bool:
    """Whether there is enough for words, and not too much for a buffer."""
    pixels = -(-max(out.bound, out.numel) // max(out.shape[1], 1)) + 3
    limit = min(g.caps.max_binding, g.caps.max_buffer)
    small = conv.groups * conv.depth * pixels <= limit and conv.depth <= MOST_CODES
    return small and conv.channels >= 4 and out.numel > 0 and out.rank <= 4


def _words(g: Recorder, conv: CodesConv, out: Output) -> None:
    filters = out.shape[1] // conv.groups
    pixels = out.numel // out.shape[1]
    layout = Layout(pixels, conv.depth, 8, conv.depth)
    columns = _columns(g, conv, layout, out)
    weights = g.prepack(
        conv.filters,
        "filter_words",
        (conv.groups * filters, layout.words),
        DType.INT32,
    )
    inputs = {"x": weights, "w": columns, "s": conv.scales}
    bias = "0.0"
    if conv.bias is not None:
        inputs["b"] = conv.bias
        bias = "get_b(row)"
    # The zero point is the columns', not the rows', whose sums it meets.
    code = f"""
{weight_reader(8)}{word_reader("row * p.words + (k >> 2u)")}
fn row_zero(row: i32) -> i32 {{ return 0; }}
fn fold(g: i32, column: i32, dots: vec4<i32>, sum: i32, zero: i32) -> vec4<f32> {{
  return vec4<f32>(dots - p.zero * sum);
}}
fn finish(row: i32, n: i32, v: f32) {{
  let image = n / p.pixels;
  put_y((image * p.filters + row) * p.pixels + n - image * p.pixels,
        v * (p.scale * get_s(row)) + {bias});
}}
"""
    params: dict[str, Param] = {
        "filters": out.shape[1],
        "pixels": math.prod(out.shape[2:]),
        "zero": conv.zero,
        "scale": conv.scale,
    }
    supply = Supply(code, inputs, params, {"w"}, conv.zero != 0)
    product(g, supply, layout, filters, conv.groups, out)


def _columns(g: Recorder, conv: CodesConv, layout: Layout, out: Output) -> Tensor:
    """The words under every tap, [group, tap, four, pixel]."""
    x, taps = conv.x, math.prod(conv.kernel)
    lead = 4 - x.rank  # one for a line of pixels, which is an image of height 1
    for _ in range(lead):
        x = x.unsqueeze(2)
    columns = g.temp((conv.groups * layout.words, layout.padded), DType.INT32)
    g.dispatch(
        "im2col_words",
        {"x": x},
        {"y": columns},
        {
            "padded": layout.padded,
            "pixels": layout.rows,
            "channels": conv.channels,
            "fours": -(-conv.channels // 4),
            "zero": conv.zero,
            "kernel": [1] * lead + list(conv.kernel),
            "size": x.shape[2:],
            "out": [1] * lead + list(out.shape[2:]),
            "stride": [1] * lead + conv.stride,
            "padding": [0] * lead + conv.padding,
            "dilation": [1] * lead + conv.dilation,
            "x": (x.offset, *x.strides),
        },
        invocations=conv.groups * taps * layout.padded,
        raw=["x"],
    )
    return columns


def _numbers(g: Recorder, conv: CodesConv, out: Output) -> None:
    """The same in floats, of integer values, which are scaled as they are stored."""

    def shifted() -> Tensor:
        y = g.temp(conv.x.shape, DType.FLOAT32)
        args: list[ir.Arg] = [ir.Ref(0), conv.zero, 1]
        step = ir.Step("aten.sub.Tensor", args, DType.FLOAT32)
        g.pointwise([step], {0: conv.x}, y)
        return y

    x = g.once(f"less {conv.zero}", conv.x, shifted)
    y = scaled(g, conv.scale, conv.scales, conv.bias, out)
    geometry = (conv.stride, conv.padding, conv.dilation, False, [0, 0], conv.groups)
    g.run(
        "aten.convolution.default", x, as_floats(conv.filters), None, *geometry, out=y
    )


def as_floats(codes: Tensor) -> Tensor:
    """A constant of integers as floats of the same values."""
    return replace(codes, dtype=DType.FLOAT32, storage=Storage.F32)


def scaled(
    g: Recorder, scale: float, scales: Tensor, bias: Tensor | None, out: Output
) -> Output:
    """`out` for a kernel that computes integer sums: stored times scales plus bias."""
    column = (out.shape[1], *[1] * (out.rank - 2))
    operands = {-1: g.reshape(scales, column)}
    steps: list[tuple[str, list[ir.Arg]]] = [
        ("aten.mul.Tensor", [ir.Ref(-1)]),
        ("aten.mul.Tensor", [scale]),
    ]
    if bias is not None:
        operands[-2] = g.reshape(bias, column)
        steps.append(("aten.add.Tensor", [ir.Ref(-2), 1]))
    return stored_after(out, steps, operands)


def stored_after(
    out: Output,
    steps: Sequence[tuple[str, Sequence[ir.Arg]]],
    operands: Mapping[int, Tensor],
    final: DType | None = None,
) -> Output:
    """`out` for a kernel that computes floats, with steps that it applies first.

    A step is an op and its arguments after the first, which is the value so far;
    `operands` are what they refer to.
    """
    made = [
        ir.Step(name, [ir.Local(number - 1), *args], DType.FLOAT32)
        for number, (name, args) in enumerate(steps)
    ]
    if final is not None:
        made[-1] = replace(made[-1], dtype=final)
    if out.epilogue is not None:
        made += [
            replace(step, args=[_moved(arg, len(steps)) for arg in step.args])
            for step in out.epilogue.steps
        ]
        operands = {**operands, **out.epilogue.operands}
    epilogue = Epilogue(tuple(made), operands, out.stored)
    return replace(out, dtype=DType.FLOAT32, epilogue=epilogue)


def _moved(arg: ir.Arg, by: int) -> ir.Arg:
    if isinstance(arg, list):
        return [_moved(item, by) for item in arg]
    return ir.Local(arg.step + by) if isinstance(arg, ir.Local) else arg


@op("webgpu.conv_codes", fusible=True)
def conv_codes(
    g: Recorder,
    x: Tensor,
    scale: float,
    zero: int,
    weights: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    *,
    out: Output,
) -> None:
    """aten.convolution of an int8 tensor and int8 weights, each filter with a scale."""
    geometry = (stride, padding, dilation, groups)
    convolve(g, CodesConv(x, scale, zero, weights, scales, bias, *geometry), out)
