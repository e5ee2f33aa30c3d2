"""How near every op's results are to torch's: what the tests assert with, and what
docs/ops.md says.

A `Limit` judges results element by element. `of(name)` is the limit of a registered
op: by the module that plans it, unless it is listed. The judges know that a driver
may take numbers below the normal ones for zero, and that on the edge of overflow
infinity and the largest number are neighbours.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from executorch_webgpu.plan import registry
from executorch_webgpu.plan.pointwise import FORMULAS

Op = Callable[..., torch.Tensor]
Inputs = tuple[torch.Tensor, ...]
Judge = Callable[[Op, torch.Tensor, Inputs], torch.Tensor]

# Ulps that a function may be off; float64's own are below one.
ULPS = {torch.float32: 8.0, torch.float16: 1.0, torch.bfloat16: 1.0}
BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
# What sums and products of many functions may be off instead, in float32.
MANY_ULPS = 256.0
# Relative and absolute, where a bound for each element is not worth its formula.
TOLERANCES = {
    torch.float32: (1e-4, 1e-5),
    torch.float16: (4e-3, 2e-3),
    torch.bfloat16: (2e-2, 1e-2),
}
# The share of 8-bit codes that may be a step off.
STEPS = 0.01


@dataclass(frozen=True)
class Limit:
    """A row of the table: what the ops have in common, how near they are, a judge."""

    name: str
    ops: str
    near: str
    judge: Judge

    def holds(self, op: Op, result: torch.Tensor, *inputs: torch.Tensor) -> bool:
        """Whether `result` is near enough to `op(*inputs)`, everywhere."""
        return bool(self.judge(op, result, inputs).all())


def wide(inputs: Inputs) -> Inputs:
    """The operands with floats as float64."""
    return tuple(x.double() if x.is_floating_point() else x for x in inputs)


def magnitudes(inputs: Inputs) -> Inputs:
    return tuple(
        x.abs().where(x.isfinite(), 0) if x.is_floating_point() else x for x in inputs
    )


def is_same(result: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    same = (result == wanted) | (result.isnan() & wanted.isnan())
    if result.is_floating_point():
        # Below the normal numbers a driver may flush to zero.
        tiny = torch.finfo(torch.float32).tiny
        same |= (result.abs() < tiny) & (wanted.abs() < tiny)
    return same


def is_close(result: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Whether results are within some ulp of the float64 values."""
    dtype = result.dtype
    wanted = exact.to(dtype)
    # On the edge of overflow, infinity and the largest number are neighbours.
    largest = torch.finfo(dtype).max
    clipped = result.double().clamp(-largest, largest)
    close = (clipped - exact.clamp(-largest, largest)).abs() <= slack(exact, dtype)
    flushed = torch.finfo(torch.float32).tiny
    close |= (result.abs() < flushed) & (exact.abs() < flushed)
    return close | (result == wanted) | (result.isnan() & wanted.isnan())


def slack(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The ulps that a function may be off, of numbers of that type."""
    smallest = torch.finfo(dtype).tiny
    exponent = torch.frexp(exact.abs().clamp_min(smallest).nan_to_num()).exponent
    unit = torch.ldexp(torch.ones_like(exact), exponent - 1 - BITS[dtype])
    return ULPS[dtype] * unit


def _moved(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Equal, with the signs of zeros; any NaN is as good as another."""
    wanted = op(*inputs)
    if not result.is_floating_point():
        return result == wanted
    equal = (result == wanted) & (result.signbit() == wanted.signbit())
    return equal | (result.isnan() & wanted.isnan())


def _equal(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return is_same(result, op(*inputs))


def _function(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    exact = op(*wide(inputs))
    if not result.is_floating_point():
        return result == exact
    return is_close(result, exact)


def _cancelling(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    exact = op(*wide(inputs))
    size = 1 + exact.abs() + sum(x.double().abs() for x in inputs)
    unit = size * 2.0 ** -BITS[result.dtype]
    close = (result.double() - exact).abs() <= ULPS[result.dtype] * unit
    # Where float32 overflows on the way, it does so in torch, too.
    return close | is_close(result, exact) | is_same(result, op(*inputs))


def _composed(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    if result.dtype is not torch.float32:
        return _cancelling(op, result, inputs)
    exact = op(*wide(inputs))
    most = MANY_ULPS / ULPS[result.dtype] * slack(exact, result.dtype)
    near = (result.double() - exact).abs() <= most
    return near | _cancelling(op, result, inputs)


def _stepping(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Between what operands some ulp smaller and larger give."""
    corners = []
    for signs in itertools.product((-1, 0, 1), repeat=len(inputs)):
        moved = (
            x + sign * slack(x, result.dtype) for x, sign in zip(wide(inputs), signs)
        )
        corners.append(op(*moved).nan_to_num(0.0))
    low = functools.reduce(torch.minimum, corners)
    high = functools.reduce(torch.maximum, corners)
    inside = (result.double() >= low) & (result.double() <= high)
    return inside | is_close(result, op(*wide(inputs))) | is_same(result, op(*inputs))


def close_sum(
    op: Op, result: torch.Tensor, inputs: Inputs, terms: int = 0
) -> torch.Tensor:
    """Whether sums of products are as near to float64's as any order of summation
    in float32 is. `terms` is their number; else the largest operand's elements."""
    if not result.is_floating_point():
        return result == op(*inputs)
    exact, size = op(*wide(inputs)), op(*magnitudes(wide(inputs)))
    terms = terms or max(x.numel() for x in inputs)
    dtype = result.dtype
    largest, tiny = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny
    rounding = 2.0 ** -BITS[dtype] * exact.abs() + torch.finfo(dtype).tiny
    bound = (terms + 2) * (2.0**-23 * size + tiny) + rounding
    clipped = torch.finfo(dtype).max
    near = (result.double().clamp(-clipped, clipped) - exact).abs() <= bound
    # On the way to a sum that fits, one order may overflow and another not; and an
    # infinity that float32 makes on the way meets those that were there.
    may_overflow = size > min(largest, clipped) / 2
    return near | may_overflow | (result == exact) | (result.isnan() & exact.isnan())


def _tolerant(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    relative, absolute = TOLERANCES.get(result.dtype, (0.0, 0.0))
    return torch.isclose(
        result, op(*inputs), rtol=relative, atol=absolute, equal_nan=True
    )


def in_steps(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Equal but for a rounding that fell on the other side, which is one step."""
    if result.is_floating_point():
        return _tolerant(op, result, inputs)
    gap = (result.int() - op(*inputs).int()).abs()
    few = gap.sum() <= STEPS * gap.numel()
    return (gap == 0) | ((gap == 1) & few)


MOVED = Limit(
    "moved",
    "elements only move (views, cat, pad, gather, scatter, ...)",
    "the same bits",
    _moved,
)
EQUAL = Limit(
    "equal",
    "elements are chosen or counted (max, sort, comparisons, ...), are integers, or"
    " are one operation of IEEE (add, mul, floor, ...)",
    "equal to torch's; an int64 that does not fit int32 is an error",
    _equal,
)
FUNCTION = Limit(
    "function",
    "elementary functions (exp, sin, pow, div, sqrt, ...)",
    f"{ULPS[torch.float32]:.0f} ulp of float32, {ULPS[torch.float16]:.0f} of float16"
    " and bfloat16, from float64",
    _function,
)
CANCELLING = Limit(
    "cancelling",
    "sums inside that may cancel (gelu, hardswish, lerp, ...)",
    "as many ulp, of the largest operand",
    _cancelling,
)
COMPOSED = Limit(
    "composed",
    "functions made of many others (igamma, igammac, polygamma)",
    f"{MANY_ULPS:.0f} ulp of float32 from float64, or as sums that cancel; these of"
    " float16 and bfloat16",
    _composed,
)
STEPPING = Limit(
    "stepping",
    "whole numbers of a quotient or a product (div with a rounding mode, ...)",
    "what operands that many ulp away give",
    _stepping,
)
SUM = Limit(
    "sum",
    "sums and products (sum, mean, cumsum, mm, conv, ...)",
    "(terms + 2) * 2^-23 * the sum of the terms' magnitudes from float64, then"
    " rounded once",
    close_sum,
)
TOLERANT = Limit(
    "tolerance",
    "norms, softmax, attention, resampling, distances, quantized weights",
    "; ".join(
        f"{relative:g} relative and {absolute:g} absolute in {str(dtype)[6:]}"
        for dtype, (relative, absolute) in TOLERANCES.items()
    )
    + "; from torch's, for operands near 1",
    _tolerant,
)
STEP = Limit(
    "step",
    "rounds to 8-bit codes",
    f"equal to torch's, but for a step in {STEPS:.0%} of the codes",
    in_steps,
)
LIMITS = (
    *(MOVED, EQUAL, FUNCTION, CANCELLING, COMPOSED, STEPPING, SUM, TOLERANT, STEP),
)

# What the ops of a module do; those of `formulas` are all listed.
_MODULES = {
    "views": MOVED,
    "copies": MOVED,
    "shuffle": MOVED,
    "gather": MOVED,
    "scatter": MOVED,
    "sort": EQUAL,
    "median": EQUAL,
    "reductions": EQUAL,
    "pool": EQUAL,
    "packed_embedding": EQUAL,
    "creation": FUNCTION,
    "scan": SUM,
    "matmul": SUM,
    "convolution": SUM,
    "embedding_bag": SUM,
    "sums_of_products": SUM,
    "quantize": STEP,
    "static_int8": STEP,
    "integer_linear": TOLERANT,
    "packed_linear": TOLERANT,
    "attention": TOLERANT,
    "distance": TOLERANT,
    "kv_cache": TOLERANT,
    "rms_norm": TOLERANT,
    "norm": TOLERANT,
    "resample": TOLERANT,
    "rotary": TOLERANT,
    "softmax": TOLERANT,
}
# By the op's name without namespace and overload, or with the overload.
_LISTED = {
    EQUAL: """
        abs add angle bitwise_and bitwise_left_shift bitwise_not bitwise_or
        bitwise_right_shift bitwise_xor __lshift__ __rshift__ bucketize ceil clamp
        clamp_max clamp_min copy copysign cummax cummin empty empty_like empty_permuted
        empty_strided _empty_dim_order eq fill floor fmax fmin frac full full_like gcd
        ge gt hardshrink hardtanh isfinite isinf isnan le leaky_relu logical_and
        logical_not logical_or logical_xor lt masked_fill maximum minimum mul
        nan_to_num ne neg new_empty new_full new_ones new_zeros ones ones_like
        positive _prelu_kernel relu relu6 round.default rrelu rsub scalar_tensor
        searchsorted sgn sign signbit square sub threshold _to_copy
        _to_dim_order_copy trunc view.dtype view_copy.dtype where zeros zeros_like
        frexp nextafter
    """,
    FUNCTION: """
        acos acosh asin asinh atan atan2 atanh celu cos cosh div.Scalar div.Tensor elu
        erf erfc erfinv exp exp2 expm1 fmod hypot ldexp log log10 log1p log2
        log_sigmoid logit pow reciprocal remainder rsqrt selu sigmoid sin sinh
        softplus sqrt tan tanh true_divide xlogy
        i0 special_i0 special_i0e special_i1 special_i1e
    """,
    CANCELLING: """
        addcdiv addcmul gelu hardsigmoid hardswish lerp logaddexp mish silu softshrink
        digamma lgamma special_digamma special_gammaln special_psi
    """,
    COMPOSED: """
        igamma igammac polygamma special_gammainc special_gammaincc special_polygamma
    """,
    STEPPING: "div.Scalar_mode div.Tensor_mode floor_divide round.decimals",
    SUM: """
        _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d avg_pool1d
        avg_pool2d avg_pool3d col2im index_reduce linalg_vector_norm mean nansum prod
        scatter.reduce scatter.value_reduce scatter_add scatter_reduce sum
    """,
    TOLERANT: """
        dequantize_affine dequantize_per_channel dequantize_per_channel_group
        dequantize_per_tensor dequantize_per_token linear_q8ta_q8csw logcumsumexp
        logsumexp std var
    """,
    MOVED: """
        masked_scatter prepack update_cache update_cache_with_indices
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
        upsample_nearest1d upsample_nearest2d upsample_nearest3d
    """,
}
_BY_NAME = {name: limit for limit, text in _LISTED.items() for name in text.split()}


def overload_of(name: str) -> torch._ops.OpOverload:
    namespace, base, overload = name.split(".", 2)
    found: torch._ops.OpOverload = getattr(
        getattr(getattr(torch.ops, namespace), base), overload
    )
    return found


def module_of(name: str) -> str:
    """The module of `ops/` that plans an op; `formulas` if it is elementwise."""
    found = registry.find(name)
    assert found is not None, name
    return found.function.__module__.rpartition(".")[2]


def of(name: str) -> Limit:
    """The limit of a registered op, such as aten.add.Tensor."""
    _, base, overload = name.split(".", 2)
    for key in (f"{base}.{overload}", base):
        if key in _BY_NAME:
            return _BY_NAME[key]
    return _MODULES[module_of(name)]


# Registered to say at export why they stay on the CPU.
_REFUSED = ("aten.masked_select", "aten.native_dropout", "aten.nonzero", "webgpu.")


def public_ops() -> list[str]:
    """The ops that programs contain and kernels run: not those that passes make."""
    return sorted(n for n in registry.all_ops() if not n.startswith(_REFUSED))


# Which lowering makes others of, before it asks a backend for kernels.
REPLACED = """
    _fused_rms_norm adaptive_avg_pool1d arange.default arange.start avg_pool1d baddbmm
    batch_norm chunk col2im dot empty.memory_format fill floor_divide hardshrink
    log_softmax.int mv narrow new_empty new_full new_ones new_zeros ones ones_like
    positive select_scatter softmax.int softshrink split split_with_sizes stack
    sum.default t_copy transpose_copy unbind upsample_bicubic2d.default
    upsample_bilinear2d.default var.dim zeros zeros_like
"""


def is_replaced(name: str) -> bool:
    _, base, overload = name.split(".", 2)
    return not {base, f"{base}.{overload}"}.isdisjoint(REPLACED.split())


def same_code(name: str) -> set[str]:
    """The ops that an op shares its code with: lowering knows some by another name."""
    formula = FORMULAS.get(name)
    function = registry.all_ops()[name].function
    return {
        other
        for other, op in registry.all_ops().items()
        if (formula is not None and FORMULAS.get(other) is formula)
        or op.function is function
    }


def drawn_ops() -> set[str]:
    """The elementwise ops: hypothesis draws their operands."""
    return {
        name
        for name in public_ops()
        if module_of(name) == "formulas"
        and any("Tensor" in str(a.type) for a in overload_of(name)._schema.arguments)
        and not is_undefined(name)
        and not is_replaced(name)
    }


def is_undefined(name: str) -> bool:
    """Whether torch leaves the result's elements to chance."""
    return "empty" in name.split(".")[1]


# Those that test_shapes_and_values draws shapes and values for, by its families.
SHAPED = {
    "choosing": """
        all.dim amax.default amin.default any.dim argmax.default argmin.default
        max.default max.dim median.dim min.dim sort.default topk.default
    """,
    "sums": """
        avg_pool2d.default cumsum.default linalg_vector_norm.default mean.dim
        sum.dim_IntList
    """,
    "products": """
        addmm.default bmm.default convolution.default linear.default matmul.default
    """,
    "movement": """
        cat.default constant_pad_nd.default embedding.default expand_copy.default
        flip.default gather.default index.Tensor index_put.default
        permute_copy.default repeat.default roll.default scatter.src select_copy.int
        slice_copy.Tensor tril.default triu.default unsqueeze_copy.default
        upsample_nearest1d.vec view_copy.default
    """,
}
# Executed and compared elsewhere, and why not by a call of their own.
_CACHE = ("test_kv_cache", "changes a cache, call after call")
_CHOICE = ("test_every_op", "its scale, a float64, cannot leave a delegate")
OUTSIDE = {
    "aten._grouped_mm.default": (
        "test_grouped_mm",
        "torch traces it in bfloat16 only",
    ),
    "llama.sdpa_with_kv_cache.default": _CACHE,
    "llama.update_cache.default": _CACHE,
    "llama.update_cache_with_indices.default": _CACHE,
    "quantized_decomposed.choose_qparams.tensor": _CHOICE,
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default": _CHOICE,
    "et_vk.linear_dq8ca_q4gsw.default": (
        "test_quantized",
        "the op's eager body does not round its input",
    ),
}


def test_of(name: str) -> str:
    """The module of test/ops that executes an op and compares it."""
    if name in OUTSIDE:
        return OUTSIDE[name][0]
    if name in drawn_ops():
        return "test_properties"
    shaped = {f"aten.{part}" for text in SHAPED.values() for part in text.split()}
    return "test_shapes_and_values" if name in shaped else "test_every_op"


def listed() -> set[str]:
    """Every op that is named here."""
    return {*_BY_NAME, *REPLACED.split(), *" ".join(SHAPED.values()).split()} | {
        name.split(".", 1)[1] for name in OUTSIDE
    }
