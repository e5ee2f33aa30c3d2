"""Static int8: the q8ta ops, which take and give int8 with one scale per tensor.

The sums are of integers (integer_conv.py, integer_linear.py); scales, bias, activation
and quantization are the epilogue of the kernels that compute them.
"""

from __future__ import annotations

import math
from functools import partial

from ... import ir
from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import STEP, TOLERANT
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from .codes_conv import CodesConv
from .integer_conv import as_floats, convolve, scaled, stored_after
from .integer_linear import Quantized, quantized_input, quantized_linear, static_input
from .integer_matmul import Weight
from .packed_linear import group_scales

op = partial(registry.op, accuracy=STEP)

_QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


def _requantized(
    g: Recorder, activation: str, scale: float, zero: int, out: Output
) -> Output:
    """`out`, of int8, for a kernel that computes floats: its epilogue quantizes."""
    g.require(
        activation in ("none", "relu"), "activation must be none or relu", activation
    )
    steps: list[tuple[str, list[ir.Arg]]] = []
    if activation == "relu":
        steps.append(("aten.relu.default", []))
    steps.append((_QUANTIZE, [scale, zero, -128, 127]))
    return stored_after(out, steps, {}, out.dtype)


def _rows(x: Tensor | None, count: int) -> Tensor | None:
    """The first `count` rows: other backends pad constants to a multiple of 4."""
    return None if x is None else x.slice(0, 0, count)


@op(
    "et_vk.q8ta_conv2d.default",
    "et_vk.q8ta_conv2d_pw.default",
    "et_vk.q8ta_conv2d_dw.default",
)
def q8ta_conv2d(  # noqa: PLR0913  the op's schema has as many
    g: Recorder,
    x: Tensor,
    scale: float,
    zero: int,
    weights: Tensor,
    sums: Tensor,
    weight_scales: Tensor,
    out_scale: float,
    out_zero: int,
    bias: Tensor | None,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    *,
    out: Output,
) -> None:
    g.require(x.rank == 4, "the input must have 4 dimensions", x.rank)
    if weights.rank == 3:  # a filter per channel, [high, wide, channel]
        filters = weights.permute((2, 0, 1)).unsqueeze(1)
    else:
        filters = _as_filters(weights, x.shape[1] // groups, kernel)
    scales, shift = _rows(weight_scales, out.shape[1]), _rows(bias, out.shape[1])
    assert scales is not None
    geometry = (stride, padding, dilation, groups)
    y = _requantized(g, activation, out_scale, out_zero, out)
    convolve(g, CodesConv(x, scale, zero, filters, scales, shift, *geometry), y)


def _as_filters(weights: Tensor, channels: int, kernel: list[int]) -> Tensor:
    """Rows of [channels, high, wide], perhaps padded, as [row, channel, high, wide]."""
    high, wide = kernel
    strides = (weights.strides[0], high * wide, wide, 1)
    return weights.with_view((weights.shape[0], channels, high, wide), strides)


@op("et_vk.q8ta_conv2d_transposed.default")
def q8ta_conv2d_transposed(  # noqa: PLR0913  the op's schema has as many
    g: Recorder,
    x: Tensor,
    scale: float,
    zero: int,
    weights: Tensor,
    sums: Tensor,
    weight_scales: Tensor,
    out_scale: float,
    out_zero: int,
    bias: Tensor | None,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    *,
    out: Output,
) -> None:
    """In floats: with a stride of s, one in s^2 taps of a filter meets an input."""
    g.require(x.rank == 4, "the input must have 4 dimensions", x.rank)
    g.require(weights.is_constant, "weight must be a constant", "a computed tensor")
    filters, channels = weights.shape[0] // groups, x.shape[1] // groups
    rows = _as_filters(weights, channels, kernel)
    split = rows.with_view(
        (groups, filters, *rows.shape[1:]),
        (rows.strides[0] * filters, *rows.strides),
    )
    turned = g.reshape(
        as_floats(g.caps, split.transpose(1, 2)), (groups * channels, filters, *kernel)
    )
    scales, shift = _rows(weight_scales, out.shape[1]), _rows(bias, out.shape[1])
    assert scales is not None
    y = scaled(
        g, 1.0, scales, shift, _requantized(g, activation, out_scale, out_zero, out)
    )
    g.run(
        "aten.convolution.default",
        static_input(g, x, scale, zero).dequantized(),
        turned,
        None,
        stride,
        padding,
        dilation,
        True,
        output_padding,
        groups,
        out=y,
    )


def _linear(
    g: Recorder,
    x: Quantized,
    weights: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    out: Output,
) -> None:
    """A linear layer with int8 weights, a scale for each row."""
    g.require(weights.is_constant, "weight must be a constant", "a computed tensor")
    layout = Layout(out.shape[-1], x.depth, 8, x.depth)
    view = weights.slice(0, 0, layout.rows).slice(1, 0, x.depth)
    args = (8, x.depth)

    def sums() -> Tensor:
        shape = (layout.groups, layout.padded)
        return g.prepack(view, "code_sums", shape, DType.INT32, args)

    weight = Weight(
        g.prepack(view, "codes_to_words", layout.shape, DType.INT32, args),
        group_scales(g, scales.slice(0, 0, layout.rows), layout, False),
        None,
        sums,
        layout,
    )
    shift = _rows(bias, layout.rows)
    shift = None if shift is None else g.contiguous(shift)
    quantized_linear(g, x, weight, shift, out)


@op("et_vk.linear_q8ta_q8csw.default", fusible=True, accuracy=TOLERANT)
def linear_q8ta_q8csw(
    g: Recorder,
    x: Tensor,
    scale: float,
    zero: int,
    weights: Tensor,
    sums: Tensor,
    weight_scales: Tensor,
    bias: Tensor | None = None,
    *,
    out: Output,
) -> None:
    """The input is quantized to int8 by its scale and zero point; in files made for
    Vulkan it is already."""
    made = static_input if x.dtype is DType.INT8 else quantized_input
    _linear(g, made(g, x, scale, zero), weights, weight_scales, bias, out)


@op("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default")
def q8ta_linear(
    g: Recorder,
    x: Tensor,
    scale: float,
    zero: int,
    weights: Tensor,
    sums: Tensor,
    weight_scales: Tensor,
    out_scale: float,
    out_zero: int,
    bias: Tensor | None = None,
    activation: str = "none",
    *,
    out: Output,
) -> None:
    y = _requantized(g, activation, out_scale, out_zero, out)
    _linear(g, static_input(g, x, scale, zero), weights, weight_scales, bias, y)


@op("et_vk.q8ta_add.default", fusible=True)
def q8ta_add(
    g: Recorder,
    a: Tensor,
    b: Tensor,
    a_scale: float,
    a_zero: int,
    b_scale: float,
    b_zero: int,
    out_scale: float,
    out_zero: int,
    alpha: float,
    *,
    out: Output,
) -> None:
    steps = [
        ir.Step(_DEQUANTIZE, [ir.Ref(0), a_scale, a_zero], DType.FLOAT32),
        ir.Step(_DEQUANTIZE, [ir.Ref(1), b_scale, b_zero], DType.FLOAT32),
        ir.Step("aten.add.Tensor", [ir.Local(0), ir.Local(1), alpha], DType.FLOAT32),
        ir.Step(_QUANTIZE, [ir.Local(2), out_scale, out_zero, -128, 127], out.dtype),
    ]
    g.pointwise(steps, {0: a, 1: b}, out)


@op("et_vk.q8ta_relu.default", fusible=True)
def q8ta_relu(
    g: Recorder,
    x: Tensor,
    scale: float,
    zero: int,
    out_scale: float,
    out_zero: int,
    *,
    out: Output,
) -> None:
    steps = [
        ir.Step(_DEQUANTIZE, [ir.Ref(0), scale, zero], DType.FLOAT32),
        ir.Step("aten.relu.default", [ir.Local(0)], DType.FLOAT32),
        ir.Step(_QUANTIZE, [ir.Local(1), out_scale, out_zero, -128, 127], out.dtype),
    ]
    g.pointwise(steps, {0: x}, out)


@op("et_vk.q8ta_pixel_shuffle.default")
def q8ta_pixel_shuffle(
    g: Recorder,
    x: Tensor,
    scale: float,
    zero: int,
    out_inverse: float,
    out_zero: int,
    factor: int,
    *,
    out: Output,
) -> None:
    lead, (channels, high, wide) = x.shape[:-3], x.shape[-3:]
    split = (*lead, channels // factor**2, factor, factor, high, wide)
    rank = len(lead)
    order = [*range(rank + 1), rank + 3, rank + 1, rank + 4, rank + 2]
    moved = g.reshape(g.reshape(x, split).permute(order), out.shape)
    g.require(
        math.isfinite(out_inverse) and out_inverse != 0,
        "the inverse of a scale must be finite and not 0",
        out_inverse,
    )
    steps = [
        ir.Step(_DEQUANTIZE, [ir.Ref(0), scale, zero], DType.FLOAT32),
        ir.Step(
            _QUANTIZE, [ir.Local(0), 1.0 / out_inverse, out_zero, -128, 127], out.dtype
        ),
    ]
    g.pointwise(steps, {0: moved}, out)
