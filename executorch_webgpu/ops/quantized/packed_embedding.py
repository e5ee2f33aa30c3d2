"""Embedding tables of 4 or 8 bits: rows are dequantized as they are read.

The table is packed as the weight of a linear layer, so that one that is also the last
layer's weight is on the GPU once. An id outside the table is reported.
"""

from __future__ import annotations

from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import EQUAL
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Recorder, Tensor
from ..matmul.dequantize import codes_code
from ..matmul.split_constants import part, parts
from .packed_linear import group_scales, nibble_words

op = partial(registry.op, accuracy=EQUAL)


def packed_embedding(
    g: Recorder,
    words: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    layout: Layout,
    indices: Tensor,
    out: Output,
    first: int = 0,
    vocab: int = 0,
) -> None:
    """The rows of the table with the given ids. If the words are a part of a table of
    `vocab` rows, from row `first` on, only those in it are written."""
    inputs = {"ids": indices, "w": words, "s": scales}
    if offsets is not None:
        inputs["o"] = offsets
    params = {
        "depth": layout.depth,
        "vocab": vocab or layout.rows,
        "first": first,
        "count": layout.rows,
        "rows": layout.padded,
        "words": layout.words,
        "group": layout.group,
    }
    g.dispatch(
        "embedding_packed",
        inputs,
        {"y": out},
        params,
        invocations=out.numel,
        vec4={"w", "s", "o"},
        strided={"ids"},
        code=codes_code(layout.bits, offsets),
    )


@op("webgpu.embedding_packed", fusible=True)
def embedding_packed(
    g: Recorder,
    words: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    rows: int,
    bits: int,
    group: int,
    indices: Tensor,
    *,
    out: Output,
) -> None:
    depth = out.shape[-1]
    pieces = parts(g, words, 1)
    if len(pieces) == 1:
        layout = Layout(rows, depth, bits, group)
        packed_embedding(g, words, scales, offsets, layout, indices, out)
        return
    for first, length in pieces:
        layout = Layout(min(length, rows - first), depth, bits, group)
        few = part(g, words, 1, first, length)
        factors = part(g, scales, 1, first, length)
        shift = None if offsets is None else part(g, offsets, 1, first, length)
        packed_embedding(g, few, factors, shift, layout, indices, out, first, rows)


@op("et_vk.embedding_q4gsw.default", fusible=True)
def embedding_q4gsw(
    g: Recorder,
    weight: Tensor,
    weight_scales: Tensor,
    group_size: int,
    indices: Tensor,
    is_linear_weight: bool = False,
    *,
    out: Output,
) -> None:
    depth = weight.shape[1] * 2
    g.require(
        group_size > 0 and depth % group_size == 0,
        f"group size must divide {depth}",
        group_size,
    )
    layout = Layout(weight.shape[0], depth, 4, group_size)
    words = nibble_words(g, weight, layout, low_first=is_linear_weight)
    scales = group_scales(g, weight_scales, layout, by_group=False)
    packed_embedding(g, words, scales, None, layout, indices, out)


def _bytes_embedding(
    g: Recorder,
    weight: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    indices: Tensor,
    bits: int,
    out: Output,
) -> None:
    g.require(zeros is None, "zero points must be absent", "some")
    depth = out.shape[-1]
    groups = scales.shape[1] if scales.rank > 1 else 1
    g.require(depth % groups == 0, f"groups must divide {depth}", groups)
    layout = Layout(weight.shape[0], depth, bits, depth // groups)
    if bits == 4:
        words = nibble_words(g, weight, layout, low_first=False)
    else:
        g.require(weight.is_constant, "weight must be a constant", "a computed tensor")
        args = (8, layout.group)
        words = g.prepack(weight, "codes_to_words", layout.shape, DType.INT32, args)
    packed = group_scales(g, scales, layout, by_group=False)
    packed_embedding(g, words, packed, None, layout, indices, out)


@op(
    "quantized_decomposed.embedding_4bit.default",
    "quantized_decomposed.embedding_4bit.dtype",
    fusible=True,
)
def embedding_4bit(
    g: Recorder,
    weight: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    low: int,
    high: int,
    indices: Tensor,
    dtype: DType | None = None,
    *,
    out: Output,
) -> None:
    g.require((low, high) == (-8, 7), "codes must be -8 to 7", (low, high))
    _bytes_embedding(g, weight, scales, zeros, indices, 4, out)


@op(
    "quantized_decomposed.embedding_byte.default",
    "quantized_decomposed.embedding_byte.dtype",
    fusible=True,
)
def embedding_byte(
    g: Recorder,
    weight: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    low: int,
    high: int,
    indices: Tensor,
    dtype: DType | None = None,
    *,
    out: Output,
) -> None:
    g.require(weight.dtype is DType.INT8, "codes must be int8", weight.dtype.label)
    _bytes_embedding(g, weight, scales, zeros, indices, 8, out)
