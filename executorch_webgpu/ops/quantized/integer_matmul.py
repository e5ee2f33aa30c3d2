"""Products of quantized activations and weights, in exact integer sums.

Enters: activations quantized to 8 bits, with a scale and a zero point for the tensor or
for every row, and packed weights (plan/packed_weights.py). Leaves: float results,
    y = scale of x * sum over groups of scale of w * (integer sum) + bias
where the integer sum is exact, whatever K is, so that only the few float operations
of that formula round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...ir.dtypes import DType
from ...plan.caps import Caps
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.traced_int import power_of_two
from ...plan.wgsl_text import Param
from .code_words import words_of_rows

# The integer sum over a longer group could exceed 2^31.
MOST_CODES = 1 << 16
# Rows of the input that an invocation takes at most, and columns of 4 outputs from
# which it takes two: more than 32 sums would not fit a CPU's registers.
_ROWS, _WIDE = 4, 64
# Columns of 4 outputs from which an invocation takes two on CPU adapters.
_LANES = 8
# On a GPU: rows that an invocation takes at most, words that it loads ahead, and how
# many columns of 4 outputs a workgroup may have, and invocations for each.
_MOST_ROWS, _AHEAD = 8, 4
SHARED = ((64, 1), (64, 4), (32, 8), (16, 16), (8, 32))

# Four codes of a word, one in each byte; 4-bit ones are 8 above their value.
_FOUR = {4: "(word >> (u32(f) * 4u)) & 0x0f0f0f0fu", 8: "word"}


def weight_reader(bits: int) -> str:
    """WGSL of w_four(word, f), the f-th four codes of a word, and of FOURS."""
    return (
        f"const FOURS = {8 // bits};\n"
        f"fn w_four(word: u32, f: i32) -> u32 {{ return {_FOUR[bits]}; }}\n"
    )


def x_reader(value: str) -> str:
    """WGSL of x_four, given an expression for a word of four codes."""
    return f"fn x_four(row: i32, k: i32, left: i32) -> u32 {{ return {value}; }}\n"


# Four elements of an int8 tensor as a word, by whether they can be read together.
_X = {
    True: "pack4xI8(get_x4((row * p.depth + k) >> 2u))",
    False: "pack4xI8(guarded_codes(row * p.depth + k, min(left, p.depth - k)))",
}


@dataclass(frozen=True)
class Activations:
    """Values quantized to 8 bits, with their scale and zero point.

    `codes` are the elements of an INT8 tensor [..., K], or words of them [..., K / 4];
    scale and zero point are then numbers, or tensors with an element per row. Or they
    are words as `round_codes` makes them, [..., K / 4 + 2], which contain scale and
    zero point: both are None.
    """

    codes: Tensor
    scale: float | Tensor | None = None
    zero: int | Tensor | None = None

    @property
    def packed(self) -> bool:
        return self.codes.dtype is DType.INT32

    @property
    def depth(self) -> int:
        width = self.codes.shape[-1]
        if self.scale is None:
            return (width - 2) * 4
        return width * 4 if self.packed else width

    @property
    def rows(self) -> int:
        return self.codes.numel // max(self.codes.shape[-1], 1)


@dataclass(frozen=True)
class Weight:
    """Packed constants; `sums()` has the sum of the codes of each row's groups."""

    words: Tensor
    scales: Tensor
    offsets: Tensor | None
    sums: Callable[[], Tensor]
    layout: Layout


@dataclass
class Supply:
    """What a kernel is given; `sums`: whether `scale_group` needs those of x."""

    code: str
    inputs: dict[str, Tensor]
    params: dict[str, Param]
    vec4: set[str]
    sums: bool = False


def codes_forms(g: Recorder, rows: int) -> list[str]:
    """The forms that could compute the product, the default first."""
    if not g.caps.is_cpu and rows:
        return ["split", "tile"]
    return ["tile", "split"] if 1 <= rows <= _ROWS else ["tile"]


def multiply_codes(
    g: Recorder,
    x: Activations,
    weight: Weight,
    bias: Tensor | None,
    form: str,
    out: Output,
) -> None:
    """Dispatches the kernel of one of `codes_forms`."""
    layout = weight.layout
    g.require(
        x.depth == layout.depth, f"input must have {layout.depth} columns", x.depth
    )
    g.require(
        layout.group <= MOST_CODES,
        f"a group must have at most {MOST_CODES} columns",
        layout.group,
    )
    if form == "split" and x.rows > 1 and not x.packed and _in_fours(layout):
        # Several workgroups load each word.
        x = replace(x, codes=words_of_rows(g, x.codes))
    supply = _supply(x, weight, bias)
    supply.params["depth"] = layout.depth
    supply.sums = layout.bits == 4 or weight.offsets is not None
    if form == "split":
        split_product(g, supply, layout, x.rows, out)
    else:
        product(g, supply, layout, x.rows, 1, out)


def product(
    g: Recorder, supply: Supply, layout: Layout, rows: int, batches: int, out: Output
) -> None:
    """Dispatches codes_product: `batches` products, each of `rows` rows."""
    tile = power_of_two(rows, _ROWS)
    wide = 2 if layout.columns >= (_WIDE if not g.caps.is_cpu else _LANES) else 1
    stride, blocks = -(-layout.columns // wide), -(-rows // tile)
    g.dispatch(
        "codes_product",
        supply.inputs,
        {"y": out},
        {
            **supply.params,
            **_sizes(layout),
            "rows": rows,
            "column_stride": stride,
            "blocks": max(blocks, 1),
            "batch": layout.groups * layout.words * layout.columns,
        },
        invocations=stride * blocks * batches,
        workgroup=16 if g.caps.is_cpu else 64,
        consts={"ROWS": tile, "COLS": wide, "SUMS": supply.sums},
        vec4=supply.vec4,
        code=supply.code,
    )


def _sizes(layout: Layout) -> dict[str, Param]:
    return {
        "width": layout.rows,
        "columns": layout.columns,
        "groups": layout.groups,
        "words": layout.words,
        "group": layout.group,
    }


def split_product(
    g: Recorder, supply: Supply, layout: Layout, rows: int, out: Output
) -> None:
    """Dispatches codes_split."""
    tile = power_of_two(rows, _MOST_ROWS)
    row_blocks = -(-rows // tile)
    ahead = _AHEAD if tile < _MOST_ROWS else _AHEAD * layout.bits // 8
    is_one = layout.groups == 1
    runs = -(-layout.words // ahead) if is_one else layout.groups
    lanes, split = _shared(g.caps, layout.columns, row_blocks, runs)
    blocks = -(-layout.columns // lanes)
    g.dispatch(
        "codes_split",
        supply.inputs,
        {"y": out},
        {**supply.params, **_sizes(layout), "rows": rows, "blocks": blocks},
        workgroups=blocks * row_blocks,
        workgroup=lanes * split,
        consts={
            "SPLIT": split,
            "LANES": lanes,
            "ROWS": tile,
            "AHEAD": ahead,
            "ONE": is_one,
            "SUMS": supply.sums,
        },
        vec4=supply.vec4,
        code=supply.code,
    )


def _shared(caps: Caps, columns: int, row_blocks: int, runs: int) -> tuple[int, int]:
    """Lanes and splits of a workgroup: as few splits as leave every SIMD two waves, if
    each has two runs of words or more."""
    most = max(1, runs // 2)
    fitting = [shared for shared in SHARED if shared[1] <= most] or [SHARED[0]]
    for lanes, split in fitting:
        waves = -(-columns // lanes) * row_blocks * lanes * split // 64
        if waves >= 2 * caps.simds:
            return lanes, split
    return fitting[-1]


def _in_fours(layout: Layout) -> bool:
    """Whether the codes that meet a word of the weights are aligned to four."""
    return layout.depth % 4 == 0 and layout.group % layout.per_word == 0


def _supply(x: Activations, weight: Weight, bias: Tensor | None) -> Supply:
    layout = weight.layout
    supply = Supply(
        weight_reader(layout.bits),
        {"x": x.codes, "w": weight.words, "s": weight.scales},
        {},
        {"w", "s", "o", "u"},
    )
    if x.packed:
        supply.params["stride"] = x.codes.shape[-1]
        supply.code += x_reader("bitcast<u32>(get_x(row * p.stride + (k >> 2u)))")
    else:
        fours = _in_fours(layout)
        supply.vec4 |= {"x"} if fours else set()
        supply.code += x_reader(_X[fours])
    scale = _row_value(supply, "scale", x.scale, "f32")
    zero = _row_value(supply, "zero", x.zero, "i32")
    added = "0.0"
    if bias is not None:
        supply.inputs["b"] = bias
        added = "get_b(n)"
    supply.code += f"""
fn row_zero(row: i32) -> i32 {{ return {zero}; }}
fn finish(row: i32, n: i32, v: f32) {{
  put_y(row * p.width + n, v * {scale} + {added});
}}
"""
    supply.code += _scale_group(supply, weight, x.zero == 0)
    return supply


def _row_value(
    supply: Supply, name: str, value: float | Tensor | None, kind: str
) -> str:
    """WGSL for the scale or zero point of a row."""
    if value is None:
        back = 2 if name == "scale" else 1
        return f"bitcast<{kind}>(get_x((row + 1) * p.stride - {back}))"
    if isinstance(value, Tensor):
        supply.inputs[f"x_{name}"] = value
        return f"get_x_{name}(row)"
    supply.params[f"x_{name}"] = value
    return f"p.x_{name}"


def _scale_group(supply: Supply, weight: Weight, plain: bool) -> str:
    """WGSL of scale_group: applies to the integer sums of a group the zero points of x,
    which are 0 if `plain`, and of w, and the group's scales."""
    lines = ["let here = g * p.columns + column;"]
    if not plain:
        supply.inputs["u"] = weight.sums()
        lines.append("let d = dots - zero * get_u4(here);")
        lines.append("let s = sum - zero * p.group;")
    else:
        lines += ["let d = dots;", "let s = sum;"]
    if weight.offsets is not None:
        supply.inputs["o"] = weight.offsets
        value = "get_s4(here) * vec4<f32>(d) + get_o4(here) * f32(s)"
    elif weight.layout.bits == 4:
        value = "get_s4(here) * vec4<f32>(d - 8 * s)"
    else:
        value = "get_s4(here) * vec4<f32>(d)"
    body = "\n  ".join([*lines, f"return {value};"])
    return (
        "fn scale_group(g: i32, column: i32, dots: vec4<i32>, sum: i32, zero: i32)"
        f" -> vec4<f32> {{\n  {body}\n}}\n"
    )
