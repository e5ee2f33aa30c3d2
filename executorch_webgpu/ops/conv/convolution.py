"""Convolution of one to three dimensions, grouped, dilated and transposed.

Enters: an input as a strided view, weights and bias. Leaves: every element of the
output written once. All forms see three dimensions, the missing ones of extent 1.

Forms: a pointwise convolution is a matrix product; `conv_lanes` on CPU adapters, a
register tile of filters x pixels whose weights are packed in the order of use and
shared between lanes, or `conv_depthwise` where each channel has its own filters;
`conv_tiled` on GPUs, an implicit matrix product in workgroup memory, in tiles of
several sizes (matmul/gpu_tiles.py), or `conv_strip` where a tile would be mostly empty
or its pixels found for few products: few filters in a group, few channels;
`conv_direct` for what is left: weights that are no constants, and transposed
convolution that is dilated. Any other transposed convolution of stride s is s x s
ordinary ones, each for the outputs of one phase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...plan import registry
from ...plan.accuracy import SUM
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param
from ..matmul.gpu_tiles import BY_NAME, Tile, simd_time, tiles_for
from ..matmul.matmul import multiply
from ..matmul.operand_loads import load_a
from ..matmul.product import Product, function
from ..matmul.tile_text import TileText, element
from .conv_lanes import convolve_lanes
from .conv_strip import convolve_strip, fits_strip, strip_cost
from .depthwise import convolve_depthwise, is_depthwise
from .geometry import (
    AXES,
    Convolution,
    Window,
    bias_code,
    check_windows,
    geometry,
    place_code,
)

op = partial(registry.op, accuracy=SUM)

# Each is a dispatch: beyond, all phases are one of conv_direct.
_MOST_PHASES, _MOST_PHASES_OF_GPUS = 1024, 16
# Instructions of conv_tiled around the load of four pixels (`gpu_tiles.tiles_for`), and
# to find them.
_LOAD, _FIND = 90, 400


@op("aten.convolution.default", fusible=True)
def convolution(
    g: Recorder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *,
    out: Output,
) -> None:
    g.require(x.dtype.is_float, "x must be of a float type", x.dtype.label)
    g.require(
        x.dtype is weight.dtype, "x and weight must have one type", weight.dtype.label
    )
    rank = weight.rank - 2
    g.require(1 <= rank <= 3, "weight must have 3 to 5 dimensions", weight.rank)
    check_windows(g, rank, stride=stride, padding=padding, dilation=dilation)
    if x.rank == rank + 1:  # one image without a batch dimension
        x = x.unsqueeze(0)
    x, weight = _three_dimensional(x), _three_dimensional(weight)
    first, second, *kernel = weight.shape
    if transposed:
        split = g.reshape(weight, (groups, first // groups, second, *kernel))
        split = split.transpose(1, 2)
    else:
        split = g.reshape(weight, (groups, first // groups, second, *kernel))
    outs = (*[1] * (3 - rank), *out.shape[out.rank - rank :])
    lead = 3 - rank
    settings = [
        _filled(values, rank, lead, value)
        for values, value in ((stride, 1), (padding, 0), (dilation, 1))
    ]
    windows = [
        Window(
            kernel[d],
            settings[0][d],
            settings[1][d],
            settings[2][d],
            x.shape[d + 2],
            outs[d],
            outs[d],
        )
        for d in range(3)
    ]
    z, y_, x_ = windows
    conv = Convolution(x, split, bias, (z, y_, x_), transposed)
    _choose(g, conv.turned() if g.caps.is_cpu else conv, out)


def _three_dimensional(x: Tensor) -> Tensor:
    while x.rank < 5:
        x = x.unsqueeze(2)
    return x


def _filled(values: Sequence[int], rank: int, lead: int, default: int) -> list[int]:
    """One value per dimension of three; a single one stands for all."""
    given = list(values) if len(values) == rank else list(values) * rank
    return [default] * lead + given


def _choose(g: Recorder, conv: Convolution, out: Output) -> None:
    constant = conv.weight.is_constant and conv.weight.numel > 0
    if out.numel == 0 or conv.channels == 0 or not constant:
        _direct(g, conv, out)
    elif conv.transposed:
        if not _has_phases(g, conv):
            _direct(g, conv, out)
            return
        for phase in _phases(conv):
            if g.caps.is_cpu:
                convolve_lanes(g, phase, out)
            else:
                _by_form(g, "conv_phase", phase, out)
    elif _is_pointwise(conv):
        _pointwise(g, conv, out)
    else:
        _by_form(g, "conv", conv, out)


def _has_phases(g: Recorder, conv: Convolution) -> bool:
    """Whether a transposed convolution is to be computed phase by phase."""
    dilated = any(w.dilation != 1 for w in conv.windows)
    phases = math.prod(min(w.stride, w.out_size) for w in conv.windows)
    if g.caps.is_cpu:
        return not dilated and phases <= _MOST_PHASES
    every_has_taps = all(w.kernel >= w.stride for w in conv.windows)
    return not dilated and phases <= _MOST_PHASES_OF_GPUS and every_has_taps


def _by_form(g: Recorder, kernel: str, conv: Convolution, out: Output) -> None:
    taps = math.prod(w.kernel for w in conv.windows)
    shape = (conv.groups, conv.filters, conv.channels, taps, _pixels(conv))
    form = g.choose(kernel, shape, _forms(g, conv), conv.x.dtype)
    if form in BY_NAME:
        _tiled(g, conv, out, BY_NAME[form])
    else:
        _FORMS[form](g, conv, out)


def _forms(g: Recorder, conv: Convolution) -> list[str]:
    """The forms that can compute the convolution, the most likely first."""
    k = conv.channels * math.prod(w.kernel for w in conv.windows)
    pixels = _pixels(conv)
    shape, held = (conv.filters, pixels, k), element(g.caps, conv.x)
    tiles = tiles_for(g.caps, conv.groups, shape, held, _LOAD)
    if g.caps.is_cpu:
        own = ["depthwise"] if is_depthwise(conv) else []
        return [*own, "lanes", "direct", tiles[0]]
    others = ["lanes"] if conv.flip else ["lanes", "direct"]
    if not fits_strip(conv):
        is_direct = conv.filters < 8 and not conv.flip
        return ["direct", "lanes", tiles[0]] if is_direct else [*tiles, *others]
    tile = BY_NAME[tiles[0]]
    of_tile = tile.instructions(k, _LOAD) + _FIND * tile.b_loads
    waves = tile.count(conv.groups, conv.filters, pixels) * tile.waves
    if strip_cost(g.caps, conv) < simd_time(g.caps, waves, of_tile):
        return ["strip", tiles[0], *others]
    return [*tiles, "strip", *others]


def _pixels(conv: Convolution) -> int:
    """Output pixels of all images."""
    return conv.images * math.prod(w.out for w in conv.windows)


def _is_pointwise(conv: Convolution) -> bool:
    plain = all(w.kernel == 1 and w.stride == 1 and w.pad == 0 for w in conv.windows)
    return plain and (conv.groups == 1 or conv.filters >= 8)


def _pointwise(g: Recorder, conv: Convolution, out: Output) -> None:
    """weights[g, o, i] x x[n, g, i, pixels], plus bias[g, o, 1]."""
    groups, filters, channels = conv.weight.shape[:3]
    pixels = math.prod(conv.x.shape[2:])
    x = g.reshape(conv.x, (conv.images, groups, channels, pixels))
    weight = conv.weight.with_view(conv.weight.shape[:3], conv.weight.strides[:3])
    weight = weight.expand((conv.images, groups, filters, channels))
    bias = conv.bias
    if bias is not None:
        bias = g.reshape(bias, (groups, filters, 1))
    multiply(g, Product(weight, x, bias), out)


def _phases(conv: Convolution) -> list[Convolution]:
    """Ordinary convolutions, one per phase: the output's index modulo the stride."""
    choices = []
    for axis, w in enumerate(conv.windows):
        phases = []
        for phase in range(int(min(w.stride, w.out_size))):
            first = (phase + w.pad) % w.stride
            taps = max(0, -(-(w.kernel - first) // w.stride))
            newest = (phase + w.pad - first) // w.stride
            made = -(-(w.out_size - phase) // w.stride)
            window = Window(
                taps,
                1,
                taps - 1 - newest,
                1,
                w.size,
                made,
                w.out_size,
                w.stride,
                phase,
            )
            phases.append((window, axis + 3, first, w.stride))
        choices.append(phases)
    found = []
    for z in choices[0]:
        for y in choices[1]:
            for x in choices[2]:
                weight = conv.weight
                for window, dim, first, stride in (z, y, x):
                    weight = weight.slice(dim, first, window.kernel, stride)
                windows = (z[0], y[0], x[0])
                found.append(
                    replace(
                        conv,
                        weight=weight,
                        windows=windows,
                        transposed=False,
                        flip=True,
                    )
                )
    return found


def _weight_strides(conv: Convolution) -> dict[str, Param]:
    names = ("w_g", "w_o", "w_i", "w_z", "w_y", "w_x")
    return {"w_offset": conv.weight.offset, **dict(zip(names, conv.weight.strides))}


def _direct(g: Recorder, conv: Convolution, out: Output) -> None:
    code, inputs = bias_code(conv)
    g.dispatch(
        "conv_direct",
        {"x": conv.x, "w": conv.weight, **inputs},
        {"y": out},
        {**geometry(conv), **_weight_strides(conv), "groups": conv.groups},
        invocations=out.numel,
        consts={"TRANSPOSED": conv.transposed},
        raw=["x", "w"],
        code=code,
    )


def _tiled(g: Recorder, conv: Convolution, out: Output, tile: Tile) -> None:
    """The product of the weights [g, o, k] and the pixels, k being the taps of all
    channels."""
    conv = conv.unflipped()
    pixels = _pixels(conv)
    taps = math.prod(w.kernel for w in conv.windows)
    flat = (conv.groups, conv.filters, conv.channels * taps)
    weight = g.reshape(g.contiguous(conv.weight), flat)
    load = load_a(weight)
    code, inputs = bias_code(conv)
    is_whole, put, places = _put_pixels(conv)
    z, y, x = conv.windows
    kernel = {"KERNEL_Z": z.kernel, "KERNEL_Y": y.kernel, "KERNEL_X": x.kernel}
    is_plane = z.size == 1 and z.pad == 0
    text = TileText(tile, element(g.caps, conv.x), flat[2], load, None)
    g.dispatch(
        "conv_tiled",
        {"x": conv.x, "a": weight, **inputs},
        {"y": out},
        {
            **geometry(conv),
            **places,
            **tile.grid(conv.filters, pixels),
            "groups": conv.groups,
            "k": flat[2],
            "m": conv.filters,
            "pixels": pixels,
            "a_offset": weight.offset,
            "w_g": weight.strides[0],
            "a_row": weight.strides[1],
            "a_col": weight.strides[2],
        },
        workgroups=tile.count(conv.groups, conv.filters, pixels),
        workgroup=tile.invocations,
        consts={"IS_PLANE": is_plane, **kernel, **text.consts},
        raw=["x", "a"],
        vec4=[*(["a"] if load.vec4 else []), *(["y"] if is_whole else [])],
        code="\n".join([code, put, text.code]),
    )


# Where a pixel of all images is stored, if all of them are computed, and if not.
_EVERY_PIXEL = """fn y_at(channel: i32, pixel: i32) -> i32 {
  let volume = p.made_x * p.made_y * p.made_z;
  let image = i32(u32(pixel) / u32(volume));
  return (image * (p.groups * p.filters - 1) + channel) * volume + pixel;
}"""
_SOME_PIXELS = """fn y_at(channel: i32, pixel: i32) -> i32 {
  let a = u32(pixel) / u32(p.made_x);
  let b = a / u32(p.made_y);
  let image = b / u32(p.made_z);
  let of_all = i32(image) * p.groups * p.filters + channel;
  return y_index(of_all, i32(b - image * u32(p.made_z)), i32(a - b * u32(p.made_y)),
                 i32(u32(pixel) - a * u32(p.made_x)));
}"""


def _put_pixels(conv: Convolution) -> tuple[bool, str, dict[str, Param]]:
    """put_pixels: stores four pixels of a channel. As a vec4 if the first is true: if
    an image is a multiple of four, they are neighbours, and all of them exist."""
    place, params = place_code(conv)
    for name, w in zip(AXES, conv.windows):
        params[f"made_{name}"] = w.out
    every = all(w.out_stride == 1 for w in conv.windows)
    is_whole = every and math.prod(w.out for w in conv.windows) % 4 == 0
    body = ["put_y4(y_at(channel, at) >> 2u, v);"]
    if not is_whole:
        body = [
            f"if (at + {i} < p.pixels) {{ put_y(y_at(channel, at + {i}), v[{i}]); }}"
            for i in range(4)
        ]
    put = function("put_pixels(channel: i32, at: i32, v: vec4<f32>)", body)
    code = [_EVERY_PIXEL] if every else [place, _SOME_PIXELS]
    return is_whole, "\n".join([*code, put]), params


_FORMS = {
    "depthwise": convolve_depthwise,
    "direct": _direct,
    "lanes": convolve_lanes,
    "strip": convolve_strip,
}
