"""Static int8: the q8ta ops, which take and give int8 with one scale per tensor.

Inputs are dequantized, the float kernels do the sums on integer-valued weights
(exact up to 2^24), and one last kernel applies the weights' scales, the bias, the
activation and the rounding.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from .. import ir
from ..dtypes import DType
from ..graph import Graph, Tensor
from ..packed import Layout
from ..packing import packing
from ..registry import op
from .quantized_linear import group_scales, packed_linear

_QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


@packing("conv_codes")
def _conv_codes(
    data: np.ndarray, groups: int, channels: int, high: int, wide: int, transposed: int
) -> np.ndarray:
    """Rows of [channels, high, wide], perhaps padded, as a convolution's weight."""
    rows = data.shape[0]
    codes = data[:, : channels * high * wide].astype(np.float32)
    codes = codes.reshape(rows, channels, high, wide)
    if transposed:
        codes = codes.reshape(groups, rows // groups, channels, high, wide)
        codes = codes.transpose(0, 2, 1, 3, 4)
        codes = codes.reshape(groups * channels, rows // groups, high, wide)
    return np.ascontiguousarray(codes)


@packing("depthwise_codes")
def _depthwise_codes(data: np.ndarray) -> np.ndarray:
    """[high, wide, channels] as [channels, 1, high, wide]."""
    return np.ascontiguousarray(data.transpose(2, 0, 1)[:, None]).astype(np.float32)


def _dequantized(g: Graph, x: Tensor, scale: float, zero: int) -> Tensor:
    y = g.temp(x.shape, DType.FLOAT32)
    step = ir.Step(_DEQUANTIZE, [ir.Ref(0), scale, zero], DType.FLOAT32)
    g.pointwise([step], {0: x}, y)
    return y


def _finish(
    g: Graph,
    x: Tensor,
    scales: Tensor | None,
    bias: Tensor | None,
    axis: int,
    activation: str,
    out_scale: float,
    out_zero: int,
    out: Tensor,
) -> None:
    """quantize(activation(x * scales + bias))"""
    g.require(
        activation in ("none", "relu"), "activation must be none or relu", activation
    )
    shape = [extent if d == axis else 1 for d, extent in enumerate(x.shape)]
    operands, steps = {0: x}, []
    value: ir.Arg = ir.Ref(0)

    def then(name: str, *args: ir.Arg) -> ir.Arg:
        steps.append(ir.Step(name, [value, *args], DType.FLOAT32))
        return ir.Local(len(steps) - 1)

    for name, tensor in (("aten.mul.Tensor", scales), ("aten.add.Tensor", bias)):
        if tensor is not None:
            # Other backends pad these to a multiple of 4.
            view = g.reshape(tensor.slice(0, 0, x.shape[axis]), shape)
            operands[len(operands)] = view
            rest = [1] if name == "aten.add.Tensor" else []
            value = then(name, ir.Ref(len(operands) - 1), *rest)
    if activation == "relu":
        value = then("aten.relu.default")
    args: list[ir.Arg] = [value, out_scale, out_zero, -128, 127]
    g.pointwise([*steps, ir.Step(_QUANTIZE, args, out.dtype)], operands, out)


def _convolution(
    g: Graph,
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    geometry: tuple[list[int], list[int], list[int], list[int], int],
    transposed: bool,
    activation: str,
    out_scale: float,
    out_zero: int,
    out: Tensor,
) -> None:
    stride, padding, dilation, output_padding, groups = geometry
    y = g.temp(out.shape, DType.FLOAT32)
    # The weight is packed already: to the convolution it is a tensor like any.
    g.run(
        "aten.convolution.default",
        x,
        replace(weight, source=None),
        None,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        out=y,
    )
    _finish(g, y, scales, bias, 1, activation, out_scale, out_zero, out)


@op(
    "et_vk.q8ta_conv2d.default",
    "et_vk.q8ta_conv2d_pw.default",
    "et_vk.q8ta_conv2d_dw.default",
)
def q8ta_conv2d(
    g: Graph,
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
    out: Tensor,
) -> None:
    g.require(weights.is_constant, "weight must be a constant", "a computed tensor")
    channels = x.shape[1] // groups
    if weights.rank == 3:  # a filter per channel, [high, wide, channel]
        shape = (weights.shape[2], 1, *weights.shape[:2])
        weight = g.prepack(weights, "depthwise_codes", shape, DType.FLOAT32)
    else:
        shape = (weights.shape[0], channels, *kernel)
        packing = (groups, channels, *kernel, 0)
        weight = g.prepack(weights, "conv_codes", shape, DType.FLOAT32, packing)
    _convolution(
        g,
        _dequantized(g, x, scale, zero),
        weight,
        weight_scales,
        bias,
        (stride, padding, dilation, [0, 0], groups),
        False,
        activation,
        out_scale,
        out_zero,
        out,
    )


@op("et_vk.q8ta_conv2d_transposed.default")
def q8ta_conv2d_transposed(
    g: Graph,
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
    out: Tensor,
) -> None:
    g.require(weights.is_constant, "weight must be a constant", "a computed tensor")
    channels = x.shape[1] // groups
    shape = (x.shape[1], weights.shape[0] // groups, *kernel)
    weight = g.prepack(
        weights, "conv_codes", shape, DType.FLOAT32, (groups, channels, *kernel, 1)
    )
    _convolution(
        g,
        _dequantized(g, x, scale, zero),
        weight,
        weight_scales,
        bias,
        (stride, padding, dilation, output_padding, groups),
        True,
        activation,
        out_scale,
        out_zero,
        out,
    )


def _linear(
    g: Graph,
    x: Tensor,
    weights: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    out: Tensor,
) -> None:
    """A float input and int8 rows with a scale each."""
    g.require(weights.is_constant, "weight must be a constant", "a computed tensor")
    depth = x.shape[-1]
    layout = Layout(out.shape[-1], depth, 8, depth)
    view = weights.slice(0, 0, layout.rows).slice(1, 0, depth)
    words = g.prepack(view, "codes_to_words", layout.shape, DType.INT32, (8, depth))
    packed = group_scales(g, scales.slice(0, 0, layout.rows), layout, False)
    bias = None if bias is None else g.contiguous(bias.slice(0, 0, layout.rows))
    packed_linear(g, x, words, packed, None, layout, bias, out)


@op("et_vk.linear_q8ta_q8csw.default", fusible=True)
def linear_q8ta_q8csw(
    g: Graph,
    x: Tensor,
    scale: float,
    zero: int,
    weights: Tensor,
    sums: Tensor,
    weight_scales: Tensor,
    bias: Tensor | None = None,
    *,
    out: Tensor,
) -> None:
    """The input is float and is rounded to the int8 that its scale gives."""
    rounded = g.temp(x.shape, x.dtype)
    args: list[ir.Arg] = [ir.Ref(0), scale, zero, -128, 127]
    g.pointwise([ir.Step("webgpu.fake_quantize", args, x.dtype)], {0: x}, rounded)
    _linear(g, rounded, weights, weight_scales, bias, out)


@op("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default")
def q8ta_linear(
    g: Graph,
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
    out: Tensor,
) -> None:
    y = g.temp(out.shape, DType.FLOAT32)
    _linear(g, _dequantized(g, x, scale, zero), weights, weight_scales, bias, y)
    _finish(g, y, None, None, 0, activation, out_scale, out_zero, out)


@op("et_vk.q8ta_add.default", fusible=True)
def q8ta_add(
    g: Graph,
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
    out: Tensor,
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
    g: Graph,
    x: Tensor,
    scale: float,
    zero: int,
    out_scale: float,
    out_zero: int,
    *,
    out: Tensor,
) -> None:
    steps = [
        ir.Step(_DEQUANTIZE, [ir.Ref(0), scale, zero], DType.FLOAT32),
        ir.Step("aten.relu.default", [ir.Local(0)], DType.FLOAT32),
        ir.Step(_QUANTIZE, [ir.Local(1), out_scale, out_zero, -128, 127], out.dtype),
    ]
    g.pointwise(steps, {0: x}, out)


@op("et_vk.q8ta_pixel_shuffle.default")
def q8ta_pixel_shuffle(
    g: Graph,
    x: Tensor,
    scale: float,
    zero: int,
    out_inverse: float,
    out_zero: int,
    factor: int,
    *,
    out: Tensor,
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
