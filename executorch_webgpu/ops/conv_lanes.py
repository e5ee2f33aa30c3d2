"""Convolution on CPU adapters: the unrolled parts of `conv_lanes.wgsl`.

Weights are packed in the order of use, so that one load per lane brings what all
lanes of a subgroup need. A step of few taps keeps everything in registers: all nine
taps of a 3x3 kernel at once ran at half the speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..graph import Graph, Tensor, fold
from ..kernels import Param
from ..packing import packing
from . import lanes as lane_tiles
from .window import AXES, Convolution, Window, bias_code, geometry


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
        down = 2 if y.stride > 1 else 7 if y.out % 7 == 0 else 4
        uy, down = y.kernel, min(down, y.out)
    return _Tile(lanes, rows, max(1, down), max(1, uy), max(1, ux))


def convolve_lanes(g: Graph, conv: Convolution, out: Tensor) -> None:
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
    weight = conv.x  # bound, never read, where a phase has no taps
    if steps:
        weight = g.prepack(conv.weight, "conv_taps", shape, args=args)
    bias, inputs = bias_code(conv)
    whole = x.out_size % 4 == 0 and x.out_step == 1
    group = lane_tiles.workgroup(lanes)
    params: dict[str, Param] = {
        **geometry(conv),
        "tiles": tiles,
        "pixel_tiles": pixel_tiles,
        "blocks": blocks,
        "quads": quads,
        "quads_x": quads_x,
        "rows_y": rows_y,
        "w_step": step,
        "w_block": steps * step,
        "parts": conv.groups,
    }
    params["out_z"] = z.out
    for name, w in zip(AXES, conv.windows):
        params |= {
            f"made_{name}": w.out,
            f"first_{name}": w.out_first,
            f"whole_{name}": w.out_size,
            f"every_{name}": w.out_step,
        }
    g.dispatch(
        "conv_lanes",
        {"x": conv.x, "w": weight, **inputs},
        {"y": out},
        params,
        groups=fold(tiles * lanes, group),
        workgroup=group,
        consts={
            "ROWS": tile.rows,
            "DOWN": tile.down,
            "LANES": lanes,
            "UY": tile.uy,
            "UX": tile.ux,
        },
        vec4=["w", *(["y"] if whole else [])] if steps else [],
        raw=["x", "w"],
        code="\n".join(
            [
                lane_tiles.mapping(lanes),
                bias,
                _step(conv, tile),
                _store(whole and steps > 0),
            ]
        ),
    )


def _step(conv: Convolution, tile: _Tile) -> str:
    """The function `step` of conv_lanes."""
    _, y, x = conv.windows
    lines = []
    if conv.windows[0].kernel and y.kernel and x.kernel:
        for load in range(tile.loads):
            lines.append(
                f"let w{load} = get_w4((w_at >> 2u) + lane + {load * tile.lanes});"
            )
        spots = sorted(
            {j * x.stride + u * x.dilation for j in range(4) for u in range(tile.ux)}
        )
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
    return f"""
fn store_quad(at: Place, part: i32, filter_: i32, down: i32, v: vec4<f32>) {{
  if (filter_ >= p.filters || at.y + down >= p.made_y) {{ return; }}
  let channel = part * p.filters + filter_;
  let r = v + bias_of(channel);
  let z = at.z * p.every_z + p.first_z;
  let y = (at.y + down) * p.every_y + p.first_y;
  let plane = (at.image * p.parts * p.filters + channel) * p.whole_z + z;
  let line = (plane * p.whole_y + y) * p.whole_x;
  {put}
}}"""
