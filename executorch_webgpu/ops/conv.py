"""Convolution of one to three dimensions, grouped, dilated and transposed.

Enters: an input as a strided view, weights and bias. Leaves: every element of the
output written once. All forms see three dimensions, the missing ones of extent 1.

Forms: a pointwise convolution is a matrix product; `conv_lanes` on CPU adapters, a
register tile of filters x pixels whose weights are packed in the order of use and
shared between lanes; `conv_tiled` on GPUs, an implicit matrix product in workgroup
memory; `conv_direct` for what is left: few filters per group on GPUs, weights that
are no constants, and dilated transposed convolution. A transposed convolution of
stride s is s x s ordinary ones, each for the outputs of one phase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..graph import Graph, Tensor, fold
from ..kernels import Param
from ..packing import packing
from ..registry import op
from . import lanes as lane_tiles
from .matmul import Product, multiply

_AXES = "zyx"


@dataclass(frozen=True)
class Window:
    """One dimension: out[o * out_step + out_first] sums x[o*stride - pad + k*dilation]."""

    kernel: int
    stride: int
    pad: int
    dilation: int
    size: int  # of the input
    out: int  # outputs that this convolution makes
    out_size: int  # extent of the whole output
    out_step: int = 1
    out_first: int = 0


@dataclass(frozen=True)
class Convolution:
    """x[n, c, z, y, x], weights [g, o, i, z, y, x]; `flip`: taps run backwards."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    windows: tuple[Window, Window, Window]
    transposed: bool = False
    flip: bool = False

    @property
    def groups(self) -> int:
        return self.weight.shape[0]

    @property
    def filters(self) -> int:
        return self.weight.shape[1]

    @property
    def channels(self) -> int:
        return self.weight.shape[2]

    @property
    def images(self) -> int:
        return self.x.shape[0]


@op("aten.convolution.default", fusible=True)
def convolution(
    g: Graph,
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
    out: Tensor,
) -> None:
    g.require(x.dtype.is_float, "x must be of a float type", x.dtype.label)
    g.require(x.dtype is weight.dtype, "x and weight must have one type", weight.dtype.label)
    rank = weight.rank - 2
    g.require(1 <= rank <= 3, "weight must have 3 to 5 dimensions", weight.rank)
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
        Window(kernel[d], settings[0][d], settings[1][d], settings[2][d],
               x.shape[d + 2], outs[d], outs[d])
        for d in range(3)
    ]
    z, y_, x_ = windows
    conv = Convolution(x, split, bias, (z, y_, x_), transposed)
    _choose(g, conv, out)


def _three_dimensional(x: Tensor) -> Tensor:
    while x.rank < 5:
        x = x.unsqueeze(2)
    return x


def _filled(values: Sequence[int], rank: int, lead: int, default: int) -> list[int]:
    """One value per dimension of three; a single one stands for all."""
    given = list(values) if len(values) == rank else list(values) * rank
    return [default] * lead + given


def _choose(g: Graph, conv: Convolution, out: Tensor) -> None:
    constant = conv.weight.is_constant and conv.weight.numel > 0
    if out.numel == 0 or conv.channels == 0 or not constant:
        _direct(g, conv, out)
    elif conv.transposed:
        dilated = any(w.dilation != 1 for w in conv.windows)
        if dilated or not g.caps.is_cpu:
            _direct(g, conv, out)
        else:
            for phase in _phases(conv):
                _lanes(g, phase, out)
    elif _is_pointwise(conv):
        _pointwise(g, conv, out)
    elif g.caps.is_cpu:
        _lanes(g, conv, out)
    elif conv.filters < 8:
        _direct(g, conv, out)
    else:
        _tiled(g, conv, out)


def _is_pointwise(conv: Convolution) -> bool:
    plain = all(w.kernel == 1 and w.stride == 1 and w.pad == 0 for w in conv.windows)
    return plain and (conv.groups == 1 or conv.filters >= 8)


def _pointwise(g: Graph, conv: Convolution, out: Tensor) -> None:
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
    """Ordinary convolutions, one per remainder of the output position."""
    choices = []
    for axis, w in enumerate(conv.windows):
        parts = []
        for phase in range(min(w.stride, w.out_size)):
            first = (phase + w.pad) % w.stride
            taps = max(0, -(-(w.kernel - first) // w.stride))
            newest = (phase + w.pad - first) // w.stride
            made = -(-(w.out_size - phase) // w.stride)
            window = Window(
                taps, 1, taps - 1 - newest, 1, w.size, made, w.out_size,
                w.stride, phase,
            )
            parts.append((window, axis + 3, first, w.stride))
        choices.append(parts)
    found = []
    for z in choices[0]:
        for y in choices[1]:
            for x in choices[2]:
                weight = conv.weight
                for window, dim, first, step in (z, y, x):
                    weight = weight.slice(dim, first, window.kernel, step)
                windows = (z[0], y[0], x[0])
                found.append(
                    replace(conv, weight=weight, windows=windows, transposed=False,
                            flip=True)
                )
    return found


# -- what the forms share --------------------------------------------------------------


def _bias(conv: Convolution) -> tuple[str, dict[str, Tensor]]:
    """bias_of(channel), and the tensor it reads, if there is one."""
    signature = "fn bias_of(channel: i32) -> f32"
    if conv.bias is None:
        return f"{signature} {{ return 0.0; }}", {}
    return f"{signature} {{ return get_bias(channel); }}", {"bias": conv.bias}


def _geometry(conv: Convolution) -> dict[str, Param]:
    params: dict[str, Param] = {
        "channels": conv.channels, "filters": conv.filters,
        "x_offset": conv.x.offset, "x_n": conv.x.strides[0], "x_c": conv.x.strides[1],
    }
    for axis, name in enumerate(_AXES):
        w = conv.windows[axis]
        params |= {
            f"kernel_{name}": w.kernel, f"stride_{name}": w.stride,
            f"pad_{name}": w.pad, f"dilation_{name}": w.dilation,
            f"size_{name}": w.size, f"out_{name}": w.out_size,
            f"x_{name}": conv.x.strides[axis + 2],
        }
    return params


def _weight_strides(conv: Convolution) -> dict[str, Param]:
    names = ("w_g", "w_o", "w_i", "w_z", "w_y", "w_x")
    return {"w_offset": conv.weight.offset, **dict(zip(names, conv.weight.strides))}


def _direct(g: Graph, conv: Convolution, out: Tensor) -> None:
    code, inputs = _bias(conv)
    g.dispatch(
        "conv_direct",
        {"x": conv.x, "w": conv.weight, **inputs},
        {"y": out},
        {**_geometry(conv), **_weight_strides(conv), "parts": conv.groups},
        invocations=out.numel,
        consts={"TRANSPOSED": conv.transposed},
        raw=["x", "w"],
        code=code,
    )


def _tiled(g: Graph, conv: Convolution, out: Tensor) -> None:
    pixels = conv.images * math.prod(w.out for w in conv.windows)
    blocks, pixel_tiles = -(-conv.filters // 64), -(-pixels // 64)
    tiles = conv.groups * blocks * pixel_tiles
    taps = math.prod(w.kernel for w in conv.windows)
    code, inputs = _bias(conv)
    g.dispatch(
        "conv_tiled",
        {"x": conv.x, "w": conv.weight, **inputs},
        {"y": out},
        {
            **_geometry(conv), **_weight_strides(conv),
            "tiles": tiles, "pixel_tiles": pixel_tiles, "blocks": blocks,
            "parts": conv.groups, "depth": conv.channels * taps, "pixels": pixels,
        },
        groups=fold(tiles, 1),
        workgroup=256,
        raw=["x", "w"],
        code=code,
    )


# -- CPU adapters ----------------------------------------------------------------------


@packing("conv_taps")
def pack_taps(
    data: np.ndarray, rows: int, unit: int, uy: int, ux: int, flip: int
) -> np.ndarray:
    """[g, o, i, z, y, x] in the order of use: per block of `rows` filters, channel
    and step of uy x ux taps, [taps][rows], filled up to a multiple of `unit`."""
    if flip:
        data = data[..., ::-1, ::-1, ::-1]
    groups, filters, channels, kz, ky, kx = data.shape
    blocks = -(-filters // rows)
    padded = np.zeros((groups, blocks * rows, *data.shape[2:]), data.dtype)
    padded[:, :filters] = data
    split = padded.reshape(
        groups, blocks, rows, channels, kz, ky // uy, uy, kx // ux, ux
    )
    steps = split.transpose(0, 1, 3, 4, 5, 7, 6, 8, 2)
    steps = steps.reshape(groups, blocks, -1, uy * ux * rows)
    length = -(-steps.shape[-1] // unit) * unit
    out = np.zeros((*steps.shape[:-1], length), data.dtype)
    out[..., : steps.shape[-1]] = steps
    return out


@dataclass(frozen=True)
class _Tile:
    """What one subgroup computes, and the taps of one unrolled step."""

    lanes: int
    rows: int  # filters
    down: int  # output rows per lane
    uy: int
    ux: int

    @property
    def unit(self) -> int:
        """Weights that one load brings to all lanes together."""
        return 4 * self.lanes

    @property
    def loads(self) -> int:
        return -(-self.uy * self.ux * self.rows // self.unit)


def _tile(conv: Convolution, lanes: int) -> _Tile:
    # A tile's time is about its rows plus what loading its pixels costs.
    sizes = (1, 2, 4, 8, 16, 32) if lanes > 1 else (1, 2, 4, 8)
    rows = min(sizes, key=lambda r: (-(-conv.filters // r) * (r + 8), -r))
    _, y, x = conv.windows
    ux = x.kernel
    if ux > 11:
        ux = next(u for u in range(8, 0, -1) if x.kernel % u == 0)
    uy, down = 1, 1
    if rows <= 2 and y.kernel * ux <= 9:
        # Few filters: several rows per lane share the input rows between them.
        # With many, so long a step would not fit the registers.
        uy, down = y.kernel, min(4, y.out) if y.out != 3 else 2
    return _Tile(lanes, rows, max(1, down), max(1, uy), max(1, ux))


def _lanes(g: Graph, conv: Convolution, out: Tensor) -> None:
    lanes = lane_tiles.lanes(g.caps)
    tile = _tile(conv, lanes)
    z, y, x = conv.windows
    quads_x, rows_y = -(-x.out // 4), -(-y.out // tile.down)
    quads = conv.images * z.out * rows_y * quads_x
    blocks, pixel_tiles = -(-conv.filters // tile.rows), -(-quads // lanes)
    tiles = conv.groups * blocks * pixel_tiles
    steps = conv.channels * z.kernel * (y.kernel // tile.uy) * (x.kernel // tile.ux)
    step = tile.loads * tile.unit
    shape = (conv.groups, blocks, steps, step)
    args = (tile.rows, tile.unit, tile.uy, tile.ux, int(conv.flip))
    if steps:
        weight = g.prepack(conv.weight, "conv_taps", shape, args=args)
    else:
        weight = conv.x  # bound, never read
    bias, inputs = _bias(conv)
    whole = x.out_size % 4 == 0 and x.out_step == 1
    group = lane_tiles.workgroup(lanes)
    params: dict[str, Param] = {
        **_geometry(conv), "tiles": tiles, "pixel_tiles": pixel_tiles, "blocks": blocks,
        "quads": quads, "quads_x": quads_x, "rows_y": rows_y,
        "w_step": step, "w_block": steps * step, "parts": conv.groups,
    }
    params["out_z"] = z.out
    for name, w in zip(_AXES, conv.windows):
        params |= {f"made_{name}": w.out, f"first_{name}": w.out_first,
                   f"whole_{name}": w.out_size, f"every_{name}": w.out_step}
    g.dispatch(
        "conv_lanes",
        {"x": conv.x, "w": weight, **inputs},
        {"y": out},
        params,
        groups=fold(tiles * lanes, group),
        workgroup=group,
        consts={"ROWS": tile.rows, "DOWN": tile.down, "LANES": lanes,
                "UY": tile.uy, "UX": tile.ux},
        vec4=["w", *(["y"] if whole else [])] if steps else [],
        raw=["x", "w"],
        code="\n".join([lane_tiles.mapping(lanes), bias, _step(conv, tile),
                        _store(whole and steps > 0)]),
    )


def _step(conv: Convolution, tile: _Tile) -> str:
    """The function `step` of conv_lanes."""
    _, y, x = conv.windows
    lines = []
    if conv.windows[0].kernel and y.kernel and x.kernel:
        for load in range(tile.loads):
            lines.append(f"let w{load} = get_w4((w_at >> 2u) + lane + {load * tile.lanes});")
        spots = sorted({j * x.stride + u * x.dilation for j in range(4)
                        for u in range(tile.ux)})
        for spot in spots:
            lines += [
                f"let x{spot} = x + {spot};",
                f"let in{spot} = x{spot} >= 0 && x{spot} < p.size_x;",
                f"let at{spot} = clamp(x{spot}, 0, p.size_x - 1) * p.x_x;",
            ]
        done: set[int] = set()
        for uy in range(tile.uy):
            for down in range(tile.down):
                row = down * y.stride + uy * y.dilation
                if row not in done:
                    done.add(row)
                    lines += _load_row(row, spots)
                for ux in range(tile.ux):
                    lines += _multiply(tile, uy, ux, down, row, x)
    body = "\n  ".join(lines)
    return (
        "fn step(slice: i32, inside: bool, y: i32, x: i32, w_at: i32, lane: i32,"
        f" c: ptr<function, Tile>) {{\n  {body}\n}}"
    )


def _load_row(row: int, spots: Sequence[int]) -> list[str]:
    lines = [
        f"let y{row} = y + {row};",
        f"let on{row} = inside && y{row} >= 0 && y{row} < p.size_y;",
        f"let line{row} = slice + clamp(y{row}, 0, p.size_y - 1) * p.x_y;",
    ]
    for spot in spots:
        lines.append(
            f"let v{row}_{spot} = select(0.0, get_x(line{row} + at{spot}),"
            f" on{row} && in{spot});"
        )
    return lines


def _multiply(
    tile: _Tile, uy: int, ux: int, down: int, row: int, x: Window
) -> list[str]:
    """One tap of one output row, for every filter of the tile."""
    name = f"q{uy}_{ux}_{down}"
    parts = ", ".join(f"v{row}_{j * x.stride + ux * x.dilation}" for j in range(4))
    lines = [f"let {name} = vec4<f32>({parts});"]
    for i in range(tile.rows):
        place = (uy * tile.ux + ux) * tile.rows + i
        load, rest = divmod(place, tile.unit)
        weight = lane_tiles.shared(f"w{load}[{rest % 4}]", rest // 4, tile.lanes)
        if tile.lanes == 1:
            weight = f"w{load}[{rest}]"
        lines.append(f"(*c)[{down * tile.rows + i}] += {weight} * {name};")
    return lines


def _store(whole: bool) -> str:
    """The function `store_quad` of conv_lanes."""
    if whole:
        put = "put_y4((line + at.x) >> 2u, r);"
    else:
        puts = [
            f"if (at.x + {j} < p.made_x)"
            f" {{ put_y(line + (at.x + {j}) * p.every_x + p.first_x, r[{j}]); }}"
            for j in range(4)
        ]
        put = "\n  ".join(puts)
    return f"""fn store_quad(at: Place, part: i32, filter_: i32, down: i32, v: vec4<f32>) {{
  if (filter_ >= p.filters || at.y + down >= p.made_y) {{ return; }}
  let channel = part * p.filters + filter_;
  let r = v + bias_of(channel);
  let z = at.z * p.every_z + p.first_z;
  let y = (at.y + down) * p.every_y + p.first_y;
  let plane = (at.image * p.parts * p.filters + channel) * p.whole_z + z;
  let line = (plane * p.whole_y + y) * p.whole_x;
  {put}
}}"""
