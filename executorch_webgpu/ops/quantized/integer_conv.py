"""Convolutions of int8 tensors with int8 weights, in exact integer sums.

Enters: an int8 input with one scale and zero point, weights with a scale for every
filter. Leaves: the float result. Two dispatches: on GPUs, packing into words of four
channels, and strips of outputs from those (conv/conv_strip.py); else im2col into such
words, and a product of the filters, as rows, with them (`codes_product`). Where few
enough products are summed, float sums of integers are exact too: then the float kernels
are used if they are faster, and for a convolution with fewer than four channels in a
group (depthwise), whose words would be mostly empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ... import ir
from ...ir.dtypes import DType, Storage
from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.host_packing import packing
from ...plan.output import Epilogue
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param, load
from ..conv.conv_strip import Terms, fills_workgroups, fits_strip, sum_strips
from ..conv.geometry import Convolution, Window, bias_code
from .code_words import Taps, words_of_columns, words_of_image
from .integer_matmul import (
    MOST_CODES,
    Supply,
    product,
    split_product,
    weight_reader,
    x_reader,
)

op = partial(registry.op, accuracy=TOLERANT)

# So many products of 9 and 8 bits have a sum that a float32 holds exactly.
EXACT = 512


@packing("filter_words")
def _filter_words(data: np.ndarray) -> np.ndarray:
    """[filter, channel, y, x] as words [filter, (y, x), four channels]."""
    filters, channels = data.shape[:2]
    codes = data.reshape(filters, channels, -1)
    padded = np.zeros((filters, codes.shape[2], -(-channels // 4) * 4), np.int8)
    padded[:, :, :channels] = codes.transpose(0, 2, 1)
    return padded.view(np.int32).reshape(filters, -1)


@packing("filter_taps")
def _filter_taps(data: np.ndarray) -> np.ndarray:
    """[filter, channel, y, x] as words [filter, four channels, (y, x)]."""
    filters, channels = data.shape[:2]
    words = _filter_words(data).reshape(filters, -1, -(-channels // 4))
    return np.ascontiguousarray(words.transpose(0, 2, 1))


@packing("filter_sums")
def _filter_sums(data: np.ndarray) -> np.ndarray:
    """The sum of each filter."""
    sums: np.ndarray = data.reshape(data.shape[0], -1).sum(1, dtype=np.int32)
    return sums


@dataclass(frozen=True)
class CodesConv:
    """x[n, c, ...] of int8, with constant filters[f, c / groups, ...] of int8."""

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
        """Elements of a filter, its channels padded to fours."""
        return -(-self.channels // 4) * 4 * math.prod(self.kernel)


def convolve(g: Recorder, conv: CodesConv, out: Output) -> None:
    """Dispatches integer or float kernels; `out` is float."""
    g.require(
        conv.filters.is_constant, "weight must be a constant", "a computed tensor"
    )
    g.require(-128 <= conv.zero <= 127, "a zero point must have 8 bits", conv.zero)
    names = ["words"] if _fits(g, conv, out) else []
    if _fits_strips(g, conv, out):
        names.insert(0, "strips")
    if not names or conv.channels * math.prod(conv.kernel) <= EXACT:
        names.insert(0 if g.caps.is_cpu else len(names), "numbers")
    pixels = out.numel // max(out.shape[1], 1)
    shape = (conv.groups, out.shape[1], conv.depth, pixels)
    form = g.choose("conv_codes", shape, names, out.dtype)
    if form == "strips":
        _by_strips(g, conv, out)
    elif form == "words":
        _by_integers(g, conv, out)
    else:
        _by_floats(g, conv, out)


def _fits(g: Recorder, conv: CodesConv, out: Output) -> bool:
    """Whether words of four channels pay, and the im2col fits a binding."""
    pixels = -(-max(out.bound, out.numel) // max(out.shape[1], 1)) + 3
    limit = min(g.caps.max_binding, g.caps.max_buffer)
    small = conv.groups * conv.depth * pixels <= limit and conv.depth <= MOST_CODES
    return small and conv.channels >= 4 and out.numel > 0 and out.rank <= 4


def _by_integers(g: Recorder, conv: CodesConv, out: Output) -> None:
    """im2col of the input, and a product of words of codes."""
    filters = out.shape[1] // conv.groups
    pixels = out.numel // out.shape[1]
    layout = Layout(pixels, conv.depth, 8, conv.depth)
    make = _columns if g.caps.is_cpu else _columns_of_gpus
    columns = make(g, conv, layout, out)
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
    # The columns have the zero point, so that it is multiplied by sums of the rows.
    code = "\n".join(
        [
            weight_reader(8),
            x_reader("bitcast<u32>(get_x(row * p.words + (k >> 2u)))"),
            f"fn bias_of(row: i32) -> f32 {{ return {bias}; }}",
            load("codes_conv"),
        ]
    )
    params: dict[str, Param] = {
        "filters": out.shape[1],
        "pixels": math.prod(out.shape[2:]),
        "zero": conv.zero,
        "scale": conv.scale,
    }
    supply = Supply(code, inputs, params, {"w"}, conv.zero != 0)
    if g.caps.is_cpu or conv.groups > 1:
        product(g, supply, layout, filters, conv.groups, out)
    else:
        split_product(g, supply, layout, filters, out)


def _fits_strips(g: Recorder, conv: CodesConv, out: Output) -> bool:
    """Whether conv_strip can compute the convolution, and well: with one tap, or with
    weights that differ between invocations, it loads more than it multiplies."""
    if g.caps.is_cpu or out.numel == 0 or out.rank > 4 or conv.channels < 3:
        return False
    whole = _three_dimensional(g, conv, out)
    taps = math.prod(conv.kernel)
    exact = conv.depth <= MOST_CODES
    return exact and taps > 1 and fits_strip(whole) and fills_workgroups(whole)


def _three_dimensional(g: Recorder, conv: CodesConv, out: Output) -> Convolution:
    """The convolution as float kernels see it, of elements, not words."""
    x, lead = conv.x, 5 - conv.x.rank
    for _ in range(lead):
        x = x.unsqueeze(2)
    filters = (conv.groups, out.shape[1] // conv.groups, conv.channels)
    ones = [1] * lead
    kernel, outs = (*ones, *conv.kernel), (*ones, *out.shape[2:])
    settings = (conv.stride, conv.padding, conv.dilation)
    stride, pad, dilation = (
        [default] * lead + given for given, default in zip(settings, (1, 0, 1))
    )
    z, y, x_ = (
        Window(*sizes)
        for sizes in zip(kernel, stride, pad, dilation, x.shape[2:], outs, outs)
    )
    weight = g.reshape(conv.filters, (*filters, *kernel))
    return Convolution(x, weight, None, (z, y, x_))


_WORDS = """alias E = u32;
alias S = i32;
fn pixel(at: i32) -> u32 { return bitcast<u32>(get_x(at)); }
fn outside() -> u32 { return bitcast<u32>(p.outside); }
fn weight(at: i32) -> u32 { return bitcast<u32>(get_w(at)); }
fn products(w: u32, v: vec4<u32>) -> vec4<i32> {
  return vec4<i32>(dot4I8Packed(w, v.x), dot4I8Packed(w, v.y),
                   dot4I8Packed(w, v.z), dot4I8Packed(w, v.w));
}
fn finish(channel: i32, v: vec4<i32>) -> vec4<f32> {
  let exact = vec4<f32>(v - p.zero * get_sums(channel));
  return exact * (p.scale * get_s(channel)) + bias_of(channel);
}
"""


def _by_strips(g: Recorder, conv: CodesConv, out: Output) -> None:
    """Words of four channels, and strips of their products."""
    whole = _three_dimensional(g, conv, out)
    fours = -(-conv.channels // 4)
    shape = (*whole.weight.shape[:2], fours, *whole.weight.shape[3:])
    weights = g.prepack(conv.filters, "filter_taps", shape, DType.INT32)
    sums = g.prepack(conv.filters, "filter_sums", (out.shape[1],), DType.INT32)
    image, _, _, high, wide = whole.x.shape
    flat = g.reshape(whole.x, (*whole.x.shape[:2], high, wide))
    words = words_of_image(g, flat, conv.groups)
    words = g.reshape(words, (image, conv.groups * fours, 1, high, wide))
    bias, inputs = bias_code(replace(whole, bias=conv.bias))
    zero = conv.zero & 255
    terms = Terms(
        _WORDS + bias,
        {"w": weights, "sums": sums, "s": conv.scales, **inputs},
        {
            "zero": conv.zero,
            "scale": conv.scale,
            "outside": int(np.uint32(zero * 0x01010101).astype(np.int32)),
        },
    )
    sum_strips(g, replace(whole, x=words, weight=weights), terms, out)


def _columns_of_gpus(
    g: Recorder, conv: CodesConv, layout: Layout, out: Output
) -> Tensor:
    """im2col as words, [group, tap, four channels, pixel]."""
    x, lead = conv.x, 4 - conv.x.rank  # one for a line, which is an image of height 1
    for _ in range(lead):
        x = x.unsqueeze(2)
    ones = [1] * lead
    taps = Taps(
        (*ones, *conv.kernel),
        ones + conv.stride,
        [0] * lead + conv.padding,
        ones + conv.dilation,
    )
    high, wide = (*ones, *out.shape[2:])
    zero, padded = conv.zero, layout.padded
    return words_of_columns(g, x, conv.groups, taps, (high, wide), zero, padded)


def _columns(g: Recorder, conv: CodesConv, layout: Layout, out: Output) -> Tensor:
    """im2col as words, [group, tap, four channels, pixel]."""
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


def _by_floats(g: Recorder, conv: CodesConv, out: Output) -> None:
    """Float kernels on integer values; the scales are in the epilogue."""

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
    """`out` for a kernel of integer values: an epilogue scales and adds the bias."""
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
    """`out` for a kernel that computes floats, with steps in front of its epilogue.

    A step is an op and its arguments after the first, which is the value so far;
    `operands` are what they refer to. `final` is the type of the last one's result.
    """
    made = [
        ir.Step(name, [ir.Local(number - 1), *args], DType.FLOAT32)
        for number, (name, args) in enumerate(steps)
    ]
    if final is not None:
        made[-1] = replace(made[-1], dtype=final)

    def moved(arg: ir.Arg) -> ir.Arg:
        return ir.Local(arg.step + len(steps)) if isinstance(arg, ir.Local) else arg

    if out.epilogue is not None:
        made += [step.map_args(moved) for step in out.epilogue.steps]
        operands = {**operands, **out.epilogue.operands}
    epilogue = Epilogue(tuple(made), operands, out.stored)
    return replace(out, dtype=DType.FLOAT32, epilogue=epilogue)


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
    """aten.convolution of an int8 tensor with int8 filters, a scale for each."""
    geometry = (stride, padding, dilation, groups)
    convolve(g, CodesConv(x, scale, zero, weights, scales, bias, *geometry), out)
