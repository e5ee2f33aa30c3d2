"""Depthwise convolution, where each channel has its own filters, on CPU adapters.

With one channel there is nothing to sum over but the taps, so time is in the loads of
pixels. An invocation computes a column of outputs, four wide: it keeps the rows under
the kernel in registers and loads only those that enter as the kernel moves down.
"""

from __future__ import annotations

from ...plan.recorder import Output, Recorder
from ...plan.wgsl_text import Param
from ..matmul import lane_tiles
from .geometry import Convolution, bias_code, geometry

_MOST_TAPS = 49  # they are unrolled, and each weight is a register
_LEAST_JOBS = 512  # columns, to keep all cores at work
_LEAST_ROWS = 8  # of a column, which begins with loading the rows above it


def is_depthwise(conv: Convolution) -> bool:
    """Whether this form can compute the convolution."""
    z, y, x = conv.windows
    taps = z.kernel * y.kernel * x.kernel
    plain = z.kernel == 1 and z.pad == 0 and y.dilation == 1
    whole = all(w.out_stride == 1 for w in conv.windows)
    return conv.channels == 1 and plain and whole and 0 < taps <= _MOST_TAPS


def convolve_depthwise(g: Recorder, conv: Convolution, out: Output) -> None:
    z, y, x = conv.windows
    planes = conv.images * conv.groups * conv.filters * z.out
    quads_x = -(-x.out // 4)
    strips = min(_LEAST_JOBS // max(planes * quads_x, 1), y.out // _LEAST_ROWS)
    strips = max(strips, 1)
    down = -(-y.out // strips)
    bias, inputs = bias_code(conv)
    whole = x.out % 4 == 0
    params: dict[str, Param] = {
        **geometry(conv),
        "quads_x": quads_x,
        "strips": strips,
        "down": down,
        "made": conv.groups * conv.filters,
    }
    g.dispatch(
        "conv_depthwise",
        {"x": conv.x, "w": conv.weight, **inputs},
        {"y": out},
        params,
        invocations=planes * strips * quads_x,
        workgroup=lane_tiles.workgroup(lane_tiles.lanes(g.caps)),
        consts={"STRIDE": y.stride, "WARM": _rows_above(conv)},
        vec4=["y"] if whole else [],
        raw=["x"],
        code="\n".join([bias, _column(conv), _store(whole)]),
    )


def _rows_above(conv: Convolution) -> int:
    """Iterations before the first output, which only load rows."""
    y = conv.windows[1]
    return max(0, -(-(y.kernel - y.stride) // y.stride))


def _column(conv: Convolution) -> str:
    """The function `column`: all outputs of one invocation."""
    _, y, x = conv.windows
    fresh = min(y.stride, y.kernel)
    spots = sorted(
        {j * x.stride + u * x.dilation for j in range(4) for u in range(x.kernel)}
    )
    taps = [(t, u) for t in range(y.kernel) for u in range(x.kernel)]
    lines = [
        f"let w{t}_{u} = get_w(filter_ * {len(taps)} + {index});"
        for index, (t, u) in enumerate(taps)
    ]
    for spot in spots:
        lines += [
            f"let in{spot} = x + {spot} >= 0 && x + {spot} < p.size_x;",
            f"let at{spot} = slice + clamp(x + {spot}, 0, p.size_x - 1) * p.x_x;",
        ]
    lines += [f"var r{t}_{spot} = 0.0;" for t in range(y.kernel) for spot in spots]
    lines += [
        "let size_y = p.size_y;",
        "let x_y = p.x_y;",
        "let pad_y = p.pad_y;",
        "for (var o = first - WARM; o < end; o++) {",
    ]
    for t in range(y.kernel - fresh):
        lines += [f"r{t}_{spot} = r{t + y.stride}_{spot};" for spot in spots]
    for t in range(y.kernel - fresh, y.kernel):
        lines += [
            f"let y{t} = o * STRIDE - pad_y + {t};",
            f"let on{t} = y{t} >= 0 && y{t} < size_y;",
            f"let line{t} = clamp(y{t}, 0, size_y - 1) * x_y;",
        ]
        lines += [
            f"r{t}_{spot} = select(0.0, get_x(line{t} + at{spot}), on{t} && in{spot});"
            for spot in spots
        ]
    lines.append("if (o >= first) {")
    lines.append("var sum = vec4<f32>(bias_of(filter_));")
    for t, u in taps:
        pixels = ", ".join(f"r{t}_{j * x.stride + u * x.dilation}" for j in range(4))
        lines.append(f"sum += w{t}_{u} * vec4<f32>({pixels});")
    lines += ["store_quad(plane, o, quad, sum);", "}", "}"]
    body = "\n  ".join(lines)
    return (
        "fn column(plane: i32, filter_: i32, slice: i32, quad: i32, x: i32,"
        f" first: i32, end: i32) {{\n  {body}\n}}"
    )


def _store(whole: bool) -> str:
    """The function `store_quad`: four outputs of one row."""
    puts = ["put_y4((line >> 2u) + quad, v);"]
    if not whole:
        puts = [
            f"if (quad * 4 + {j} < p.out_x) {{ put_y(line + quad * 4 + {j}, v[{j}]); }}"
            for j in range(4)
        ]
    body = "\n  ".join(["let line = (plane * p.out_y + y) * p.out_x;", *puts])
    signature = "fn store_quad(plane: i32, y: i32, quad: i32, v: vec4<f32>)"
    return f"{signature} {{\n  {body}\n}}"
