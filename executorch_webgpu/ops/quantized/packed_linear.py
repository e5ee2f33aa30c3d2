"""Linear layers with weights of 4 or 8 bits, which kernels unpack in registers.

Enters: a float input, and a constant weight as words of codes (plan/packed_weights.py)
with a scale, and perhaps an offset, for each row and group: weight = code * scale +
offset. Leaves: the float result. The ops of other libraries pack their constants so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.traced_int import power_of_two
from ..matmul.dequantize import codes_code
from ..matmul.gated_linear import require_one_part
from ..matmul.lane_tiles import lanes
from ..matmul.matmul_lanes import multiply_lanes
from ..matmul.matmul_vector import VECTORS, multiply_vector, vectors_for
from ..matmul.product import Codes, Product, quad_code
from ..matmul.split_constants import joined, part, parts

op = partial(registry.op, accuracy=TOLERANT)

# Rows that an invocation of `linear_packed` takes at most, and from which lanes share.
_ROWS = 4
# Columns of 4 outputs from which an invocation takes two.
_WIDE = 64

# Four elements of a row from k on, by whether they can be read together.
_X = {
    True: "get_x4((row * p.depth + k) >> 2u)",
    False: "guarded_floats(row * p.depth + k, min(left, p.depth - k))",
}

_X_AT = "fn x_at(row: i32, k: i32, left: i32) -> vec4<f32>"
_FINISH = "fn finish(batch: i32, row: i32, column: i32, v: f32) -> f32"


@dataclass(frozen=True)
class Block:
    """Of an invocation: rows of the input, and columns of 4 outputs."""

    rows: int
    columns: int

    @property
    def name(self) -> str:
        return f"tile {self.rows}x{self.columns}"


_BLOCKS = [(4, 2), (4, 1), (2, 2), (2, 1), (1, 2), (1, 1)]
BLOCKS = {b.name: b for b in (Block(*sizes) for sizes in _BLOCKS)}


def _forms(g: Recorder, product: Product, layout: Layout, fours: bool) -> list[str]:
    """The forms that could compute the product, the default first: on GPUs those of
    `matmul_vector`, which has barriers."""
    rows = product.m
    if not g.caps.is_cpu:
        names = vectors_for(g.caps, product)
        return [*names, "lanes"] if rows >= _ROWS and fours else names
    high = power_of_two(rows, _ROWS)
    names = ["row"] if rows == 1 else []
    names.append(Block(high, 2 if layout.columns >= _WIDE else 1).name)
    if rows >= _ROWS and fours:
        names.insert(0 if lanes(g.caps) > 1 else len(names), "lanes")
    return names


def packed_linear(
    g: Recorder,
    x: Tensor,
    words: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    layout: Layout,
    bias: Tensor | None,
    out: Output,
    gated: int = 0,
) -> None:
    """Chooses and dispatches the kernel; the constants are packed already.

    With `gated`, the rows of the weight alternate as `Product.gated` says.
    """
    g.require(
        x.shape[-1] == layout.depth,
        f"input must have {layout.depth} columns",
        x.shape[-1],
    )
    rows = x.numel // max(layout.depth, 1)
    fours = layout.depth % 4 == 0 and layout.group % layout.per_word == 0
    codes = Codes(layout, scales, offsets)
    rows_of = g.reshape(x, (rows, layout.depth))
    product = Product(rows_of, words, bias, codes=codes, gated=gated)
    shape = (rows, layout.columns * 4, layout.depth, layout.group)
    names = _forms(g, product, layout, fours)
    kernel = f"{'gated ' if gated else ''}linear_packed {layout.bits} bits"
    form = g.choose(kernel, shape, names, x.dtype)
    if form == "lanes":
        multiply_lanes(g, product, out)
        return
    if form in VECTORS:
        multiply_vector(g, product, out, VECTORS[form])
        return
    inputs = {"x": x, "w": words, "s": scales}
    if offsets is not None:
        inputs["o"] = offsets
    if bias is not None:
        inputs["b"] = bias
    added = "0.0" if bias is None else "get_b(column)"
    by_row = form == "row"
    block = Block(1, 2) if by_row else BLOCKS[form]
    stride = -(-layout.columns // block.columns)
    g.dispatch(
        "linear_packed_row" if by_row else "linear_packed",
        inputs,
        {"y": out},
        {
            "columns": layout.columns,
            "y_width": gated or layout.rows,
            "rows": rows,
            "groups": layout.groups,
            "words": layout.words,
            "group": layout.group,
            "depth": layout.depth,
            "column_stride": stride,
        },
        invocations=stride * -(-rows // block.rows),
        workgroup=16,
        consts={
            "SUMS": layout.bits == 4 or offsets is not None,
            **({} if by_row else {"ROWS": block.rows, "COLS": block.columns}),
        },
        vec4={"w", "s", "o", *(["x"] if fours else [])},
        code="\n".join(
            [
                codes_code(layout.bits, offsets),
                f"{_X_AT} {{ return {_X[fours]}; }}",
                "fn y_at(batch: i32, row: i32) -> i32 { return row * p.y_width; }",
                f"{_FINISH} {{ return v + {added}; }}",
                quad_code(gated, DType.FLOAT32),
            ]
        ),
    )


@op("webgpu.linear_packed", fusible=True)
def linear_packed(
    g: Recorder,
    x: Tensor,
    words: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    rows: int,
    bits: int,
    group: int,
    bias: Tensor | None,
    *,
    out: Output,
) -> None:
    depth = x.shape[-1]
    pieces = parts(g, words, 1)
    if len(pieces) == 1:
        layout = Layout(rows, depth, bits, group)
        packed_linear(g, x, words, scales, offsets, layout, bias, out)
        return
    made = []
    for first, length in pieces:
        count = min(length, rows - first)
        made.append(g.output((*out.shape[:-1], count), out.dtype))
        packed_linear(
            g,
            x,
            part(g, words, 1, first, length),
            part(g, scales, 1, first, length),
            None if offsets is None else part(g, offsets, 1, first, length),
            Layout(count, depth, bits, group),
            None if bias is None else bias.slice(0, first, count),
            made[-1],
        )
    joined(g, [piece.tensor for piece in made], out)


def q4gsw_layout(g: Recorder, x: Tensor, weights: Tensor, group: int) -> Layout:
    depth = x.shape[-1]
    g.require(
        group > 0 and depth % group == 0, f"group size must divide {depth}", group
    )
    g.require(
        weights.shape[1] * 2 >= depth,
        f"weight must have {depth} columns",
        weights.shape[1] * 2,
    )
    return Layout(weights.shape[0], depth, 4, group)


def nibble_words(
    g: Recorder, weights: Tensor, layout: Layout, low_first: bool
) -> Tensor:
    """The constant `weights`, two codes a byte, as words."""
    g.require(weights.is_constant, "weight must be a constant", "a computed tensor")
    args = (int(low_first), layout.depth, layout.group)
    return g.prepack(weights, "nibbles_to_words", layout.shape, DType.INT32, args)


def group_scales(g: Recorder, scales: Tensor, layout: Layout, by_group: bool) -> Tensor:
    g.require(scales.is_constant, "scale must be a constant", "a computed tensor")
    args = (layout.rows, layout.groups, int(by_group))
    shape = (layout.groups, layout.padded)
    return g.prepack(scales, "group_scales", shape, scales.dtype, args)


@op("et_vk.linear_q4gsw.default", fusible=True)
def linear_q4gsw(
    g: Recorder,
    x: Tensor,
    weights: Tensor,
    weight_scales: Tensor,
    group_size: int,
    bias: Tensor | None = None,
    *,
    out: Output,
) -> None:
    layout = q4gsw_layout(g, x, weights, group_size)
    words = nibble_words(g, weights, layout, low_first=True)
    scales = group_scales(g, weight_scales, layout, by_group=True)
    packed_linear(g, x, words, scales, None, layout, bias, out)


@op("et_vk.linear_qcs4w.default", fusible=True)
def linear_qcs4w(
    g: Recorder, x: Tensor, weights: Tensor, scales: Tensor, *, out: Output
) -> None:
    """One scale per row; the high nibble comes first, and a nibble is its value."""
    depth = x.shape[-1]
    g.require(
        weights.shape[1] * 2 == depth,
        f"weight must have {depth} columns",
        weights.shape[1] * 2,
    )
    g.require(weights.is_constant, "weight must be a constant", "a computed tensor")
    layout = Layout(weights.shape[0], depth, 8, depth)
    words = g.prepack(
        weights, "plain_nibbles_to_words", layout.shape, DType.INT32, (depth,)
    )
    packed_linear(
        g, x, words, group_scales(g, scales, layout, False), None, layout, None, out
    )


@op("webgpu.gated_linear_packed", gated=True)
def gated_linear_packed(
    g: Recorder,
    x: Tensor,
    words: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    rows: int,
    bits: int,
    group: int,
    bias: Tensor | None,
    *,
    out: Output,
) -> None:
    """As `gated_linear`; `rows` are one layer's, without padding."""
    require_one_part(g, words, 1)
    layout = Layout(words.shape[1], x.shape[-1], bits, group)
    packed_linear(g, x, words, scales, offsets, layout, bias, out, gated=rows)
