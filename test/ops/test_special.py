"""Special functions where drawn values are rare: poles, tails, next numbers, frexp."""

from __future__ import annotations

import math

import pytest
import torch
from accuracy import COMPOSED, MANY_ULPS, ULPS, slack
from harness import check_op, lower
from torch.export import Dim

INF, NAN = float("inf"), float("nan")
EDGES = [INF, -INF, NAN, 0.0, -0.0, 1.0, 2.0, -1.0, -2.0, -0.5, 1e-20, -1e-20, 3e38]
Results = tuple[torch.Tensor, ...]


def functions(x: torch.Tensor) -> Results:
    return (
        torch.special.i0(x),
        torch.special.i0e(x),
        torch.special.i1(x),
        torch.special.i1e(x),
        torch.special.gammaln(x),
        torch.special.digamma(x),
        torch.special.psi(x),
        torch.special.polygamma(1, x.abs()),
        torch.special.polygamma(2, x.clamp(min=-9)),
        torch.special.polygamma(3, x.clamp(min=-9)),
        torch.special.gammainc(x, x.abs().flip(0)),
        torch.special.gammaincc(x, x.abs().flip(0)),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_edges_and_other_names(dtype: torch.dtype) -> None:
    x = torch.cat([torch.tensor(EDGES), torch.randn(37) * 3]).to(dtype)
    check_op(functions, x)


def test_integers_become_floats() -> None:
    def run(x: torch.Tensor) -> Results:
        return torch.i0(x), torch.lgamma(x), torch.digamma(x), torch.polygamma(2, x)

    check_op(run, torch.arange(-3, 9))
    check_op(run, torch.tensor([True, False]))
    check_op(run, torch.empty(0, 3))
    check_op(run, torch.tensor(2.5))


def test_fused_and_of_any_size() -> None:
    def run(x: torch.Tensor) -> Results:
        return torch.special.i0e(x * 2) + 1, torch.lgamma(x).sum(-1)

    sizes = {0: Dim("rows", max=37)}
    others = [(torch.rand(n, 7) + 1,) for n in (1, 11, 37)]
    check_op(run, torch.rand(37, 7) + 1, dynamic_shapes=[sizes], others=others)


def test_higher_derivatives() -> None:
    x = torch.cat([torch.linspace(-7.9, 7.9, 113), torch.logspace(-4, 4, 37)])
    orders = (1, 2, 3, 4, 9, 20)
    program = lower(Derivatives(orders), (x,))
    assert program.report.complete, str(program.report)
    for n, result in zip(orders, program(x)):
        assert COMPOSED.holds(lambda x, n=n: torch.polygamma(n, x), result, x), n


class Derivatives(torch.nn.Module):
    def __init__(self, orders: tuple[int, ...]) -> None:
        super().__init__()
        self.orders = orders

    def forward(self, x: torch.Tensor) -> Results:
        return tuple(torch.polygamma(n, x) for n in self.orders)


class Incomplete(torch.nn.Module):
    def forward(self, a: torch.Tensor, x: torch.Tensor) -> Results:
        return torch.igamma(a, x), torch.igammac(a, x)


def test_incomplete_gamma_functions_to_their_tails() -> None:
    """Relative to the float64 values, however small."""
    sizes = torch.logspace(-4, 2.3, 113)
    a, x = torch.meshgrid(sizes, sizes * 1.01, indexing="ij")
    near = a * (1 + torch.linspace(-3, 3, 113) / a.sqrt()).clamp(min=0.01)
    a, x = torch.cat([a, a]), torch.cat([x, near])
    program = lower(Incomplete(), (a, x))
    assert program.report.complete, str(program.report)
    for result, op in zip(program(a, x), (torch.igamma, torch.igammac)):
        exact = op(a.double(), x.double())
        most = MANY_ULPS / ULPS[torch.float32] * slack(exact, torch.float32)
        error = (result.double() - exact).abs()
        assert bool(((error <= most) | (exact < 1e-37)).all()), (error / most).max()


def test_incomplete_gamma_functions_of_large_numbers() -> None:
    """Of a normal distribution, almost."""
    deviations = torch.linspace(-5, 5, 37)
    for power in (17, 30, 66, 120):
        a = 2.0**power
        x = a + math.sqrt(a) * deviations
        wanted = torch.special.ndtr((x.double() - a) / math.sqrt(a))
        program = lower(Incomplete(), (torch.tensor(a), x))
        lower_part, upper_part = program(torch.tensor(a), x)
        slope = 0.4 / math.sqrt(a) + 1e-6
        assert (lower_part - wanted).abs().max() < slope
        assert (upper_part - (1 - wanted)).abs().max() < slope


@pytest.mark.parametrize(
    ("dtype", "smallest"),
    [
        (torch.float32, 2.0**-149),
        (torch.float16, 2.0**-24),
        (torch.bfloat16, 2.0**-133),
    ],
)
def test_next_numbers_are_exact(dtype: torch.dtype, smallest: float) -> None:
    info = torch.finfo(dtype)
    numbers = [*(info.tiny, info.max, smallest, 1.0, 1.5, 0.0, INF), NAN]
    x = torch.tensor([sign * n for n in numbers for sign in (1, -1)]).to(dtype)
    x = torch.cat([x, torch.randn(37).to(dtype)])
    a, b = (t.contiguous() for t in torch.meshgrid(x, x, indexing="ij"))
    program = check_op(torch.nextafter, a, b, rtol=0, atol=0)
    result, wanted = program(a, b)[0], torch.nextafter(a, b)
    assert torch.equal(result.signbit(), wanted.signbit() & ~wanted.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_mantissas_and_exponents(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    numbers = [*EDGES, info.tiny, info.tiny / 8, -info.max, 1e-40]
    x = torch.cat([torch.tensor(numbers), torch.randn(37)]).to(dtype)

    def parts(x: torch.Tensor) -> Results:
        mantissa, exponent = torch.frexp(x)
        return (
            *(mantissa, exponent, torch.frexp(x[3:]).mantissa + 1),
            *(torch.frexp(x[:0]).exponent * 2, torch.frexp(x[5]).exponent),
        )

    check_op(parts, x, rtol=0, atol=0)


def test_parts_of_any_size() -> None:
    sizes = {0: Dim("rows", max=37)}
    others = [(torch.randn(n, 7),) for n in (1, 11, 37)]
    check_op(
        lambda x: tuple(torch.frexp(x)),
        torch.randn(37, 7),
        dynamic_shapes=[sizes],
        others=others,
        rtol=0,
        atol=0,
    )
