"""Convolution with few filters in a group on GPUs: depthwise, and others nearly so.

There is little to share between filters, so that time is in the loads of pixels and in
finding them. An invocation computes a strip of four outputs, one below the other (or,
of a line, side by side): what is the same for all of them is found once, and pixels
that several of them need are loaded once. The taps of a plane are unrolled, of a large
kernel those of a column; over the others, over z and over channels there are loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ir.dtypes import DType, Storage
from ...plan.caps import Caps
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param
from ..matmul.gpu_tiles import simd_time
from ..matmul.product import function
from .geometry import Convolution, Window, bias_code, geometry, place_code

_WAVE = 64
_MOST_PIXELS = 112  # of a strip, if their loads are unrolled: each is a register
_MOST_FILTERS = 4  # of an invocation: four registers each
# Vector instructions of a wave: to find a strip and to store it, and for a load with
# its address, its edge and some waiting. Counted in what RADV makes of conv_strip.wgsl
# (`python -m benchmarks isa`).
_FIND, _LOAD = 150, 4


@dataclass(frozen=True)
class _Axis:
    """A dimension of the image: a window, and the name of its parameters."""

    name: str
    window: Window
    flip: bool

    @property
    def taps(self) -> list[int]:
        """Where the taps of an output are, from its first pixel."""
        taps = [k * self.window.dilation for k in range(self.window.kernel)]
        return taps[::-1] if self.flip else taps

    def pixels(self, outputs: int) -> list[int]:
        """The pixels that so many neighbouring outputs need."""
        starts = range(0, outputs * self.window.stride, self.window.stride)
        return sorted({start + tap for start in starts for tap in self.taps})


class _Strips:
    """How a convolution is cut into strips, and these into workgroups."""

    def __init__(self, conv: Convolution) -> None:
        z, y, x = conv.windows
        self.down, self.across = _Axis("y", y, conv.flip), _Axis("x", x, conv.flip)
        if y.out == 1:
            self.down, self.across = self.across, self.down
        self.blocks = -(-conv.filters // _MOST_FILTERS)
        self.filters = -(-conv.filters // self.blocks)  # of an invocation
        self.planes = conv.images * conv.groups * self.blocks * z.out
        self.jobs = -(-self.down.window.out // 4) * self.across.window.out
        self.of_plane = -(-self.jobs // _WAVE)
        # Otherwise too many invocations of a plane's last workgroup would be idle.
        self.alone = self.jobs * 4 >= self.of_plane * _WAVE * 3
        self.taps = y.kernel * x.kernel
        pixels = len(self.down.pixels(4)) * len(self.across.pixels(1))
        self.loops = pixels > _MOST_PIXELS  # over the taps across
        self.is_deep = z.kernel > 1 or z.pad > 0

    @property
    def workgroups(self) -> int:
        if self.alone:
            return self.planes * self.of_plane
        return -(-self.planes * self.jobs // _WAVE)


def fits_strip(conv: Convolution) -> bool:
    """Whether this form can compute the convolution."""
    strips = _Strips(conv)
    in_loops = strips.loops or strips.is_deep  # which go from the first tap on
    is_short = len(strips.down.pixels(4)) <= _MOST_PIXELS
    return strips.taps > 0 and is_short and not (in_loops and conv.flip)


def fills_workgroups(conv: Convolution) -> bool:
    """Whether all invocations of a workgroup need the same weights."""
    return _Strips(conv).alone


def strip_cost(caps: Caps, conv: Convolution) -> int:
    """The time of a SIMD, as `simd_time` has it."""
    strips = _Strips(conv)
    weights = strips.filters * strips.taps
    loads = len(strips.down.pixels(4)) * strips.across.window.kernel
    if not strips.alone:
        loads += weights
    slices = conv.channels * conv.windows[0].kernel
    instructions = _FIND + slices * (4 * weights + _LOAD * loads)
    return simd_time(caps, strips.workgroups, instructions)


@dataclass(frozen=True)
class Terms:
    """What is summed, and what is made of the sums: WGSL of `E` and `S` (types of a
    pixel and of a sum), `pixel(at)`, `outside()`, `weight(at)`, `products(weight, four
    pixels)` and `finish(channel, four sums)`, with what these read."""

    code: str
    inputs: dict[str, Tensor]
    params: dict[str, Param] = field(default_factory=dict)


# Of terms that are floats; `pixel` and `finish` are missing.
FLOATS = """alias E = f32;
alias S = f32;
fn outside() -> f32 { return 0.0; }
fn weight(at: i32) -> f32 { return get_w(at); }
fn products(w: f32, v: vec4<f32>) -> vec4<f32> { return w * v; }
"""
_OWN = """fn pixel(at: i32) -> f32 { return get_x(at); }
fn finish(channel: i32, v: vec4<f32>) -> vec4<f32> { return v + bias_of(channel); }
"""


def convolve_strip(g: Recorder, conv: Convolution, out: Output) -> None:
    bias, inputs = bias_code(conv)
    weight = conv.weight
    if weight.storage is Storage.F16:  # of which there are no scalar loads
        weight = replace(weight, storage=Storage.F32)
    weight = replace(weight, dtype=DType.FLOAT32)
    terms = Terms(FLOATS + _OWN + bias, {"w": weight, **inputs})
    sum_strips(g, conv, terms, out)


def sum_strips(g: Recorder, conv: Convolution, terms: Terms, out: Output) -> None:
    """Dispatches conv_strip for any kind of terms."""
    strips = _Strips(conv)
    z, y, x = conv.windows
    place, places = place_code(conv)
    down = strips.down.window
    params: dict[str, Param] = {
        **geometry(conv),
        **places,
        **terms.params,
        "planes": strips.planes,
        "jobs": strips.jobs,
        "wide": strips.across.window.out,
        "groups_of_plane": strips.of_plane,
        "blocks": strips.blocks,
        "groups": conv.groups,
        "made_z": z.out,
        "high": down.out,
        "step": down.out_stride * (x.out_size if strips.down.name == "y" else 1),
        "last_y": max(y.size - 1, 0) * conv.x.strides[3],
        "last_x": max(x.size - 1, 0) * conv.x.strides[4],
    }
    g.dispatch(
        "conv_strip",
        {"x": conv.x, **terms.inputs},
        {"y": out},
        params,
        workgroups=strips.workgroups,
        workgroup=_WAVE,
        consts={"FILTERS": strips.filters, "ALONE": strips.alone},
        raw=["x"],
        code="\n".join([terms.code, place, _store(strips), _strip(strips)]),
    )


def _strip(strips: _Strips) -> str:
    """The function `strip`: all outputs of one invocation."""
    down, across, filters = strips.down, strips.across, range(strips.filters)
    lines = _places(down, "at.down", {k: str(k) for k in down.pixels(4)})
    columns = {k: str(k) for k in across.pixels(1)}
    if strips.loops:
        columns = {0: f"k * p.dilation_{across.name}"}
    find = _places(across, "at.column", columns)
    for f in filters:
        row = f"at.conv_group * p.filters + min(at.first + {f}, p.filters - 1)"
        lines += [
            f"var w{f} = ({row}) * p.channels * p.kernel_z * {strips.taps};",
            f"var sum{f} = vec4<S>();",
        ]
    has_z = " & has_z" if strips.is_deep else ""
    loads = [
        f"let v{j}_{k} = select(outside(), pixel(base + {down.name}{j}"
        f" + {across.name}{k}), has_{down.name}{j} & has_{across.name}{k}{has_z});"
        for j in down.pixels(4)
        for k in columns
    ]
    plane = [*loads, *_products(strips)]
    if strips.loops:
        over = f"for (var k = 0; k < p.kernel_{across.name}; k++) {{"
        plane = [over, *find, *plane, "}"]
    else:
        lines += find
    plane += [f"w{f} += {strips.taps};" for f in filters]
    start = "first" if strips.is_deep else "first + at.z * p.stride_z * p.x_z"
    lines += [
        f"var channel = {start};",
        "for (var i = 0; i < p.channels; i++) {",
        *_slices(strips.is_deep, plane),
        "channel += p.x_c;",
        "}",
        *(f"store_strip(at, {f}, sum{f});" for f in filters),
    ]
    return function("strip(at: Strip, first: i32)", lines)


def _slices(is_deep: bool, plane: Sequence[str]) -> list[str]:
    """A channel: `plane`, which reads from `base` on, or that for every tap in z."""
    if not is_deep:
        return ["let base = channel;", *plane]
    return [
        "for (var kz = 0; kz < p.kernel_z; kz++) {",
        "let z = at.z * p.stride_z - p.pad_z + kz * p.dilation_z;",
        "let has_z = u32(z) < u32(p.size_z);",
        "let base = channel + clamp(z, 0, p.size_z - 1) * p.x_z;",
        *plane,
        "}",
    ]


def _places(axis: _Axis, output: str, pixels: Mapping[int, str]) -> list[str]:
    """Of pixels along an axis, WGSL of their numbers from an output's first one on:
    where each is, or the nearest that is in the image, and whether that is the same."""
    name = axis.name
    lines = [f"let {name} = {output} * p.stride_{name} - p.pad_{name};"]
    for k, offset in pixels.items():
        lines += [
            f"let has_{name}{k} = u32({name} + {offset}) < u32(p.size_{name});",
            f"let {name}{k} = clamp(({name} + {offset}) * p.x_{name}, 0,"
            f" p.last_{name});",
        ]
    return lines


def _products(strips: _Strips) -> list[str]:
    """The taps of all filters, times the pixels of four outputs."""
    down, across = strips.down, strips.across
    stride, kernel = down.window.stride, across.window.kernel
    columns = [(0, "k")]
    if not strips.loops:
        columns = [(column, str(k)) for k, column in enumerate(across.taps)]
    lines = []
    for j, row in enumerate(down.taps):
        for column, k in columns:
            tap = f"{j * kernel} + {k}"
            if down.name == "x":
                tap = f"{k} * {down.window.kernel} + {j}"
            values = ", ".join(f"v{row + n * stride}_{column}" for n in range(4))
            lines += [
                f"sum{f} += products(weight(w{f} + {tap}), vec4<E>({values}));"
                for f in range(strips.filters)
            ]
    return lines


def _store(strips: _Strips) -> str:
    """The function `store_strip`: four outputs of one filter."""
    at = {strips.down.name: "at.down", strips.across.name: "at.column"}
    body = [
        "if (at.first + filter_ >= p.filters) { return; }",
        "let channel = at.conv_group * p.filters + at.first + filter_;",
        "let of_all = at.image * p.groups * p.filters + channel;",
        f"let to = y_index(of_all, at.z, {at['y']}, {at['x']});",
        "let r = finish(channel, v);",
        *(
            f"if (at.down + {j} < p.high) {{ put_y(to + {j} * p.step, r[{j}]); }}"
            for j in range(4)
        ),
    ]
    return function("store_strip(at: Strip, filter_: i32, v: vec4<S>)", body)
