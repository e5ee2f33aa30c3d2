"""The arguments of ops by name, for passes that make calls or take them apart.

There is a class for every op that passes put into a graph, `webgpu.*`, and for some
ops of exported programs. Its fields have the names, the order and the defaults of the
op function's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar, TypeVar

from .dtypes import DType
from .graph import Arg, Call, Expr, Ref

S = TypeVar("S", bound="Signature")


@dataclass(frozen=True)
class Signature:
    """An op's arguments."""

    NAME: ClassVar[str]

    @classmethod
    def of(cls: type[S], call: Call) -> S:
        """The arguments of a call of this op."""
        assert call.op == cls.NAME, call
        make: Callable[..., S] = cls
        return make(*call.args)

    def args(self) -> list[Arg]:
        """In order, without those at the end that have their default."""
        given = [(getattr(self, field.name), field.default) for field in fields(self)]
        while given and given[-1][1] is not MISSING and given[-1][0] == given[-1][1]:
            given.pop()
        return [arg for arg, _ in given]

    def call(self, output: int) -> Call:
        """A new call with one result."""
        return Call(self.NAME, self.args(), [output])

    def write_to(self, call: Call) -> None:
        """Makes this op of a call that stays where it is in its graph."""
        call.op, call.args = self.NAME, self.args()


# -- ops of exported programs --------------------------------------------------------


@dataclass(frozen=True)
class Linear(Signature):
    """x @ weight^T + bias."""

    NAME = "aten.linear.default"
    x: Ref
    weight: Ref
    bias: Ref | None


@dataclass(frozen=True)
class Embedding(Signature):
    """Rows of a matrix by index."""

    NAME = "aten.embedding.default"
    weight: Ref
    indices: Ref
    padding_idx: int
    scale_grad_by_freq: bool
    sparse: bool


@dataclass(frozen=True)
class Convolution(Signature):
    """In one, two or three dimensions, perhaps transposed."""

    NAME = "aten.convolution.default"
    x: Ref
    weight: Ref
    bias: Ref | None
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int


@dataclass(frozen=True)
class BatchNorm(Signature):
    """With the statistics of training."""

    NAME = "aten._native_batch_norm_legit_no_training.default"
    x: Ref
    weight: Ref | None
    bias: Ref | None
    mean: Ref
    variance: Ref
    momentum: float
    eps: float


@dataclass(frozen=True)
class AtenRmsNorm(Signature):
    """Over the last dimensions, as torch has it."""

    NAME = "aten.rms_norm.default"
    x: Ref
    normalized_shape: list[int]
    weight: Ref | None
    eps: float | None


@dataclass(frozen=True)
class LayerNorm(Signature):
    """Over the last dimensions."""

    NAME = "aten.layer_norm.default"
    x: Ref
    normalized_shape: list[int]
    weight: Ref | None
    bias: Ref | None
    eps: float
    cudnn_enable: bool


@dataclass(frozen=True)
class Softmax(Signature):
    """Along one dimension."""

    NAME = "aten._softmax.default"
    x: Ref
    dim: int
    half_to_float: bool


@dataclass(frozen=True)
class Amax(Signature):
    """The largest along dimensions."""

    NAME = "aten.amax.default"
    x: Ref
    dim: list[int]
    keepdim: bool


@dataclass(frozen=True)
class Sum(Signature):
    """Along dimensions; None are all."""

    NAME = "aten.sum.dim_IntList"
    x: Ref
    dim: list[int] | None
    keepdim: bool
    dtype: DType | None


@dataclass(frozen=True)
class Mean(Signature):
    """Along dimensions; None are all."""

    NAME = "aten.mean.dim"
    x: Ref
    dim: list[int] | None
    keepdim: bool
    dtype: DType | None


@dataclass(frozen=True)
class Cat(Signature):
    """Tensors behind one another along a dimension."""

    NAME = "aten.cat.default"
    tensors: list[Ref]
    dim: int


@dataclass(frozen=True)
class Select(Signature):
    """One index of a dimension, which goes."""

    NAME = "aten.select_copy.int"
    x: Ref
    dim: int
    index: int | Expr


@dataclass(frozen=True)
class Slice(Signature):
    """Elements start, start + step, ... before end of a dimension."""

    NAME = "aten.slice_copy.Tensor"
    x: Ref
    dim: int
    start: int | Expr | None
    end: int | Expr | None
    step: int


@dataclass(frozen=True)
class Index(Signature):
    """Rows by tensors of indices; None is a dimension as it is."""

    NAME = "aten.index.Tensor"
    x: Ref
    indices: list[Ref | None]


@dataclass(frozen=True)
class IndexPut(Signature):
    """`x` with values at indices."""

    NAME = "aten.index_put.default"
    x: Ref
    indices: list[Ref | None]
    values: Ref
    accumulate: bool


@dataclass(frozen=True)
class ScaledDotProductAttention(Signature):
    """softmax(q @ k^T * scale + mask) @ v; 0 where a query sees nothing."""

    NAME = "aten.scaled_dot_product_attention.default"
    q: Ref
    k: Ref
    v: Ref
    attn_mask: Ref | None
    dropout_p: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool


@dataclass(frozen=True)
class CustomSdpa(Signature):
    """Attention to a cache, from a position on."""

    NAME = "llama.custom_sdpa.default"
    query: Ref
    key: Ref
    value: Ref
    start_pos: int | Expr
    attn_mask: Ref | None
    dropout: float
    is_causal: bool
    scale: float | None


@dataclass(frozen=True)
class DequantizeAffine(Signature):
    """Codes with a scale and a zero point for every block."""

    NAME = "torchao.dequantize_affine.default"
    x: Ref
    block: list[int]
    scale: Ref
    zero: Ref | None
    dtype: DType
    low: int | None
    high: int | None
    output_dtype: DType


@dataclass(frozen=True)
class QuantizeAffine(Signature):
    """The codes of a tensor, with scales and zero points."""

    NAME = "torchao.quantize_affine.default"
    x: Ref
    block: list[int]
    scale: Ref
    zero: Ref | None
    dtype: DType
    low: int | None
    high: int | None


@dataclass(frozen=True)
class ChooseQparamsAffine(Signature):
    """Scales and zero points for the blocks of a tensor."""

    NAME = "torchao.choose_qparams_affine.default"
    x: Ref
    mapping: str
    block: list[int]
    dtype: DType
    low: int | None
    high: int | None
    eps: float | None
    scale_dtype: DType | None
    zero_dtype: DType | None
    keepdim: bool


@dataclass(frozen=True)
class DequantizePerTensor(Signature):
    """Codes with one scale and zero point."""

    NAME = "quantized_decomposed.dequantize_per_tensor.default"
    x: Ref
    scale: float
    zero: int
    low: int
    high: int
    dtype: DType
    out_dtype: DType | None


@dataclass(frozen=True)
class DequantizePerChannel(Signature):
    """Codes with a scale and a zero point for every channel."""

    NAME = "quantized_decomposed.dequantize_per_channel.default"
    x: Ref
    scales: Ref
    zeros: Ref | None
    axis: int
    low: int
    high: int
    dtype: DType
    out_dtype: DType | None


@dataclass(frozen=True)
class DequantizePerChannelGroup(Signature):
    """Codes with scales and zero points for groups of each row."""

    NAME = "quantized_decomposed.dequantize_per_channel_group.default"
    x: Ref
    scales: Ref
    zeros: Ref | None
    low: int
    high: int
    dtype: DType
    group: int
    output_dtype: DType


# -- ops that passes make ------------------------------------------------------------


@dataclass(frozen=True)
class Attention(ScaledDotProductAttention):
    """Attention as a softmax that is written out."""

    NAME = "webgpu.attention"
    hidden: float  # the score where a boolean mask is false


@dataclass(frozen=True)
class AttentionByToken(ScaledDotProductAttention):
    """Attention with the heads of a token side by side; written out if `hidden`."""

    NAME = "webgpu.attention_by_token"
    hidden: float | None = None


@dataclass(frozen=True)
class CachePut(Signature):
    """`cache`, a state, with rows written at positions, or from one on."""

    NAME = "webgpu.cache_put"
    cache: Ref
    value: Ref
    dim: int
    at: Ref | Expr


@dataclass(frozen=True)
class AttendCached(Signature):
    """Tokens at positions, or from one on, attend to all up to their own."""

    NAME = "webgpu.attend_cached"
    q: Ref
    k: Ref
    v: Ref
    at: Ref | Expr
    scale: float | None
    by_token: bool = False


@dataclass(frozen=True)
class Rotary(Signature):
    """Queries, and perhaps keys, rotated by angles for each token."""

    NAME = "webgpu.rotary"
    q: Ref
    k: Ref | None
    cos: Ref
    sin: Ref
    seq: int
    interleaved: bool


@dataclass(frozen=True)
class RmsNorm(Signature):
    """Over the last dimension."""

    NAME = "webgpu.rms_norm"
    x: Ref
    weight: Ref | None
    eps: float | None


@dataclass(frozen=True)
class RoundRows(Signature):
    """Rows quantized to codes in [low, high] and dequantized."""

    NAME = "webgpu.round_rows"
    x: Ref
    length: int
    low: int
    high: int
    eps: float


@dataclass(frozen=True)
class GatedLinear(Linear):
    """Two layers, whose rows alternate; the steps that follow join their sums."""

    NAME = "webgpu.gated_linear"


@dataclass(frozen=True)
class LinearPacked(Signature):
    """A layer with packed weights: codes in words, scales, offsets by group."""

    NAME = "webgpu.linear_packed"
    x: Ref
    words: Ref
    scales: Ref
    offsets: Ref | None
    rows: int
    bits: int
    group: int
    bias: Ref | None


@dataclass(frozen=True)
class GatedLinearPacked(LinearPacked):
    """Two layers with packed weights, of `rows` each."""

    NAME = "webgpu.gated_linear_packed"


@dataclass(frozen=True)
class LinearCodes(Signature):
    """A layer with packed weights of an int8 tensor with one scale."""

    NAME = "webgpu.linear_codes"
    x: Ref
    scale: float
    zero: int
    words: Ref
    scales: Ref
    offsets: Ref | None
    rows: int
    bits: int
    group: int
    bias: Ref | None


@dataclass(frozen=True)
class LinearRounded(Signature):
    """A layer with packed weights of what `RoundRows` makes of x."""

    NAME = "webgpu.linear_rounded"
    x: Ref
    low: int
    high: int
    eps: float
    words: Ref
    scales: Ref
    offsets: Ref | None
    rows: int
    bits: int
    group: int
    bias: Ref | None


@dataclass(frozen=True)
class EmbeddingPacked(Signature):
    """Rows of packed weights by index."""

    NAME = "webgpu.embedding_packed"
    words: Ref
    scales: Ref
    offsets: Ref | None
    rows: int
    bits: int
    group: int
    indices: Ref


@dataclass(frozen=True)
class ConvCodes(Signature):
    """A convolution of int8 by int8 filters, each with a scale."""

    NAME = "webgpu.conv_codes"
    x: Ref
    scale: float
    zero: int
    weights: Ref
    scales: Ref
    bias: Ref | None
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


@dataclass(frozen=True)
class LaidOut(Signature):
    """A constant that the file holds in parts, each as a packing lays out the elements
    of a view of it."""

    NAME = "webgpu.laid_out"
    parts: list[Ref]
    packings: list[str]
    packing_args: list[list[int]]
    views: list[list[int]]  # offset, extents, strides; nothing: all elements
