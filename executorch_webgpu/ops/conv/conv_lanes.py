"""Convolution on CPU adapters: the unrolled functions of `conv_lanes.wgsl`.

Weights are packed in the order of use: a lane's share of those that all lanes of a
subgroup need is contiguous. The loop over channels is the innermost and its body one
tap: all taps of a row at once would share some pixels, but run at two thirds of the
speed, because that code no longer fits the processor's caches.
"""

from __future__ import annotations

import numpy as np

from ...plan.host_packing import packing
from ...plan.recorder import Output, Recorder
from ...plan.wgsl_text import Param
from ..matmul import lane_tiles
from .geometry import AXES, Convolution, bias_code, geometry


@packing("conv_taps")
def pack_taps(data: np.ndarray, loads: int, lanes: int, flip: int) -> np.ndarray:
    """[g, o, i, z, y, x] as [g, block, z, y, x, i, lane, load], with blocks of
    loads x lanes filters, of which a lane's are `lanes` apart; padded with zeros."""
    if flip:
        data = data[..., ::-1, ::-1, ::-1]
    groups, filters = data.shape[:2]
    blocks = -(-filters // (loads * lanes))
    padded = np.zeros((groups, blocks * loads * lanes, *data.shape[2:]), data.dtype)
    padded[:, :filters] = data
    split = padded.reshape(groups, blocks, loads, lanes, *data.shape[2:])
    return np.ascontiguousarray(split.transpose(0, 1, 5, 6, 7, 4, 3, 2))


def _rows(conv: Convolution, lanes: int) -> lane_tiles.Rows:
    """Filters of a tile, whose time is about that many plus 12 for loading pixels."""
    sizes = (1, 2, 4, 8, 16, 32) if lanes > 1 else (1, 2, 4, 8)
    count = min(sizes, key=lambda r: (-(-conv.filters // r) * (r + 12), -r))
    return lane_tiles.Rows(count, lanes)


def convolve_lanes(g: Recorder, conv: Convolution, out: Output) -> None:
    lanes = lane_tiles.lanes(g.caps)
    rows = _rows(conv, lanes)
    z, y, x = conv.windows
    quads_x = -(-x.out // 4)
    quads = conv.images * z.out * y.out * quads_x
    blocks, pixel_tiles = -(-conv.filters // rows.count), -(-quads // lanes)
    tiles = conv.groups * blocks * pixel_tiles
    taps = z.kernel * y.kernel * x.kernel
    weight = conv.x  # bound, never read, where a phase has no taps
    if taps:
        shape = (conv.groups, blocks, z.kernel, y.kernel, x.kernel, conv.channels)
        args = (rows.loads, rows.sharing, int(conv.flip))
        weight = g.prepack(
            conv.weight, "conv_taps", (*shape, rows.sharing, rows.loads), args=args
        )
    bias, inputs = bias_code(conv)
    whole = x.out_size % 4 == 0 and x.out_stride == 1
    group = lane_tiles.workgroup(lanes)
    params: dict[str, Param] = {
        **geometry(conv),
        "tiles": tiles,
        "pixel_tiles": pixel_tiles,
        "blocks": blocks,
        "quads": quads,
        "quads_x": quads_x,
        "w_block": taps * conv.channels * rows.count,
        "groups": conv.groups,
    }
    for name, w in zip(AXES, conv.windows):
        params |= {
            f"made_{name}": w.out,
            f"first_{name}": w.out_first,
            f"whole_{name}": w.out_size,
            f"every_{name}": w.out_stride,
        }
    vec4 = ["y"] if whole else []
    if rows.in_fours and taps:
        vec4.append("w")
    g.dispatch(
        "conv_lanes",
        {"x": conv.x, "w": weight, **inputs},
        {"y": out},
        params,
        workgroups=-(-tiles * lanes // group),
        workgroup=group,
        consts={"ROWS": rows.count, "LANES": lanes},
        vec4=vec4,
        raw=["x", "w"],
        code="\n".join(
            [lane_tiles.mapping(lanes), bias, _tap(rows, taps > 0), _put(whole)]
        ),
    )


def _tap(rows: lane_tiles.Rows, any_taps: bool) -> str:
    """The function `tap` of conv_lanes."""
    lines: list[str] = []
    if any_taps:
        lines, loaded = rows.load("w", f"w_at + {rows.lane} * {rows.loads}")
        pixels = ", ".join(f"get_x(at[{j}])" for j in range(4))
        lines.append(f"let v = select(vec4<f32>(), vec4<f32>({pixels}), inside);")
        lines += rows.products(loaded, "v")
    body = "\n  ".join(lines)
    return (
        "fn tap(at: vec4<i32>, inside: vec4<bool>, w_at: i32, lane: i32,"
        f" c: ptr<function, Tile>) {{\n  {body}\n}}"
    )


def _put(whole: bool) -> str:
    """The function `put_pixels` of conv_lanes, unrolled because registers have no
    index."""
    put = "put_y4((line + x) >> 2u, r);"
    if not whole:
        put = " ".join(
            f"if (x + {j} < p.made_x)"
            f" {{ put_y(line + (x + {j}) * p.every_x + p.first_x, r[{j}]); }}"
            for j in range(4)
        )
    return f"fn put_pixels(line: i32, x: i32, r: vec4<f32>) {{ {put} }}"
