"""Convolution on CPU adapters: the unrolled functions of `conv_lanes.wgsl`.

Weights are packed in the order of use: a lane's share of those that all lanes of a
subgroup need is contiguous. The loop over channels is the innermost and its body one
tap: all taps of a row at once would share some pixels, but run at two thirds of the
speed, because that code no longer fits the processor's caches. Where constants cannot
be packed (`Caps.packs`), weights are loaded one by one, as the model has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...plan.host_packing import packing
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Const, Param
from ..matmul import lane_tiles
from ..matmul.product import function
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
    conv = conv if g.caps.packs else conv.unflipped()
    z, y, x = conv.windows
    quads_x = -(-x.out // 4)
    quads = conv.images * z.out * y.out * quads_x
    blocks, pixel_tiles = -(-conv.filters // rows.count), -(-quads // lanes)
    tiles = conv.groups * blocks * pixel_tiles
    weights = _packed(g, conv, rows) if g.caps.packs else _plain(g, conv, rows)
    bias, inputs = bias_code(conv)
    whole = x.out_size % 4 == 0 and x.out_stride == 1
    group = lane_tiles.workgroup(lanes)
    params: dict[str, Param] = {
        **geometry(conv),
        **weights.params,
        "tiles": tiles,
        "pixel_tiles": pixel_tiles,
        "blocks": blocks,
        "quads": quads,
        "quads_x": quads_x,
        "groups": conv.groups,
    }
    for name, w in zip(AXES, conv.windows):
        params |= {
            f"made_{name}": w.out,
            f"first_{name}": w.out_first,
            f"whole_{name}": w.out_size,
            f"every_{name}": w.out_stride,
        }
    g.dispatch(
        "conv_lanes",
        {"x": conv.x, "w": weights.tensor, **inputs},
        {"y": out},
        params,
        workgroups=-(-tiles * lanes // group),
        workgroup=group,
        consts={"ROWS": rows.count, "LANES": lanes, **weights.consts},
        vec4=[*(["y"] if whole else []), *(["w"] if weights.in_fours else [])],
        raw=["x", "w"],
        code="\n".join([lane_tiles.mapping(lanes), bias, weights.code, _put(whole)]),
    )


@dataclass(frozen=True)
class _Weights:
    """The weights, and the functions `begin`, `next_tap` and `tap` of conv_lanes."""

    tensor: Tensor
    in_fours: bool  # read as vec4
    code: str
    consts: dict[str, Const]
    params: dict[str, Param]


_BEGIN = "begin(block: i32, group: i32, lane: i32, w: ptr<function, WeightStarts>)"
_NEXT = "next_tap(w_at: i32) -> i32"


def _packed(g: Recorder, conv: Convolution, rows: lane_tiles.Rows) -> _Weights:
    """In the order of use, by `pack_taps`."""
    z, y, x = conv.windows
    taps = z.kernel * y.kernel * x.kernel
    blocks = -(-conv.filters // rows.count)
    weight = conv.x  # bound, never read, where a phase has no taps
    if taps:
        shape = (conv.groups, blocks, z.kernel, y.kernel, x.kernel, conv.channels)
        args = (rows.loads, rows.sharing, int(conv.flip))
        weight = g.prepack(
            conv.weight, "conv_taps", (*shape, rows.sharing, rows.loads), args=args
        )
    lines, loaded = rows.load("w", "(*w)[0] + w_at")
    start = f"(*w)[0] = block * p.w_block + {rows.lane} * {rows.loads};"
    code = [
        function(_BEGIN, [start]),
        function(_NEXT, ["return w_at;"]),
        _tap(rows, lines, loaded) if taps else _tap(rows, [], []),
    ]
    return _Weights(
        weight,
        rows.in_fours and taps > 0,
        "\n".join(code),
        {"W_STARTS": 1, "W_STEP": rows.count},
        {"w_block": taps * conv.channels * rows.count},
    )


def _plain(g: Recorder, conv: Convolution, rows: lane_tiles.Rows) -> _Weights:
    """[g, o, i, z, y, x], as the model has them."""
    taps = math.prod(w.kernel for w in conv.windows)
    weight = g.contiguous(conv.weight) if taps else conv.x
    begins, lines, loaded = [], [], []
    for q in range(rows.loads):
        # Filters that do not exist are computed as the last one, and not stored.
        row = f"(block - group * p.blocks) * ROWS + {rows.lane} + {q * rows.sharing}"
        filter_ = f"group * p.filters + min({row}, p.filters - 1)"
        begins.append(f"(*w)[{q}] = p.w_offset + ({filter_}) * p.w_filter;")
        lines.append(f"let w{q} = get_w((*w)[{q}] + w_at);")
        loaded.append(f"w{q}")
    code = [
        function(_BEGIN, begins),
        function(_NEXT, ["return w_at - p.w_filter + 1;"]),
        _tap(rows, lines, loaded) if taps else _tap(rows, [], []),
    ]
    return _Weights(
        weight,
        False,
        "\n".join(code),
        {"W_STARTS": rows.loads, "W_STEP": taps},
        {"w_filter": conv.channels * taps, "w_offset": weight.offset if taps else 0},
    )


def _tap(rows: lane_tiles.Rows, lines: list[str], loaded: list[str]) -> str:
    """The function `tap`, with the statements that load weights; empty without."""
    body = list(lines)
    if lines:
        pixels = ", ".join(f"get_x(at[{j}])" for j in range(4))
        body.append(f"let v = select(vec4<f32>(), vec4<f32>({pixels}), inside);")
        body += rows.products(loaded, "v")
    signature = (
        "tap(at: vec4<i32>, inside: vec4<bool>, w: ptr<function, WeightStarts>,"
        " w_at: i32, c: ptr<function, Tile>)"
    )
    return function(signature, body)


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
