"""Convolutions of int8 tensors on GPUs, in strips of outputs (conv/conv_strip.py).

Enters: an int8 input, and int8 filters. Leaves: the float result, of exact integer sums
of words of four channels, the input packed once for all that read it; or, of few
channels, of float sums of the integers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...ir.dtypes import DType
from ...plan.recorder import Output, Recorder
from ..conv.conv_strip import (
    FLOATS,
    Terms,
    fills_workgroups,
    fits_strip,
    sum_strips,
)
from ..conv.geometry import Convolution, Window, bias_code
from .code_words import words_of_image
from .codes_conv import CodesConv
from .integer_matmul import MOST_CODES


def fits_float_strips(g: Recorder, conv: CodesConv, out: Output) -> bool:
    """Whether conv_strip can compute the convolution, and well, one channel after the
    other."""
    if g.caps.is_cpu or out.numel == 0 or out.rank > 4 or conv.channels > 3:
        return False
    return fits_strip(_three_dimensional(g, conv, out))


def fits_strips(g: Recorder, conv: CodesConv, out: Output) -> bool:
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


_NUMBERS = """fn pixel(at: i32) -> f32 { return f32(get_x(at) - p.zero); }
fn finish(channel: i32, v: vec4<f32>) -> vec4<f32> {
  return v * (p.scale * get_s(channel)) + bias_of(channel);
}
"""


def convolve_float_strips(g: Recorder, conv: CodesConv, out: Output) -> None:
    """Strips of float products of the integers."""
    whole = _three_dimensional(g, conv, out)
    bias, inputs = bias_code(replace(whole, bias=conv.bias))
    weights = replace(whole.weight, dtype=DType.FLOAT32)  # of integers, in the buffer
    terms = Terms(
        FLOATS + _NUMBERS + bias,
        {"w": weights, "s": conv.scales, **inputs},
        {"zero": conv.zero, "scale": conv.scale},
    )
    sum_strips(g, whole, terms, out)


def convolve_strips(g: Recorder, conv: CodesConv, out: Output) -> None:
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
