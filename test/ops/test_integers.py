"""int64 in the GPU's 32 bits: the exact result or an error, never a wrapped one."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from harness import check_op

from executorch_webgpu import _shim, last_error
from executorch_webgpu.plan import wgsl_text

LOW, HIGH = -(2**31), 2**31 - 1


def i64(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


Call = Callable[..., torch.Tensor]
PAIR = (i64(3, -5), i64(4, 2))

# What is computed, of what (a result that fits), and of what it must be refused,
# with the words that say why.
BEYOND: dict[str, tuple[Call, tuple[torch.Tensor, ...], tuple, str]] = {
    "add": (torch.add, PAIR, (i64(1, HIGH), i64(1, 1)), f"{HIGH} + 1"),
    "add alpha": (
        lambda a, b: torch.add(a, b, alpha=3),
        PAIR,
        (i64(0, 0), i64(1, HIGH)),
        f"3 * {HIGH}",
    ),
    "sub": (torch.sub, PAIR, (i64(LOW, 0), i64(1, 1)), f"{LOW} - 1"),
    "rsub": (lambda a: 2 - a, PAIR[:1], (i64(0, LOW),), f"2 - {LOW}"),
    "mul": (torch.mul, PAIR, (i64(65536, 1), i64(32768, 1)), "65536 * 32768"),
    "mul down": (torch.mul, PAIR, (i64(-65536, 1), i64(32769, 1)), "-65536 * 32769"),
    "neg": (torch.neg, PAIR[:1], (i64(LOW, 1),), f"0 - {LOW}"),
    "abs": (torch.abs, PAIR[:1], (i64(LOW, 1),), f"0 - {LOW}"),
    "square": (torch.square, PAIR[:1], (i64(46341, 1),), "46341 * 46341"),
    "pow": (lambda a: a**5, PAIR[:1], (i64(74, 2),), "74 * 29986576"),
    "shift": (lambda a: a << 7, PAIR[:1], (i64(1 << 24, 1),), f"{1 << 24} << 7"),
    "addcmul": (
        torch.addcmul,
        (*PAIR, i64(1, 1)),
        (i64(1, 0), i64(HIGH, 0), i64(1, 0)),
        f"1 + {HIGH}",
    ),
    "divide": (
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        PAIR,
        (i64(LOW, 1), i64(-1, 1)),
        f"0 - {LOW}",
    ),
    "float": (
        lambda a: a.to(torch.int64),
        (torch.tensor([2147483520.0, -2147483648.0]),),
        (torch.tensor([1.0, 2147483648.0]),),
        "2.14748365e+09",
    ),
    "sum": (torch.sum, PAIR[:1], (i64(HIGH, 1),), str(2**31)),
    "sum of int32": (
        torch.sum,
        (torch.tensor([1, 2], dtype=torch.int32),),
        (torch.tensor([LOW, LOW], dtype=torch.int32),),
        str(2 * LOW),
    ),
    "prod": (torch.prod, PAIR[:1], (i64(65536, 65536),), "a larger product"),
    "cumsum": (
        lambda a: a.cumsum(0),
        PAIR[:1],
        (i64(HIGH, 5),),
        f"{HIGH} + 5",
    ),
    "cumprod": (lambda a: a.cumprod(0), PAIR[:1], (i64(HIGH, 2),), f"{HIGH} * 2"),
    "scatter_add": (
        lambda a, b: a.scatter_add(0, torch.tensor([1, 1]), b),
        PAIR,
        (i64(0, HIGH), i64(0, 1)),
        f"{HIGH} + 1",
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_an_int64_that_does_not_fit_is_an_error(name: str) -> None:
    function, fits, beyond, words = BEYOND[name]
    program = check_op(function, *fits)
    with pytest.raises(RuntimeError):
        program.run(*beyond)
    assert f"must fit int32 on the GPU, got {words}" in (last_error() or "")
    torch.testing.assert_close(program.run(*fits)[0], function(*fits))


def test_what_fits_is_exact() -> None:
    """Results at both ends, and totals that leave 32 bits on the way."""

    def calls(
        a: torch.Tensor, b: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            a + b,
            a - 1,
            a * -1,
            -a,
            abs(a),
            b * b,
            b**2,
            b << 16,
            a // b,
            a % b,
            torch.div(a, b, rounding_mode="trunc"),
            x.sum(),
            x.sum(0),
            x.cumsum(1),
            x.clamp(-9, 9).prod(1),
            torch.where(x > 9, 0, x).prod(),
            x.index_add(0, torch.tensor([1, 2, 2]), x * 0 + 5),
            x.float().to(torch.int64),
        )

    a, b = i64(HIGH - 7, LOW + 9, 0, 46340), i64(7, -8, 3, -2)
    top = 2**30
    x = torch.tensor([[top, -top, 1, -1], [top, 6, 7, 8], [-top, 0, 0, 2]])
    check_op(calls, a, b, x)


def test_totals_of_many_parts() -> None:
    """Sums that run in several parts, some of which would not fit alone."""
    half = torch.full((1 << 17,), 65521)
    x = torch.cat([half, -half, torch.arange(1000)])
    program = check_op(lambda x: (x.sum(), x[:5].cumsum(0)), x)
    with pytest.raises(RuntimeError):
        program.run(x.abs())
    assert f"got {int(x.abs().sum())}" in (last_error() or "")


def test_int32_wraps_as_in_torch() -> None:
    a = torch.tensor([HIGH, LOW, 65536], dtype=torch.int32)
    check_op(lambda a: (a + a, a * a, -a, a - 1, a.cumsum(0, dtype=torch.int32)), a)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
def test_no_integer_is_divided_by_zero(dtype: torch.dtype) -> None:
    a = torch.tensor([7, -7, 5], dtype=dtype)
    b = torch.tensor([2, 2, -3], dtype=dtype)
    program = check_op(lambda a, b: (a // b, a % b, torch.fmod(a, b)), a, b)
    with pytest.raises(RuntimeError):
        program.run(a, b * 0)
    assert "must not be divided by 0" in (last_error() or "")
    program(a, b)


def test_fused_chains_report_too() -> None:
    """Where the tensor's end is inside four elements, what lies behind it is not
    judged, whoever stores it."""
    x = torch.arange(4099, dtype=torch.float32)

    def chain(x: torch.Tensor) -> torch.Tensor:
        return (x.to(torch.int64) * 524288 - 1).clamp(max=7)

    program = check_op(chain, x % 4096)
    with pytest.raises(RuntimeError):
        program.run(x)
    assert "4096 * 524288" in (last_error() or "")


def test_products_of_int64_matrices_stay_on_the_cpu() -> None:
    x = torch.arange(6).reshape(2, 3)
    program = check_op(lambda x: x @ x.T, x, delegated=False)
    assert "32 bits hold or wrap, got int64" in str(program.report)


def test_every_kind_of_report_has_words() -> None:
    kinds = re.findall(r"^const BAD_\w+ = (\d+)u;", wgsl_text.load("status"), re.M)
    assert kinds
    assert all(int(kind) % 2 for kind in kinds)
    words = {_shim.describe_report(int(kind), 0, 3, 5) for kind in kinds}
    assert len(words) == len(kinds)
    assert not any("report must be known" in text for text in words)
