"""Linear layers of activations in 8 bits, quantized statically or row by row.

Enters: an int8 tensor with one scale, or a float one that is to be quantized, and
weights as `linear_packed` has them. Leaves: the float result. Either the quantized
values of both are multiplied (`integer_matmul.py`), or the activations are dequantized
for `packed_linear`, which may be faster on CPU adapters. What is computed from the
activations is computed once for all layers that read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ... import ir
from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from ..matmul.lane_tiles import lanes
from ..matmul.split_constants import joined, part, parts
from .integer_matmul import Activations, Weight, codes_forms, multiply_codes
from .packed_linear import group_scales, nibble_words, packed_linear, q4gsw_layout

op = partial(registry.op, accuracy=TOLERANT)

# A sum of more products of 8 bits may exceed the integers that float32 holds exactly.
EXACT = 1024

_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


@dataclass(frozen=True)
class Quantized:
    """Activations [..., K]: how to get their quantized values, or these dequantized.

    `kind` is part of what autotune measures by: kinds cost differently.
    """

    kind: str
    depth: int
    rows: int
    codes: Callable[[], Activations]
    dequantized: Callable[[], Tensor]


def static_input(g: Recorder, x: Tensor, scale: float, zero: int) -> Quantized:
    """An int8 tensor with one scale."""

    def dequantized() -> Tensor:
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
        lambda: g.once(name, x, dequantized),
    )


def quantized_input(
    g: Recorder, x: Tensor, scale: float | Tensor, zero: int | Tensor
) -> Quantized:
    """A float tensor, to be quantized to int8 by one scale, or by one per row."""
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
    """A float tensor, to be quantized dynamically, row by row."""
    length = x.shape[-1]
    limits = (length, low, high, eps)

    def words() -> Tensor:
        y = g.output((*x.shape[:-1], length // 4 + 2), DType.INT32)
        g.run("webgpu.round_codes", x, *limits, out=y)
        return y.tensor

    def dequantized() -> Tensor:
        y = g.output(x.shape, x.dtype)
        g.run("webgpu.round_rows", x, *limits, out=y)
        return y.tensor

    return Quantized(
        "rows",
        length,
        x.numel // max(length, 1),
        lambda: Activations(g.once(f"round_codes {limits}", x, words)),
        lambda: g.once(f"round_rows {limits}", x, dequantized),
    )


def quantized_linear(
    g: Recorder, x: Quantized, weight: Weight, bias: Tensor | None, out: Output
) -> None:
    """Dispatches a product of quantized values, or of floats."""
    layout = weight.layout
    g.require(
        x.depth == layout.depth, f"input must have {layout.depth} columns", x.depth
    )
    names = codes_forms(g, x.rows)
    if layout.group <= EXACT:
        # Faster on a CPU adapter for few rows, and where lanes share what they load.
        first = g.caps.is_cpu and (x.rows < 4 or lanes(g.caps) > 1)
        names.insert(0 if first else len(names), "numbers")
    shape = (x.rows, layout.columns * 4, layout.depth, layout.group)
    kernel = f"linear_codes {layout.bits} bits {x.kind}"
    form = g.choose(kernel, shape, names, out.dtype)
    if form != "numbers":
        multiply_codes(g, x.codes(), weight, bias, form, out)
        return
    words, scales, offsets = weight.words, weight.scales, weight.offsets
    packed_linear(g, x.dequantized(), words, scales, offsets, layout, bias, out)


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
    """A linear layer, in parts if its words are larger than a binding."""
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
    """Packed constants from column `first` on: all of them, or one part."""
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
def linear_rounded(  # noqa: PLR0913  both schemas that it joins have as many
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
    """linear_packed of round_rows of x."""
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
    """The input is float, and quantized to int8 by a scale and zero point per row."""
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
    given = quantized_input(g, x, input_scales, input_zeros)
    quantized_linear(g, given, weight, bias, out)
