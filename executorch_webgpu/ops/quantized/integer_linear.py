"""Linear layers of quantized activations: static int8, and rows rounded to 8 bits.

Enters: an int8 tensor with one scale, or a float one that is to be rounded, and
weights as `linear_packed` has them. The codes of both are multiplied
(`integer_matmul.py`); or the activations become numbers again and `packed_linear`
takes them, which CPU adapters may be faster at. What is made of the activations is
made once for all layers that read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ... import ir
from ...ir.dtypes import DType
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op
from ..matmul.lane_tiles import lanes
from ..matmul.split_constants import joined, part, parts
from .integer_matmul import Activations, Weight, codes_forms, multiply_codes
from .packed_linear import group_scales, nibble_words, packed_linear, q4gsw_layout

# A sum of more products of 8 bits may pass what floats hold exactly.
EXACT = 1024

_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


@dataclass(frozen=True)
class Quantized:
    """Activations [..., K]: how to make their codes, and the numbers they stand for.

    `kind` is for measurements: kinds cost differently.
    """

    kind: str
    depth: int
    rows: int
    codes: Callable[[], Activations]
    numbers: Callable[[], Tensor]


def static_input(g: Recorder, x: Tensor, scale: float, zero: int) -> Quantized:
    """An int8 tensor with one scale."""

    def numbers() -> Tensor:
        y = g.temp(x.shape, DType.FLOAT32)
        step = ir.Step(_DEQUANTIZE, [ir.Ref(0), scale, zero], DType.FLOAT32)
        g.pointwise([step], {0: x}, y)
        return y

    g.require(-128 <= zero <= 127, "a zero point must have 8 bits", zero)
    rows = x.numel // max(x.shape[-1], 1)
    name = f"dequantized {scale} {zero}"
    return Quantized(
        "int8",
        x.shape[-1],
        rows,
        lambda: Activations(x, scale, zero),
        lambda: g.once(name, x, numbers),
    )


def rounded_input(
    g: Recorder, x: Tensor, scale: float | Tensor, zero: int | Tensor
) -> Quantized:
    """A float tensor, rounded to the int8 that a scale, or one per row, gives."""
    operands = {0: x}
    args: list[ir.Arg] = [ir.Ref(0)]
    for value in (scale, zero):
        if isinstance(value, Tensor):
            operands[len(operands)] = g.reshape(value, (*x.shape[:-1], 1))
            args.append(ir.Ref(len(operands) - 1))
        else:
            args.append(value)

    def made(name: str, dtype: DType) -> Tensor:
        y = g.temp(x.shape, dtype)
        g.pointwise([ir.Step(name, [*args, -128, 127], dtype)], operands, y)
        return y

    return Quantized(
        "rounded",
        x.shape[-1],
        x.numel // max(x.shape[-1], 1),
        lambda: Activations(made("webgpu.quantize", DType.INT8), scale, zero),
        lambda: made("webgpu.fake_quantize", x.dtype),
    )


def _rows_input(g: Recorder, x: Tensor, low: int, high: int, eps: float) -> Quantized:
    """A float tensor, rounded row by row as dynamic quantization does."""
    length = x.shape[-1]
    limits = (length, low, high, eps)

    def words() -> Tensor:
        y = g.output((*x.shape[:-1], length // 4 + 2), DType.INT32)
        g.run("webgpu.round_codes", x, *limits, out=y)
        return y.tensor

    def numbers() -> Tensor:
        y = g.output(x.shape, x.dtype)
        g.run("webgpu.round_rows", x, *limits, out=y)
        return y.tensor

    return Quantized(
        "rows",
        length,
        x.numel // max(length, 1),
        lambda: Activations(g.once(f"round_codes {limits}", x, words)),
        lambda: g.once(f"round_rows {limits}", x, numbers),
    )


def quantized_linear(
    g: Recorder, x: Quantized, weight: Weight, bias: Tensor | None, out: Output
) -> None:
    """Chooses how the codes are multiplied."""
    layout = weight.layout
    g.require(
        x.depth == layout.depth, f"input must have {layout.depth} columns", x.depth
    )
    names = codes_forms(g, x.rows)
    if layout.group <= EXACT:
        # Faster on a CPU for a row, and where lanes share what they load.
        first = g.caps.is_cpu and (x.rows < 4 or lanes(g.caps) > 1)
        names.insert(0 if first else len(names), "numbers")
    shape = (x.rows, layout.columns * 4, layout.depth, layout.group)
    kernel = f"linear_codes {layout.bits} bits {x.kind}"
    form = g.choose(kernel, shape, names, out.dtype)
    if form != "numbers":
        multiply_codes(g, x.codes(), weight, bias, form, out)
        return
    words, scales, offsets = weight.words, weight.scales, weight.offsets
    packed_linear(g, x.numbers(), words, scales, offsets, layout, bias, out)


def _in_parts(
    g: Recorder,
    x: Quantized,
    constants: tuple[Tensor, Tensor, Tensor | None],
    rows: int,
    bits: int,
    group: int,
    bias: Tensor | None,
    out: Output,
) -> None:
    """A linear layer whose words may be more than one binding holds."""
    pieces = parts(g, constants[0], 1)
    made = []
    for first, length in pieces:
        layout = Layout(min(length, rows - first), x.depth, bits, group)
        weight = _part_of(g, constants, first, length, layout)
        piece = None if bias is None else bias.slice(0, first, layout.rows)
        y = out
        if len(pieces) > 1:
            y = g.output((*out.shape[:-1], layout.rows), out.dtype)
        quantized_linear(g, x, weight, piece, y)
        made.append(y.tensor)
    if len(made) > 1:
        joined(g, made, out)


def _part_of(
    g: Recorder,
    constants: tuple[Tensor, Tensor, Tensor | None],
    first: int,
    length: int,
    layout: Layout,
) -> Weight:
    """Columns of packed constants: all of them, or what one binding holds."""
    words, scales, offsets = constants
    view = words.slice(1, first, length)

    def sums() -> Tensor:
        args = (layout.bits, layout.group)
        shape = (layout.groups, layout.padded)
        return g.prepack(view, "word_sums", shape, DType.INT32, args)

    if length < words.shape[1]:
        words, scales = (part(g, x, 1, first, length) for x in (words, scales))
        if offsets is not None:
            offsets = part(g, offsets, 1, first, length)
    return Weight(words, scales, offsets, sums, layout)


@op("webgpu.linear_codes", fusible=True)
def linear_codes(
    g: Recorder,
    x: Tensor,
    scale: float,
    zero: int,
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
    """linear_packed of an int8 tensor."""
    given = static_input(g, x, scale, zero)
    _in_parts(g, given, (words, scales, offsets), rows, bits, group, bias, out)


@op("webgpu.linear_rounded", fusible=True)
def linear_rounded(
    g: Recorder,
    x: Tensor,
    low: int,
    high: int,
    eps: float,
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
    """linear_packed of what round_rows makes of x."""
    given = _rows_input(g, x, low, high, eps)
    _in_parts(g, given, (words, scales, offsets), rows, bits, group, bias, out)


@op("et_vk.linear_dq8ca_q4gsw.default", fusible=True)
def linear_dq8ca_q4gsw(
    g: Recorder,
    x: Tensor,
    input_scales: Tensor,
    input_zeros: Tensor,
    weights: Tensor,
    weight_sums: Tensor,
    weight_scales: Tensor,
    group_size: int,
    bias: Tensor | None = None,
    *,
    out: Output,
) -> None:
    """The input is rounded to the 8 bits that its scales and zero points give."""
    rows = x.numel // max(x.shape[-1], 1)
    for name, tensor in (("scale", input_scales), ("zero point", input_zeros)):
        g.require(tensor.numel == rows, f"there must be {rows} {name}s", tensor.numel)
    layout = q4gsw_layout(g, x, weights, group_size)
    args = (1, layout.depth, layout.group)

    def sums() -> Tensor:
        shape = (layout.groups, layout.padded)
        return g.prepack(weights, "nibble_sums", shape, DType.INT32, args)

    weight = Weight(
        nibble_words(g, weights, layout, low_first=True),
        group_scales(g, weight_scales, layout, by_group=True),
        None,
        sums,
        layout,
    )
    given = rounded_input(g, x, input_scales, input_zeros)
    quantized_linear(g, given, weight, bias, out)
