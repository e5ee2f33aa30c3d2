"""How near an op's results are to torch's: a limit that its registration names.

Pure data: `test/accuracy.py` measures by these limits, and docs/ops.md prints them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.dtypes import DType

# Ulps that a function may be off; float64's own are below one.
ULPS = {DType.FLOAT32: 8.0, DType.FLOAT16: 1.0, DType.BFLOAT16: 1.0}
# What sums and products of many functions may be off instead, in float32.
MANY_ULPS = 256.0
# Relative and absolute, where a bound for each element is not worth its formula.
TOLERANCES = {
    DType.FLOAT32: (1e-4, 1e-5),
    DType.FLOAT16: (4e-3, 2e-3),
    DType.BFLOAT16: (2e-2, 1e-2),
}
# The share of 8-bit quantized values that may be off by one.
STEPS = 0.01


@dataclass(frozen=True)
class Accuracy:
    """A limit: what the ops have in common, and how near they are."""

    name: str
    ops: str
    near: str


MOVED = Accuracy(
    "moved",
    "elements only move (views, cat, pad, gather, scatter, ...)",
    "the same bits",
)
EQUAL = Accuracy(
    "equal",
    "elements are chosen or counted (max, sort, comparisons, ...), are integers, or"
    " are one operation of IEEE (add, mul, floor, ...)",
    "equal to torch's; an int64 that does not fit int32 is an error",
)
FUNCTION = Accuracy(
    "function",
    "elementary functions (exp, sin, pow, div, sqrt, ...)",
    f"{ULPS[DType.FLOAT32]:.0f} ulp of float32, {ULPS[DType.FLOAT16]:.0f} of float16"
    " and bfloat16, from float64",
)
CANCELLING = Accuracy(
    "cancelling",
    "sums inside that may cancel (gelu, hardswish, lerp, ...)",
    "as many ulp, of the largest operand",
)
COMPOSED = Accuracy(
    "composed",
    "functions made of many others (igamma, igammac, polygamma)",
    f"{MANY_ULPS:.0f} ulp of float32 from float64, or as sums that cancel; these of"
    " float16 and bfloat16",
)
STEPPING = Accuracy(
    "stepping",
    "whole numbers of a quotient or a product (div with a rounding mode, ...)",
    "what operands that many ulp away give",
)
SUM = Accuracy(
    "sum",
    "sums and products (sum, mean, cumsum, mm, conv, ...)",
    "(terms + 2) * 2^-23 * the sum of the terms' magnitudes from float64, then"
    " rounded once",
)
TOLERANT = Accuracy(
    "tolerance",
    "norms, softmax, attention, resampling, distances, quantized weights",
    "; ".join(
        f"{relative:g} relative and {absolute:g} absolute in {dtype.label}"
        for dtype, (relative, absolute) in TOLERANCES.items()
    )
    + "; from torch's, for operands near 1",
)
STEP = Accuracy(
    "step",
    "rounds to 8-bit codes",
    f"equal to torch's, but for a step in {STEPS:.0%} of the codes",
)
