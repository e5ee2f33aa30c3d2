"""Types: conversion between all pairs, promotion, rounding and exact integers."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from harness import check_op, compare, lower

from executorch_webgpu import WebGPUPartitioner

Results = tuple[torch.Tensor, ...]

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
TYPES = (*FLOATS, *INTEGERS, torch.bool)
LOW, HIGH = -(2**31), 2**31 - 1


def sample(dtype: torch.dtype) -> torch.Tensor:
    """Values of the type that every other type can be asked to hold."""
    if dtype is torch.bool:
        return torch.tensor([True, False, True, False])
    if dtype.is_floating_point:
        # Beyond a small integer's range, and for NaN, C++ leaves the result open.
        return torch.tensor(
            [0.0, -0.0, 0.4, 0.6, 1.5, 2.5, 99.9, 127.0, 0.3, 1e-3, 1e-7], dtype=dtype
        )
    info = torch.iinfo(dtype)
    low, high = max(info.min, LOW), min(info.max, HIGH)
    return torch.tensor(
        [0, 1, 2, 100, low, high, low + 1, high - 1, 127, high // 3], dtype=dtype
    )


@pytest.mark.parametrize("source", TYPES, ids=lambda t: str(t).removeprefix("torch."))
def test_conversion(source: torch.dtype) -> None:
    """To every type, and back through it: a fused pair must round in between."""

    def ops(x: torch.Tensor) -> Results:
        once = tuple(x.to(target) for target in TYPES if target is not source)
        back = tuple(
            x.to(target).to(source) for target in FLOATS if source.is_floating_point
        )
        return once + back

    check_op(ops, sample(source), rtol=0, atol=0)


def test_conversion_of_special_floats() -> None:
    x = torch.tensor(
        [float("nan"), float("inf"), -float("inf"), 65519.0, 65520.0, -1e6, 1e-8, 3e38]
    )
    y = torch.tensor([-1.5, -2.9, -128.0, 2e9, -2e9, 16777217.0, -0.99])

    def ops(x: torch.Tensor, y: torch.Tensor) -> Results:
        halves = x.half(), x.bfloat16()
        return (
            *halves, *(half.float() for half in halves), x.bool(), halves[0].bool(),
            y.int(), y.long(), y.bool(), y.int().float(), y.half().float(),
        )  # fmt: skip

    check_op(ops, x, y, rtol=0, atol=0)


def test_bits_as_another_type() -> None:
    """Alone and between other steps."""
    x = torch.tensor(
        [1.5, -0.0, float("inf"), -float("inf"), float("nan"), 3e38, 1e-30]
    )
    n = torch.tensor([0, 1065353216, -1, LOW, HIGH, -1082130432, 7], dtype=torch.int32)

    def ops(x: torch.Tensor, n: torch.Tensor, b: torch.Tensor) -> Results:
        return (
            x.view(torch.int32),
            (x * 2).view(torch.int32) & 0x7F800000,
            ((x.view(torch.int32) >> 1) + 532487670).view(torch.float32) * 1.5,
            x.view(torch.int32).view(torch.float32),
            n.view(torch.float32).view(torch.int32),
            x[1:].view(torch.int32),
            b.view(torch.int8),
            b.view(torch.int8).view(torch.uint8),
            x.view(torch.float32) + 1,
        )

    check_op(ops, x, n, sample(torch.uint8), rtol=0, atol=0)


def test_bits_of_another_width_are_refused() -> None:
    class Bits(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(torch.int16) + 1

    partitioner = WebGPUPartitioner()
    exported = torch.export.export(Bits(), (torch.randn(3).half(),))
    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    (fallback,) = partitioner.report.fallbacks
    assert fallback.op == "aten.view_copy.dtype"
    assert fallback.reason.endswith("got float16 as int16")


def test_promotion() -> None:
    """Every pair of types, one after another, and with Python numbers."""
    samples = [sample(dtype)[:4] for dtype in TYPES]

    def ops(*inputs: torch.Tensor) -> Results:
        results = []
        for number, a in enumerate(inputs):
            for b in inputs[number:]:
                results.append(a * b)
            if a.dtype is not torch.bool:
                results += [a + 1, 3 - a, a > 0.5]
            results += [a * 0.5, a / 2, a + True]
        return tuple(results)

    check_op(ops, *samples, rtol=0, atol=0)


def test_integers_wrap() -> None:
    inputs = []
    for dtype in (torch.int32, torch.uint8, torch.int8, torch.int16):
        info = torch.iinfo(dtype)
        ends = [info.min, info.min + 1, 0, 1, 3, info.max - 1, info.max]
        values = torch.tensor(ends, dtype=dtype)
        inputs += [values.repeat_interleave(7), values.repeat(7)]

    def of_pair(a: torch.Tensor, b: torch.Tensor) -> Results:
        return (
            a + b, a - b, a * b, torch.add(a, b, alpha=3), a * a * b, -a, a.abs(),
            torch.maximum(a, b), torch.minimum(a, b), a & b, a | b, a ^ b, ~a,
            a < b, a <= b, a == b, a != b, a.sign(), a.clamp(1, 3), torch.square(a),
            a.bool(), torch.logical_and(a, b), torch.logical_not(a), a**3,
        )  # fmt: skip

    def ops(*inputs: torch.Tensor) -> Results:
        pairs = zip(inputs[::2], inputs[1::2])
        return tuple(result for a, b in pairs for result in of_pair(a, b))

    check_op(ops, *inputs)


def test_integer_division() -> None:
    """All combinations of signs, and the ends of the range."""
    values = torch.tensor([LOW + 1, -7, -6, -1, 0, 1, 5, 6, 7, HIGH], dtype=torch.int32)
    a = torch.cat([values, torch.tensor([LOW], dtype=torch.int32)])[:, None]
    b = torch.tensor([LOW + 1, -3, -2, 1, 2, 3, 7, HIGH], dtype=torch.int32)

    def ops(a: torch.Tensor, b: torch.Tensor) -> Results:
        return (
            torch.div(a, b, rounding_mode="trunc"),
            torch.div(a, b, rounding_mode="floor"),
            a // b,
            a % b,
            torch.remainder(a, b),
            torch.fmod(a, b),
            a // -3,
            a % -3,
            torch.gcd(a[:-1], b),
        )

    check_op(lambda a, b, c, d: (*ops(a, b), *ops(c, d)[:6]), a, b, a.long(), b.long())


def test_uint8_division() -> None:
    a = torch.arange(256, dtype=torch.uint8)[:, None]
    b = torch.tensor([1, 2, 3, 127, 128, 255], dtype=torch.uint8)

    def ops(a: torch.Tensor, b: torch.Tensor) -> Results:
        return a // b, a % b, torch.fmod(a, b), a >> (b & 7), a << (b & 7), a / b

    check_op(ops, a, b, rtol=1e-6, atol=0)


def test_shifts() -> None:
    a = torch.tensor([LOW, -7, -1, 0, 1, 5, HIGH], dtype=torch.int32)[:, None]
    b = torch.tensor([0, 1, 5, 30, 31], dtype=torch.int32)
    far = torch.tensor([32, 33, 63, 64, 1000], dtype=torch.int32)

    def ops(a: torch.Tensor, b: torch.Tensor, far: torch.Tensor) -> Results:
        return (
            a << b, a >> b, torch.bitwise_left_shift(a, b), a >> 3, a << 3,
            torch.bitwise_right_shift(a, far), torch.bitwise_left_shift(a, far),
        )  # fmt: skip

    check_op(ops, a, b, far)


def test_integer_powers_are_exact() -> None:
    a = torch.tensor([-3, -2, -1, 0, 1, 2, 3, 10, 46340], dtype=torch.int32)[:, None]
    b = torch.tensor([0, 1, 2, 3, 5, 19, 31], dtype=torch.int32)

    def ops(a: torch.Tensor, b: torch.Tensor) -> Results:
        return a**b, a**2, a**5, 3**b, torch.pow(a, -b.abs())

    check_op(ops, a, b)


def test_bool_arithmetic() -> None:
    a = torch.tensor([True, True, False, False])
    b = torch.tensor([True, False, True, False])

    def ops(a: torch.Tensor, b: torch.Tensor) -> Results:
        return (
            a + b, a * b, a & b, a | b, a ^ b, ~a, a == b, a < b, a <= b, a > b, a >= b,
            a + 1, a * 2.5, a / b, torch.where(a, b, ~b), torch.maximum(a, b),
            torch.logical_xor(a, b), a.float() - 1, a.masked_fill(b, False),
        )  # fmt: skip

    check_op(ops, a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_round_once_per_op(dtype: torch.dtype) -> None:
    """Chains are fused, yet every op's result has the type's precision."""
    a, b = torch.randn(37, 7).to(dtype), (torch.randn(37, 7) * 3).to(dtype)

    def ops(a: torch.Tensor, b: torch.Tensor) -> Results:
        return (
            a + b, a * b - a, (a + b) * a + b, (a * 1000) * (b * 1000) * 0,
            a == 0.1, a > 0.1, a / b, a.float() * b, (a + b).float(), a.abs().sqrt(),
            a.relu() + b, torch.maximum(a, b) - a, a * 3 + 0.1,
        )  # fmt: skip

    check_op(ops, a, b, rtol=0, atol=0)


def test_halves_of_functions() -> None:
    x = torch.randn(113) * 4

    def ops(x: torch.Tensor) -> Results:
        return x.exp(), x.tanh(), x.sigmoid(), x.sin(), x.abs().log(), x.erf()

    for dtype, unit in ((torch.float16, 2.0**-10), (torch.bfloat16, 2.0**-7)):
        half = x.to(dtype)
        exact = [result.to(dtype) for result in ops(half.double())]

        class Ops(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> Results:
                return ops(x)

        program = lower(Ops(), (half,))
        assert program.report.complete, str(program.report)
        # The nearest half, or where two are equally near its neighbour.
        compare(program(half), exact, rtol=unit, atol=2.0**-24)


def test_numbers_beyond_int32_stay_on_the_cpu() -> None:
    check_op(
        lambda x: (x + 1, torch.full_like(x, 2**40)), torch.arange(3), delegated=False
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.bool])
def test_what_is_stored_after_a_chain_has_its_type(dtype: torch.dtype) -> None:
    """Whatever kernel the chain is fused into, and whatever reads the result."""
    weight = torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(1))

    def tails(
        x: torch.Tensor, n: torch.Tensor, i: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        heads = (
            x.softmax(1) * 120,
            (x @ x.T).abs(),
            torch.nn.functional.interpolate(x[None, None], scale_factor=2) * 9,
            torch.nn.functional.conv2d(x.reshape(1, 2, 6, 6), weight),
            x.sum(0) * 3,
            x.cumsum(0) * 3,
            n.gather(0, i),
            n.sum(0, keepdim=True) + n,
            torch.cat([x, x]) * 5,
        )
        made = [head.trunc().abs().to(dtype) for head in heads]
        return (
            *made,
            *(value.flip(0).float() + 1 for value in made),
            *(value.to(torch.int32).amax(0) for value in made),
        )

    x = torch.randn(8, 9, generator=torch.Generator().manual_seed(2))
    n = torch.tensor([300, -5, 7, 1000], dtype=torch.int32)
    check_op(tails, x, n, torch.tensor([0, 1, 3]))
