"""Convolutions of int8 tensors with int8 weights, in exact integer sums.

Enters: an int8 input with one scale and zero point, weights with a scale for every
filter. Leaves: the float result. On GPUs in strips (integer_strips.py) where these
pay; else in two dispatches, im2col into words of four channels, and a product of the
filters, as rows, with those words (integer_matmul.py). Where few enough products are
summed, float sums of integers are exact too: then the float kernels are used if they
are faster, and for a convolution with few channels in a group (depthwise), whose words
would be mostly empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ... import ir
from ...ir.dtypes import DType, Storage
from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.caps import Caps
from ...plan.output import Epilogue
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param, load
from ..conv.geometry import check_windows
from .code_words import Taps, words_of_columns
from .codes_conv import CodesConv
from .integer_matmul import (
    MOST_CODES,
    Supply,
    product,
    split_product,
    weight_reader,
    x_reader,
)
from .integer_strips import (
    convolve_float_strips,
    convolve_strips,
    fits_float_strips,
    fits_strips,
)

op = partial(registry.op, accuracy=TOLERANT)

# So many products of 9 and 8 bits have a sum that a float32 holds exactly.
EXACT = 512


def convolve(g: Recorder, conv: CodesConv, out: Output) -> None:
    """Dispatches integer or float kernels; `out` is float."""
    g.require(
        conv.filters.is_constant, "weight must be a constant", "a computed tensor"
    )
    g.require(-128 <= conv.zero <= 127, "a zero point must have 8 bits", conv.zero)
    check_windows(
        g,
        len(conv.kernel),
        stride=conv.stride,
        padding=conv.padding,
        dilation=conv.dilation,
    )
    names = ["words"] if _fits(g, conv, out) else []
    if fits_strips(g, conv, out):
        names.insert(0, "strips")
    if not names or conv.channels * math.prod(conv.kernel) <= EXACT:
        names.insert(0 if g.caps.is_cpu else len(names), "numbers")
    pixels = out.numel // max(out.shape[1], 1)
    shape = (conv.groups, out.shape[1], conv.depth, pixels)
    form = g.choose("conv_codes", shape, names, out.dtype)
    if form == "strips":
        convolve_strips(g, conv, out)
    elif form == "words":
        _by_integers(g, conv, out)
    elif fits_float_strips(g, conv, out):
        convolve_float_strips(g, conv, out)
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
    by_tap = g.caps.is_cpu and g.caps.packs
    make = _columns if by_tap else _columns_of_gpus
    columns = make(g, conv, layout, out)
    weights = g.prepack(
        conv.filters,
        # On GPUs as in strips: a file then holds one layout for both.
        "filter_words" if by_tap else "filter_taps",
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


def _columns_of_gpus(
    g: Recorder, conv: CodesConv, layout: Layout, out: Output
) -> Tensor:
    """im2col as words, [group, four channels, tap, pixel]."""
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
        "aten.convolution.default",
        x,
        as_floats(g.caps, conv.filters),
        None,
        *geometry,
        out=y,
    )


def as_floats(caps: Caps, codes: Tensor) -> Tensor:
    """A constant of integers as floats of the same values. Kernels of GPUs convert what
    they load, so that a file holds the integers; CPU adapters would take longer."""
    storage = Storage.F32 if caps.is_cpu and caps.packs else codes.storage
    return replace(codes, dtype=DType.FLOAT32, storage=storage)


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
