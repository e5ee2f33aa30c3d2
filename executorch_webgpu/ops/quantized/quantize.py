"""Affine quantization: quantize, dequantize, and the choice of scales and zero points.

The arithmetic is a few elementwise formulas, which fuse with their neighbours; the many
named ops differ in where the scales are, which views express.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from ... import ir
from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import STEP, TOLERANT
from ...plan.pointwise import Emitter, Operand, Term, pointwise
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import row_major
from ...plan.wgsl_text import rounded
from ..elementwise.formulas import elementwise_op

op = partial(registry.op, accuracy=STEP)

_LIMITS = {DType.INT8: (-128, 127), DType.UINT8: (0, 255), DType.INT16: (-32768, 32767)}


def _inverse(e: Emitter, scale: Operand) -> str:
    """1 / scale; of a number, computed in float64 and rounded once, as in torch."""
    if isinstance(scale, (int, float)):
        return e.cast(1.0 / scale if scale else math.inf, "f").code
    return e.let(Term(f"1.0 / {e.cast(scale, 'f').code}", "f")).code


def _quantized(e: Emitter, args: Sequence[Operand]) -> Term:
    """clamp(round(x / scale) + zero, low, high), as a float"""
    x, scale, zero, low, high = args[:5]
    product = e.let(Term(f"{e.cast(x, 'f').code} * {_inverse(e, scale)}", "f")).code
    shifted = f"round({product}) + {e.cast(0 if zero is None else zero, 'f').code}"
    bounds = f"{e.cast(low, 'f').code}, {e.cast(high, 'f').code}"
    return e.let(Term(f"clamp({shifted}, {bounds})", "f"))


@elementwise_op(
    "webgpu.quantize",
    "quantized_decomposed.quantize_per_tensor.default",
    accuracy=STEP,
)
def quantize(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    """clamp(round(x / scale) + zero, low, high)"""
    return Term(f"i32({_quantized(e, args).code})", "i")


@pointwise("webgpu.quantize_narrow")
def quantize_narrow(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    """The same, with 1 / scale rounded to type `inner`, and its product with x to type
    `outer`."""
    x, scale, zero, low, high, inner, outer = args
    assert isinstance(inner, DType)
    assert isinstance(outer, DType)
    inverse = rounded(inner, f"1.0 / {e.cast(scale, 'f').code}")
    product = e.let(Term(rounded(outer, f"{e.cast(x, 'f').code} * {inverse}"), "f"))
    shifted = f"round({product.code}) + {e.cast(0 if zero is None else zero, 'f').code}"
    bounds = f"{e.cast(low, 'f').code}, {e.cast(high, 'f').code}"
    return Term(f"i32(clamp({shifted}, {bounds}))", "i")


@elementwise_op("webgpu.quantize_shifted", accuracy=STEP)
def quantize_shifted(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    """clamp(round(x / scale + zero), low, high), as torch does it per token"""
    x, scale, zero, low, high = (e.cast(arg, "f").code for arg in args[:5])
    shifted = f"round({x} * (1.0 / {scale}) + {zero})"
    return Term(f"i32(clamp({shifted}, {low}, {high}))", "i")


@elementwise_op(
    "webgpu.dequantize",
    "quantized_decomposed.dequantize_per_tensor.default",
    accuracy=TOLERANT,
)
def dequantize(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    """(q - zero) * scale"""
    q, scale = e.cast(args[0], "f").code, e.cast(args[1], "f").code
    zero = e.cast(0 if args[2] is None else args[2], "f").code
    return Term(f"({q} - {zero}) * {scale}", "f")


@elementwise_op("webgpu.fake_quantize", accuracy=TOLERANT)
def fake_quantize(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    """dequantize(quantize(x))"""
    q, scale = _quantized(e, args).code, e.cast(args[1], "f").code
    zero = e.cast(0 if args[2] is None else args[2], "f").code
    return Term(f"({q} - {zero}) * {scale}", "f")


def _apply(
    g: Recorder,
    name: str,
    tensors: Sequence[Tensor | None],
    numbers: Sequence[int | DType],
    out: Output,
) -> None:
    """One formula over tensors that broadcast to `out`."""
    operands = {i: tensor for i, tensor in enumerate(tensors) if tensor is not None}
    args: list[ir.Arg] = [
        None if tensor is None else ir.Ref(i) for i, tensor in enumerate(tensors)
    ]
    g.pointwise([ir.Step(name, [*args, *numbers], out.dtype)], operands, out)


# -- scales per tensor, channel, token and group ---------------------------------


def _blocked(
    g: Recorder,
    name: str,
    x: Tensor,
    block: Sequence[int],
    scale: Tensor,
    zero: Tensor | None,
    numbers: Sequence[int | DType],
    out: Output,
) -> None:
    """A formula with a scale, and perhaps a zero point, for each block of elements."""
    g.require(
        len(block) == x.rank, f"a block must have {x.rank} dimensions", list(block)
    )
    for extent, size in zip(x.shape, block):
        g.require(
            size > 0 and extent % size == 0,
            f"a block must divide {list(x.shape)}",
            list(block),
        )
    split = [n for e, b in zip(x.shape, block) for n in (e // b, b)]
    lead = [n for e, b in zip(x.shape, block) for n in (e // b, 1)]
    count = math.prod(lead)
    g.require(scale.numel == count, f"there must be {count} scales", scale.numel)
    if zero is not None and zero.numel == 0:
        zero = None
    shaped = g.output(split, out.dtype, out.bound)
    tensors = [
        g.reshape(x, split),
        g.reshape(scale, lead),
        None if zero is None else g.reshape(zero, lead),
    ]
    _apply(g, name, tensors, numbers, shaped)
    g.alias(out, shaped.tensor.with_view(out.shape, row_major(out.shape)))


def _limits(dtype: DType, low: int | None, high: int | None) -> tuple[int, int]:
    least, most = _LIMITS.get(dtype, (-(2**24), 2**24))
    return (least if low is None else int(low), most if high is None else int(high))


@op("torchao.quantize_affine.default")
def quantize_affine(
    g: Recorder,
    x: Tensor,
    block: list[int],
    scale: Tensor,
    zero: Tensor | None,
    dtype: DType,
    low: int | None = None,
    high: int | None = None,
    *,
    out: Output,
) -> None:
    numbers: tuple[int | DType, ...] = _limits(dtype, low, high)
    name = "webgpu.quantize"
    if scale.dtype is not DType.FLOAT32:
        # torch computes in the type of both, or in float32 if they are two.
        outer = x.dtype if x.dtype is scale.dtype else DType.FLOAT32
        name, numbers = "webgpu.quantize_narrow", (*numbers, scale.dtype, outer)
    _blocked(g, name, x, block, scale, zero, numbers, out)


@op("torchao.dequantize_affine.default", accuracy=TOLERANT)
def dequantize_affine(
    g: Recorder,
    x: Tensor,
    block: list[int],
    scale: Tensor,
    zero: Tensor | None,
    dtype: DType,
    low: int | None = None,
    high: int | None = None,
    output_dtype: DType | int = DType.FLOAT32,
    *,
    out: Output,
) -> None:
    _blocked(g, "webgpu.dequantize", x, block, scale, zero, (), out)


@op("quantized_decomposed.quantize_per_channel.default", fusible=True)
def quantize_per_channel(
    g: Recorder,
    x: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: DType,
    *,
    out: Output,
) -> None:
    shape = _axis_shape(x, axis)
    tensors = [
        x,
        g.reshape(scales, shape),
        None if zeros is None else g.reshape(zeros, shape),
    ]
    _apply(g, "webgpu.quantize", tensors, (low, high), out)


@op(
    "quantized_decomposed.dequantize_per_channel.default",
    fusible=True,
    accuracy=TOLERANT,
)
def dequantize_per_channel(
    g: Recorder,
    x: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: DType,
    out_dtype: DType | None = None,
    *,
    out: Output,
) -> None:
    shape = _axis_shape(x, axis)
    tensors = [
        x,
        g.reshape(scales, shape),
        None if zeros is None else g.reshape(zeros, shape),
    ]
    _apply(g, "webgpu.dequantize", tensors, (), out)


def _axis_shape(x: Tensor, axis: int) -> list[int]:
    axis = x.dim(axis)
    return [extent if dim == axis else 1 for dim, extent in enumerate(x.shape)]


@op("quantized_decomposed.quantize_per_token.default", fusible=True)
def quantize_per_token(
    g: Recorder,
    x: Tensor,
    scales: Tensor,
    zeros: Tensor,
    low: int,
    high: int,
    dtype: DType,
    *,
    out: Output,
) -> None:
    _apply(g, "webgpu.quantize_shifted", [x, scales, zeros], (low, high), out)


@op(
    "quantized_decomposed.dequantize_per_token.default", fusible=True, accuracy=TOLERANT
)
def dequantize_per_token(
    g: Recorder,
    x: Tensor,
    scales: Tensor,
    zeros: Tensor,
    low: int,
    high: int,
    dtype: DType,
    output_dtype: DType,
    *,
    out: Output,
) -> None:
    _apply(g, "webgpu.dequantize", [x, scales, zeros], (), out)


@op(
    "quantized_decomposed.quantize_per_tensor.tensor",
    fusible=True,
)
def quantize_per_tensor(
    g: Recorder,
    x: Tensor,
    scale: Tensor,
    zero: Tensor,
    low: int,
    high: int,
    dtype: DType,
    *,
    out: Output,
) -> None:
    tensors = [x, g.reshape(scale, ()), g.reshape(zero, ())]
    _apply(g, "webgpu.quantize", tensors, (low, high), out)


@op(
    "quantized_decomposed.dequantize_per_tensor.tensor", fusible=True, accuracy=TOLERANT
)
def dequantize_per_tensor(
    g: Recorder,
    x: Tensor,
    scale: Tensor,
    zero: Tensor,
    low: int,
    high: int,
    dtype: DType,
    out_dtype: DType | None = None,
    *,
    out: Output,
) -> None:
    tensors = [x, g.reshape(scale, ()), g.reshape(zero, ())]
    _apply(g, "webgpu.dequantize", tensors, (), out)


@op("quantized_decomposed.quantize_per_channel_group.default")
def quantize_per_channel_group(
    g: Recorder,
    x: Tensor,
    scales: Tensor,
    zeros: Tensor,
    low: int,
    high: int,
    dtype: DType,
    group: int,
    *,
    out: Output,
) -> None:
    _blocked(g, "webgpu.quantize", x, [1, group], scales, zeros, (low, high), out)


@op("quantized_decomposed.dequantize_per_channel_group.default", accuracy=TOLERANT)
def dequantize_per_channel_group(
    g: Recorder,
    x: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    low: int,
    high: int,
    dtype: DType,
    group: int,
    output_dtype: DType,
    *,
    out: Output,
) -> None:
    _blocked(g, "webgpu.dequantize", x, [1, group], scales, zeros, (), out)


# -- choosing scales ----------------------------------------------------------------

_MODES = {"ASYMMETRIC": 0, "SYMMETRIC": 1, "SYMMETRIC_NO_CLIPPING_ERR": 2}
_TINY = {DType.FLOAT32: 2.0**-126, DType.FLOAT16: 2.0**-14, DType.BFLOAT16: 2.0**-126}


@op("torchao.choose_qparams_affine.default")
def choose_qparams_affine(
    g: Recorder,
    x: Tensor,
    mapping: str,
    block: list[int],
    dtype: DType,
    low: int | None = None,
    high: int | None = None,
    eps: float | None = None,
    scale_dtype: DType | None = None,
    zero_dtype: DType | None = None,
    keepdim: bool = False,
    *,
    out: list[Output],
) -> None:
    g.require(mapping in _MODES, f"mapping must be one of {list(_MODES)}", mapping)
    length = math.prod(block)
    # From the right: whole dimensions, then at most one in part, then ones.
    lead = list(block[: x.rank - _whole(x.shape, block)])[:-1]
    g.require(
        all(size == 1 for size in lead), "a block must be a run of elements", block
    )
    split = lead and x.shape[len(lead)] % block[len(lead)]
    g.require(not split, f"a block must divide {list(x.shape)}", block)
    least, most = _limits(dtype, low, high)
    _choose(g, x, length, _MODES[mapping], least, most, eps, out, x.dtype)


def _whole(shape: Sequence[int], block: Sequence[int]) -> int:
    """Trailing dimensions that a block covers completely."""
    count = 0
    while count < len(shape) and shape[-1 - count] == block[-1 - count]:
        count += 1
    return count


def _choose(
    g: Recorder,
    x: Tensor,
    length: int,
    mode: int,
    low: int,
    high: int,
    eps: float | None,
    out: list[Output],
    compute: DType = DType.FLOAT32,
) -> None:
    """For each row of `length` elements; torch computes in the type `compute`."""
    params = {
        "length": length,
        "low": float(low),
        "high": float(high),
        "middle": int((high + low + 1) / 2),
        "eps": float(_TINY.get(x.dtype, 2.0**-126) if eps is None else eps),
    }
    g.dispatch(
        "choose_qparams",
        {"x": x},
        {"scale": out[0], "zero": out[1]},
        params,
        invocations=out[0].numel,
        workgroup=8 if g.caps.is_cpu else 64,
        consts={"MODE": mode},
        code=f"fn rounded(v: f32) -> f32 {{ return {rounded(compute, 'v')}; }}",
    )


@op(
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
)
def choose_qparams_per_token_asymmetric(
    g: Recorder, x: Tensor, dtype: DType, *, out: list[Output]
) -> None:
    low, high = _limits(dtype, None, None)
    _choose(g, x, x.shape[-1] if x.rank else 1, 0, low, high, 2.0**-23, out)


@op("quantized_decomposed.choose_qparams.tensor")
def choose_qparams(
    g: Recorder,
    x: Tensor,
    low: int,
    high: int,
    eps: float,
    dtype: DType,
    *,
    out: list[Output],
) -> None:
    _choose(g, x, x.numel, 0, low, high, eps, out)
