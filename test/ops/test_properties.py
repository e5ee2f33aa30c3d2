"""Elementwise ops on values that hypothesis draws, over shapes and types.

Export dominates, so all ops of a family are one program, exported once for each
shape and type; every draw fills its inputs and is worth as many examples per op
as the inputs have elements. ET_WEBGPU_EXAMPLES is the number of examples per op.
Each op is judged by its limit of accuracy.py, and none may be missing.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import hypothesis.strategies as st
import op_calls
import pytest
import torch
from accuracy import (
    CANCELLING,
    COMPOSED,
    EQUAL,
    FUNCTION,
    STEPPING,
    Limit,
    Op,
    of,
)
from harness import Program, lower
from hypothesis import HealthCheck, Phase, given, settings
from op_coverage import drawn_ops, overload_of, same_code
from torch.nn import functional as F

Shapes = tuple[tuple[int, ...], ...]
A = torch.ops.aten

SIZE = 64  # elements of the largest operand, each one an example
EXAMPLES = int(os.environ.get("ET_WEBGPU_EXAMPLES", "192"))

# Whose result is the same in any correct arithmetic.
EXACT_UNARY: dict[str, Op] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "round": torch.round,
    "trunc": torch.trunc,
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "square": torch.square,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "signbit": torch.signbit,
    "logical_not": torch.logical_not,
    "nan_to_num": torch.nan_to_num,
    "clamp": lambda x: x.clamp(-1.5, 2.0),
    "clamp_min": lambda x: x.clamp_min(0.5),
    "gt": lambda x: x > 0.5,
    "eq": lambda x: x == 0.5,
    "add": lambda x: x + 0.5,
    "bool": lambda x: x.bool(),
    "sgn": torch.sgn,
    "positive": torch.positive,
    "sub": lambda x: x - 0.25,
    "mul": lambda x: x * 4,
    "lt": lambda x: x < 1,
    "ge": lambda x: x >= -1,
    "ne": lambda x: x != 0,
    "copysign": lambda x: torch.copysign(x, -1.0),
    "fill": lambda x: torch.full_like(x, 2.5),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "view.dtype": lambda x: x.view(torch.int32 if x.element_size() == 4 else x.dtype),
    "le": lambda x: x <= 1,
    "clamp_max": lambda x: x.clamp_max(0.5),
    "rsub": lambda x: 1.5 - x,
    "frac": torch.frac,
    "angle": torch.angle,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.25),
    "rrelu": lambda x: F.rrelu(x, 0.125, 0.375),
    "add.Scalar": lambda x: A.add.Scalar(x, 0.5),
    "sub.Scalar": lambda x: A.sub.Scalar(x, 0.5),
    "mul.Scalar": lambda x: A.mul.Scalar(x, 3),
    "fill.Scalar": lambda x: A.fill.Scalar(x, 2.5),
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "new_full": lambda x: x.new_full((2, 3), 1.5),
    "new_ones": lambda x: A.new_ones(x, [3]),
    "new_zeros": lambda x: A.new_zeros(x, [3]),
}
# Sums inside, which may cancel.
NEAR_UNARY: dict[str, Op] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink,
    "lerp": lambda x: torch.lerp(x, torch.ones_like(x), 0.25),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x.clamp(-9, 9), x.clamp(1, 9)),
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
}
# torch takes as many steps as a negative operand is large, and misses the poles of
# the first derivative.
COMPOSED_UNARY: dict[str, Op] = {
    "polygamma 0": lambda x: torch.polygamma(0, x),
    "polygamma 1": lambda x: torch.polygamma(1, x.abs()),
    "polygamma 2": lambda x: torch.polygamma(2, x.clamp(min=-20)),
    "polygamma 5": lambda x: torch.polygamma(5, x.clamp(-20, 100)),
}
# For large operands torch gives up before its series converges.
COMPOSED_BINARY: dict[str, Op] = {
    "igamma": lambda a, b: torch.igamma(a.clamp(max=200), b),
    "igammac": lambda a, b: torch.igammac(a.clamp(max=200), b),
}
STEP_UNARY: dict[str, Op] = {
    "round2": lambda x: torch.round(x, decimals=2),
    "round-1": lambda x: torch.round(x, decimals=-1),
    "div.Scalar_mode": lambda x: A.div.Scalar_mode(x, 0.7, rounding_mode="trunc"),
    "floor_divide.Scalar": lambda x: A.floor_divide.Scalar(x, 3),
}
NEAR_BINARY: dict[str, Op] = {
    "logaddexp": torch.logaddexp,
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
    "rsub": lambda a, b: torch.rsub(a, b, alpha=2),
    "addcmul": lambda a, b: torch.addcmul(a, a.clamp(-9, 9), b, value=2),
    "add alpha": lambda a, b: torch.add(a, b, alpha=3),
    "lerp.Tensor": lambda a, b: torch.lerp(a, b, b.clamp(0, 1)),
    "addcdiv": lambda a, b: torch.addcdiv(a, a.clamp(-9, 9), b.clamp(1, 9)),
}
STEP_BINARY: dict[str, Op] = {
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
}
# Rounded differently by every library.
SMOOTH_UNARY: dict[str, Op] = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "softplus": F.softplus,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "logsigmoid": F.logsigmoid,
    "pow3": lambda x: x**3,
    "pow2.5": lambda x: x**2.5,
    "pow-3": lambda x: x**-3,
    "2pow": lambda x: 2**x,
    "1.5pow": lambda x: 1.5**x,
    "div": lambda x: x / 3,
    "div.Scalar": lambda x: A.div.Scalar(x, 3),
    "logit": torch.logit,
    "logit eps": lambda x: torch.logit(x, 0.125),
    "fmod.Scalar": lambda x: x.fmod(0.75),
    "remainder.Scalar": lambda x: x.remainder(0.75),
    "remainder.Scalar_Tensor": lambda x: torch.remainder(2.5, x),
    "i0": torch.i0,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
}
EXACT_BINARY: dict[str, Op] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "copysign": torch.copysign,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "where": lambda a, b: torch.where(a > b, a, b),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 3.0),
    "clamp_min": lambda a, b: a.clamp(min=b),
    "clamp_max": lambda a, b: a.clamp(max=b),
    "clamp_min.Tensor": lambda a, b: A.clamp_min.Tensor(a, b),
    "clamp_max.Tensor": lambda a, b: A.clamp_max.Tensor(a, b),
    "clamp.Tensor": lambda a, b: torch.clamp(a, b, b.abs()),
    "masked_fill.Tensor": lambda a, b: a.masked_fill(b > 0, torch.tensor(3.0)),
    "fill.Tensor": lambda a, b: A.fill.Tensor(a * b, torch.tensor(2.5)),
    "copy": lambda a, b: A.copy(a * b, b),
    "prelu": lambda a, b: A._prelu_kernel(a, b),
    "rsub": torch.rsub,
    "nextafter": torch.nextafter,
}
SMOOTH_BINARY: dict[str, Op] = {
    "div": torch.div,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "pow": torch.pow,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "true_divide": lambda a, b: A.true_divide.Tensor(a, b),
    "xlogy": torch.xlogy,
    # Beyond that, float32 overflows on the way in torch, too.
    "ldexp": lambda a, b: torch.ldexp(a, b.clamp(-60, 60)),
}
INTEGER: dict[str, Op] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: a.abs(),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": lambda a, b: ~a,
    "left": lambda a, b: a << (b & 7),
    "right": lambda a, b: a >> (b & 7),
    "pow": lambda a, b: a ** (b & 3),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "lt": torch.lt,
    "ge": torch.ge,
    "where": lambda a, b: torch.where(a > b, a, b),
    "floor_divide": torch.floor_divide,
    "fmod2": lambda a, b: a.fmod(7),
    "remainder7": lambda a, b: a.remainder(7),
    "or3": lambda a, b: a | 3,
    "xor3": lambda a, b: a ^ 3,
    "left2": lambda a, b: (a & 15) << 2,
    "right2": lambda a, b: a >> 2,
    "rsub": lambda a, b: 9 - a,
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 3),
    "float": lambda a, b: a.float(),
    "uint8": lambda a, b: a.to(torch.uint8),
    "int16": lambda a, b: a.to(torch.int16),
    "logical_and": torch.logical_and,
    # The smallest integer has no absolute value of its type.
    "gcd": lambda a, b: torch.gcd(a // 2, b // 2),
    "lcm": lambda a, b: torch.lcm(a // 2, b // 2),
    "and.Scalar_Tensor": lambda a, b: torch.bitwise_and(5, a),
    "or.Scalar_Tensor": lambda a, b: torch.bitwise_or(5, a),
    "xor.Scalar_Tensor": lambda a, b: torch.bitwise_xor(5, a),
    "and3": lambda a, b: a & 3,
    "left.Tensor": lambda a, b: torch.bitwise_left_shift(a, b & 7),
    "left.Tensor_Scalar": lambda a, b: torch.bitwise_left_shift(a & 15, 2),
    "left.Scalar_Tensor": lambda a, b: torch.bitwise_left_shift(1, b & 3),
    "right.Tensor": lambda a, b: torch.bitwise_right_shift(a, b & 7),
    "right.Tensor_Scalar": lambda a, b: torch.bitwise_right_shift(a, 2),
    "right.Scalar_Tensor": lambda a, b: torch.bitwise_right_shift(100, b & 3),
}
FAMILIES: dict[str, tuple[tuple[Limit, dict[str, Op]], ...]] = {
    "unary": (
        (EQUAL, EXACT_UNARY),
        (FUNCTION, SMOOTH_UNARY),
        (CANCELLING, NEAR_UNARY),
        (COMPOSED, COMPOSED_UNARY),
        (STEPPING, STEP_UNARY),
    ),
    "binary": (
        (EQUAL, EXACT_BINARY),
        (FUNCTION, SMOOTH_BINARY),
        (CANCELLING, NEAR_BINARY),
        (COMPOSED, COMPOSED_BINARY),
        (STEPPING, STEP_BINARY),
    ),
    "integer": ((EQUAL, INTEGER),),
}

PAIRS: list[Shapes] = [
    ((SIZE,), (SIZE,)),
    ((8, 1), (1, 8)),
    ((2, 1, 4, 8), (4, 1)),
    ((SIZE,), ()),
    ((), ()),
    ((0, 3), (1, 3)),
]


@functools.cache
def program(family: str, dtype: torch.dtype, shapes: Shapes) -> Program:
    class All(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(op(*inputs) for _, _, op in entries(family))

    lowered = lower(All(), [torch.ones(shape).to(dtype) for shape in shapes])
    assert lowered.report.complete, str(lowered.report)
    drawn: dict[Limit, set[str]] = {}
    for (limit, _, _), behind in zip(entries(family), lowered.behind, strict=True):
        drawn.setdefault(limit, set()).update(behind)
    left = {name for name in members(family) if not drawn[of(name)] & same_code(name)}
    assert not left, f"these must be drawn, to be judged as they are listed: {left}"
    return lowered


def entries(family: str) -> list[tuple[Limit, str, Op]]:
    return [
        (limit, name, op) for limit, ops in FAMILIES[family] for name, op in ops.items()
    ]


def members(family: str) -> set[str]:
    """The elementwise ops that must be among a family's: every op is in one."""
    found = set()
    for name in drawn_ops():
        schema = overload_of(name)._schema
        operands = sum(str(a.type) == "Tensor" for a in schema.arguments)
        kind = "unary" if operands == 1 else "binary"
        if not op_calls.is_real(name, torch.float32):
            kind = "integer"
        if kind == family:
            found.add(name)
    return found


def floats(shape: tuple[int, ...], dtype: torch.dtype) -> st.SearchStrategy[Any]:
    """Tensors of ordinary, huge, tiny and special numbers."""
    width = 32 if dtype is torch.float32 else 16
    number = st.one_of(
        st.floats(width=width),
        st.floats(-10, 10, width=width),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan]),
    )
    count = math.prod(shape)
    values = st.lists(number, min_size=count, max_size=count)
    return values.map(lambda v: torch.tensor(v).reshape(shape).to(dtype))


def integers(shape: tuple[int, ...], dtype: torch.dtype) -> st.SearchStrategy[Any]:
    info = torch.iinfo(dtype)
    # int64 is exact within int32: cubes must stay there.
    low, high = (-1290, 1290) if dtype is torch.int64 else (info.min, info.max)
    number = st.one_of(st.integers(low, high), st.integers(max(low, -9), min(high, 9)))
    count = math.prod(shape)
    values = st.lists(number, min_size=count, max_size=count)
    return values.map(lambda v: torch.tensor(v, dtype=dtype).reshape(shape))


def draws(shape: tuple[int, ...]) -> settings:
    """As many draws as give every op its number of examples."""
    return settings(
        max_examples=max(2, -(-EXAMPLES // SIZE)) if math.prod(shape) else 1,
        deadline=None,
        database=None,
        derandomize=True,
        # Smaller counter-examples are not worth their time.
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def check(family: str, *inputs: torch.Tensor) -> None:
    shapes = tuple(tuple(x.shape) for x in inputs)
    made = program(family, inputs[0].dtype, shapes)
    # A driver may take numbers below the normal ones for zero, with their sign.
    flushed = tuple(_flush(x) for x in inputs)
    for results in (made.run(*inputs), *(r for _, r in made.run_twins(*inputs))):
        for (limit, name, op), result in zip(entries(family), results, strict=True):
            wanted = op(*inputs)
            assert result.dtype == wanted.dtype, name
            assert result.shape == wanted.shape, name
            good = limit.judge(op, result, inputs) | limit.judge(op, result, flushed)
            expect(name, inputs, result, wanted, good)


def _flush(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        return x
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, x * 0, x)


def expect(
    name: str,
    inputs: tuple[torch.Tensor, ...],
    result: torch.Tensor,
    wanted: torch.Tensor,
    good: torch.Tensor,
) -> None:
    if bool(good.all()):
        return
    at = tuple((~good).nonzero()[0].tolist())
    same = torch.broadcast_shapes(*(x.shape for x in inputs)) == result.shape
    operands = [x[at].item() if same else x for x in torch.broadcast_tensors(*inputs)]
    raise AssertionError(f"{name}{operands} must be {wanted[at]}, got {result[at]}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_unary(dtype: torch.dtype) -> None:
    @draws((SIZE,))
    @given(floats((SIZE,), dtype))
    def run(x: torch.Tensor) -> None:
        check("unary", x)

    run()


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
def test_binary(shapes: Shapes) -> None:
    @draws(torch.broadcast_shapes(*shapes))
    @given(floats(shapes[0], torch.float32), floats(shapes[1], torch.float32))
    def run(a: torch.Tensor, b: torch.Tensor) -> None:
        check("binary", a, b)

    run()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.int8])
def test_integer(dtype: torch.dtype) -> None:
    shapes = ((SIZE,), (SIZE,))

    @draws((SIZE,))
    @given(integers(shapes[0], dtype), integers(shapes[1], dtype))
    def run(a: torch.Tensor, b: torch.Tensor) -> None:
        # torch refuses to divide by 0, and -2^31 / -1 has no answer.
        b = torch.where((b == 0) | (b == -1), torch.ones_like(b), b)
        check("integer", a, b)

    run()
