"""Elementwise ops on values that hypothesis draws, over shapes and types.

Export dominates, so all ops of a family are one program, exported once for each
shape and type; every draw fills its inputs and is worth as many examples per op
as the inputs have elements. ET_WEBGPU_EXAMPLES is the number of examples per op.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from harness import Program, lower
from hypothesis import HealthCheck, Phase, given, settings
from torch.nn import functional as F

Op = Callable[..., torch.Tensor]
Shapes = tuple[tuple[int, ...], ...]
Inputs = tuple[torch.Tensor, ...]

SIZE = 64  # elements of the largest operand, each one an example
EXAMPLES = int(os.environ.get("ET_WEBGPU_EXAMPLES", "192"))

# Whose result is the same in any correct arithmetic: held equal to eager.
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
}
# Sums inside, which may cancel: held to float64 within some ulp of the operands, or
# to eager where its own float32 overflows.
NEAR_UNARY: dict[str, Op] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink,
    "rsub": lambda x: 1.5 - x,
    "div": lambda x: x / 3,
    "frac": torch.frac,
    "angle": torch.angle,
    "lerp": lambda x: torch.lerp(x, torch.ones_like(x), 0.25),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x.clamp(-9, 9), x.clamp(1, 9)),
}
NEAR_BINARY: dict[str, Op] = {
    "logaddexp": torch.logaddexp,
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
    "rsub": lambda a, b: torch.rsub(a, b, alpha=2),
    "addcmul": lambda a, b: torch.addcmul(a, a.clamp(-9, 9), b, value=2),
    "add alpha": lambda a, b: torch.add(a, b, alpha=3),
    "prelu": lambda a, b: torch.where(a > 0, a, a * b.clamp(-1, 1)),
}
# Rounded differently by every library: held to float64 within some ulp.
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
    "leaky_relu": lambda x: F.leaky_relu(x, 0.25),
    "logsigmoid": F.logsigmoid,
    "pow3": lambda x: x**3,
    "pow2.5": lambda x: x**2.5,
    "pow-3": lambda x: x**-3,
    "2pow": lambda x: 2**x,
    "1.5pow": lambda x: 1.5**x,
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
}
SMOOTH_BINARY: dict[str, Op] = {
    "div": torch.div,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "pow": torch.pow,
    "fmod": torch.fmod,
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
}
# The ops held equal to eager, and those held to float64 in two ways.
FAMILIES: dict[str, tuple[dict[str, Op], dict[str, Op], dict[str, Op]]] = {
    "unary": (EXACT_UNARY, SMOOTH_UNARY, NEAR_UNARY),
    "binary": (EXACT_BINARY, SMOOTH_BINARY, NEAR_BINARY),
    "integer": (INTEGER, {}, {}),
}
# Ulps that a smooth result may be off; float64's own are below one.
ULPS = {torch.float32: 8.0, torch.float16: 1.0, torch.bfloat16: 1.0}
BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}

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
            return tuple(op(*inputs) for ops in FAMILIES[family] for op in ops.values())

    lowered = lower(All(), [torch.ones(shape).to(dtype) for shape in shapes])
    assert lowered.report.complete, str(lowered.report)
    return lowered


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
        left = iter(results)
        for ops, judge in zip(FAMILIES[family], (_same, _smooth, _near)):
            for name, op in ops.items():
                result = next(left)
                wanted = op(*inputs)
                assert result.dtype == wanted.dtype, name
                assert result.shape == wanted.shape, name
                good = judge(op, result, inputs) | judge(op, result, flushed)
                expect(name, inputs, result, wanted, good)


def _flush(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        return x
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, x * 0, x)


def _same(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return is_same(result, op(*inputs))


def _smooth(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return is_close(result, op(*(x.double() for x in inputs)))


def _near(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    exact = op(*(x.double() for x in inputs))
    size = 1 + exact.abs() + sum(x.double().abs() for x in inputs)
    unit = size * 2.0 ** -BITS[result.dtype]
    close = (result.double() - exact).abs() <= ULPS[result.dtype] * unit
    return close | is_close(result, exact) | is_same(result, op(*inputs))


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
    operands = [operand[at].item() for operand in torch.broadcast_tensors(*inputs)]
    raise AssertionError(f"{name}{operands} must be {wanted[at]}, got {result[at]}")


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
    smallest = torch.finfo(dtype).tiny
    exponent = torch.frexp(exact.abs().clamp_min(smallest).nan_to_num()).exponent
    unit = torch.ldexp(torch.ones_like(exact), exponent - 1 - BITS[dtype])
    # On the edge of overflow, infinity and the largest number are neighbours.
    largest = torch.finfo(dtype).max
    clipped = result.double().clamp(-largest, largest)
    close = (clipped - exact.clamp(-largest, largest)).abs() <= ULPS[dtype] * unit
    flushed = torch.finfo(torch.float32).tiny
    close |= (result.abs() < flushed) & (exact.abs() < flushed)
    return close | (result == wanted) | (result.isnan() & wanted.isnan())


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
