"""Elementwise and creation ops against eager, and functions against float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import check_op, lower
from torch.export import Dim
from torch.nn import functional as F

from executorch_webgpu.plan import registry

Unary = Callable[[torch.Tensor], torch.Tensor]
Results = tuple[torch.Tensor, ...]


class _All(torch.nn.Module):
    """Several functions of the same inputs in one program."""

    def __init__(self, functions: list[Callable[..., torch.Tensor]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: torch.Tensor) -> Results:
        return tuple(function(*inputs) for function in self.functions)


def ulps(result: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The error of float32 results in units in their last place."""
    rounded = exact.float()
    up = torch.nextafter(rounded.abs(), torch.tensor(float("inf")))
    unit = (up.double() - rounded.abs().double()).clamp_min(2.0**-149)
    unit = torch.where(rounded.isinf(), torch.ones_like(unit), unit)
    same = (result == rounded) | (result.isnan() & rounded.isnan())
    return torch.where(same, 0.0, (result.double() - exact).abs() / unit).nan_to_num(
        nan=float("inf"), posinf=float("inf")
    )


def spread(low: float, high: float, count: int = 2000) -> torch.Tensor:
    """Both signs, magnitudes even on a logarithmic scale."""
    exponents = torch.linspace(0, 1, count, dtype=torch.float64)
    values = low * (high / low) ** exponents
    return (values * (torch.arange(count) % 2 * 2 - 1)).float()


# The specials that every function gets besides its range.
SPECIAL = torch.tensor(
    [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 0.5, -2.0, 1e30]
)

# name -> (function, largest error in ulp, lowest and highest magnitude)
FUNCTIONS: dict[str, tuple[Unary, float, float, float]] = {
    "exp": (torch.exp, 2, 1e-7, 88),
    "exp2": (torch.exp2, 2, 1e-7, 127),
    "expm1": (torch.expm1, 2, 1e-12, 88),
    "log": (torch.log, 2, 1e-37, 1e38),
    "log near 1": (torch.log, 2, 0.5, 2),
    "log2": (torch.log2, 3, 0.5, 2),
    "log10": (torch.log10, 3, 0.5, 2),
    "log1p": (torch.log1p, 3, 1e-12, 1e10),
    "sin": (torch.sin, 2, 1e-8, 3000),
    "sin large": (torch.sin, 3, 3000, 3e38),
    "cos": (torch.cos, 2, 1e-8, 3000),
    "cos large": (torch.cos, 3, 3000, 3e38),
    "tan": (torch.tan, 4, 1e-8, 1e10),
    "asin": (torch.asin, 3, 1e-8, 1),
    "acos": (torch.acos, 2, 1e-8, 1),
    "atan": (torch.atan, 2, 1e-8, 1e30),
    "sinh": (torch.sinh, 3, 1e-8, 89),
    "cosh": (torch.cosh, 3, 1e-8, 89),
    "tanh": (torch.tanh, 3, 1e-8, 20),
    "asinh": (torch.asinh, 3, 1e-8, 1e38),
    "acosh": (torch.acosh, 4, 1, 1e38),
    "atanh": (torch.atanh, 4, 1e-8, 1),
    "sigmoid": (torch.sigmoid, 4, 1e-8, 80),
    "erf": (torch.erf, 2, 1e-8, 8),
    "erfc": (torch.erfc, 6, 1e-8, 9),
    "erfinv": (torch.erfinv, 4, 1e-8, 1),
    "logit": (torch.logit, 4, 1e-6, 1),
    "i0": (torch.i0, 7, 1e-8, 91),
    "i0e": (torch.special.i0e, 5, 1e-8, 1e30),
    "i1": (torch.special.i1, 7, 1e-8, 91),
    "i1e": (torch.special.i1e, 5, 1e-8, 1e30),
    "lgamma": (lambda x: torch.lgamma(x.abs()), 5, 1e-8, 1e30),
    "polygamma 1": (lambda x: torch.polygamma(1, x.abs()), 6, 1e-8, 1e30),
    "polygamma 2": (lambda x: torch.polygamma(2, x.abs()), 7, 1e-8, 1e12),
    "sqrt": (torch.sqrt, 3, 1e-37, 1e38),
    "rsqrt": (torch.rsqrt, 4, 1e-37, 1e38),
    "reciprocal": (torch.reciprocal, 3, 1e-37, 1e37),
    "pow 1.75": (lambda x: x**1.75, 3, 1e-20, 1e20),
    "pow -7": (lambda x: x**-7, 3, 1e-5, 1e5),
    "1.0078125 pow": (lambda x: 1.0078125**x, 6, 1e-5, 11000),
}


def test_functions_are_accurate() -> None:
    entries = list(FUNCTIONS.values())
    # One input each, so that all share a program.
    inputs = [torch.cat([spread(low, high), SPECIAL]) for _, _, low, high in entries]

    class All(torch.nn.Module):
        def forward(self, *xs: torch.Tensor) -> Results:
            return tuple(entry[0](x) for entry, x in zip(entries, xs))

    program = lower(All(), inputs)
    assert program.report.complete, str(program.report)
    failures = []
    for name, x, result in zip(FUNCTIONS, inputs, program(*inputs)):
        function, limit, _, _ = FUNCTIONS[name]
        exact = function(x.double())
        # A result below the normal numbers may be flushed to zero.
        tiny = (exact.abs() < 2.0**-126) & (result.abs() < 2.0**-126)
        error = torch.where(tiny, 0.0, ulps(result, exact))
        worst = int(error.argmax())
        if error[worst] > limit:
            failures.append(
                f"{name}({x[worst]}) = {result[worst]}, not {exact[worst]}:"
                f" {error[worst]:.1f} ulp"
            )
        zeros = (exact == 0) & (x == 0)
        if not torch.equal(result[zeros].signbit(), exact[zeros].signbit()):
            failures.append(f"{name}: the sign of a zero is lost")
    assert not failures, "\n".join(failures)


def test_gelu_in_its_tail() -> None:
    """gelu is far from torch's own float32 values there, which cancel to 0."""
    x = torch.cat([torch.linspace(-13, 5, 3001), SPECIAL])
    program = lower(_All([F.gelu, lambda t: F.gelu(t, approximate="tanh")]), (x,))
    exact = F.gelu(x.double()), F.gelu(x.double(), approximate="tanh")
    normal = 0.5 * x.double() * torch.erfc(-x.double() * 0.5**0.5)
    result, by_tanh = program(x)
    keep = x.isfinite()
    assert ulps(result[keep], normal[keep]).max() < 8
    torch.testing.assert_close(
        by_tanh.double(), exact[1], rtol=2e-5, atol=1e-12, equal_nan=True
    )
    assert torch.equal(result.isnan(), exact[0].float().isnan())


ACTIVATIONS: list[Unary] = [
    F.relu,
    F.relu6,
    F.silu,
    F.mish,
    F.softplus,
    lambda x: F.softplus(x, beta=3, threshold=5),
    F.hardswish,
    F.hardsigmoid,
    F.hardtanh,
    lambda x: F.hardtanh(x, -2.5, 0.5),
    F.leaky_relu,
    lambda x: F.leaky_relu(x, 0.3),
    F.elu,
    lambda x: F.elu(x, 1.7),
    F.celu,
    lambda x: F.celu(x, 0.4),
    F.selu,
    F.logsigmoid,
    F.hardshrink,
    F.softshrink,
    F.tanhshrink,
    F.softsign,
    lambda x: F.threshold(x, 0.1, 20.0),
    lambda x: F.prelu(x, torch.full((1,), 0.2)),
    lambda x: torch.logit(x, 0.1),
    torch.sgn,
    torch.sign,
    torch.frac,
    torch.square,
    torch.signbit,
    torch.isfinite,
    torch.isposinf,
    torch.isneginf,
    torch.sinc,
    lambda x: torch.round(x, decimals=2),
    lambda x: torch.round(x, decimals=-1),
    torch.nan_to_num,
    lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0),
    torch.deg2rad,
    torch.angle,
    torch.positive,
]


def test_activations() -> None:
    x = torch.cat([spread(1e-3, 30, 100), torch.linspace(-6, 6, 101), SPECIAL])
    check_op(_All(list(ACTIVATIONS)), x, rtol=2e-6, atol=2e-7)


BINARY: list[Callable[..., torch.Tensor]] = [
    torch.add,
    lambda a, b: torch.add(a, b, alpha=3),
    lambda a, b: torch.sub(a, b, alpha=2),
    lambda a, b: torch.rsub(a, b, alpha=2),
    torch.mul,
    torch.div,
    lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    lambda a, b: torch.div(a, b, rounding_mode="floor"),
    torch.floor_divide,
    torch.remainder,
    torch.fmod,
    torch.pow,
    torch.atan2,
    torch.hypot,
    torch.copysign,
    torch.maximum,
    torch.minimum,
    torch.fmax,
    torch.fmin,
    torch.logaddexp,
    torch.xlogy,
    torch.heaviside,
    torch.eq,
    torch.ne,
    torch.lt,
    torch.le,
    torch.gt,
    torch.ge,
    torch.logical_and,
    torch.logical_or,
    torch.logical_xor,
    lambda a, b: torch.lerp(a, b, 0.3),
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a.clamp(min=b),
    lambda a, b: a.clamp(max=b),
    lambda a, b: a.clamp(b, b + 1),
    lambda a, b: a.masked_fill(b > 0, float("-inf")),
    torch.ldexp,
]


def test_binary_ops_broadcast() -> None:
    a, b = torch.randn(7, 1, 37) * 3, torch.randn(3, 37) * 2
    a[0, 0, :5] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
    b[:, :7] = torch.tensor(
        [float("nan"), 0.0, -0.0, 1.0, 2.0, float("inf"), float("-inf")]
    )
    check_op(_All(BINARY), a, b, rtol=2e-6, atol=1e-6)


def test_scalar_operands() -> None:
    def ops(x: torch.Tensor, i: torch.Tensor) -> Results:
        return (
            x + 1, 1 - x, x * 2, x / 3, 1 / x, x % 2, x.fmod(2.5), x // 0.7,
            x**2, x**3, x**-1, x**-2, x**0, x.abs() ** 0.5, x.abs() ** -0.5,
            x.abs() ** 2.5, 2**x, 0.7**x, 10.0**x, 1**x,
            x == 0.5, x != 0.5, x < 0.5, x <= 0.5, x > 0.5, x >= 0.5,
            x.clamp(-1, 1), x.clamp_min(0.25), x.clamp_max(0.25),
            i + 1, 3 - i, i * 5, i / 4, i // 4, i % 4, i % -4, i.fmod(-4), i**2,
            2**i, i & 6, i | 6, i ^ 6, ~i, i << 2, i >> 1, i == 3, i > 2.5, i * 0.5,
            i.clamp(2, 4), i.clamp(max=2**40), i.clamp(0.5, 2.5),
            torch.remainder(7, i), torch.bitwise_left_shift(1, i),
        )  # fmt: skip

    x = torch.cat([torch.linspace(-3, 3, 37), torch.tensor([0.5, 0.0])])
    check_op(ops, x, torch.arange(1, 14), rtol=2e-6, atol=1e-7)


def test_ternary_ops() -> None:
    def ops(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Results:
        return (
            torch.addcmul(a, b, c),
            torch.addcmul(a, b, c, value=0.5),
            torch.addcdiv(a, b, c, value=-2),
            torch.lerp(a, b, c),
            torch.where(c > 0, a, b),
            torch.where(c > 0, a, 1.5),
            torch.where(c > 0, 1, 0),
            torch.clamp(a, b, c),
            a.masked_fill(c > 0, 2),
            torch.fma(a, b, c) if hasattr(torch, "fma") else a * b + c,
        )

    check_op(ops, *(torch.randn(3, 7, 5) for _ in range(3)), rtol=2e-6, atol=1e-6)


def test_creation() -> None:
    def ops(x: torch.Tensor, i: torch.Tensor) -> Results:
        made = (
            torch.zeros(3, 2), torch.ones(3, dtype=torch.int32), torch.full((2,), 1.5),
            torch.full((2, 0), 1), torch.full((), True), torch.zeros_like(x),
            torch.ones_like(i), torch.full_like(x, -2.5), torch.full_like(i, 7),
            torch.full_like(x, 1, dtype=torch.bool), x.new_zeros(3), x.new_ones(2),
            x.new_full((2,), 3.5), torch.arange(5), torch.arange(1, 7, 2),
            torch.arange(9, 0, -3), torch.arange(0, 1, 0.1), torch.arange(3.5),
            torch.linspace(-1, 2, 37), torch.linspace(3, 3, 1),
            torch.logspace(-2, 3, 7), torch.scalar_tensor(3.0), torch.tensor(2),
            torch.eye(4), torch.fill(x, 2.0), torch.empty(3).fill_(4.0),
            torch.empty_like(x).fill_(1.0), x.clone(), torch.tensor([1.0, 2.0]),
        )  # fmt: skip
        return *made, *(item + 1 for item in made if item.dtype != torch.bool)

    check_op(ops, torch.randn(3, 5), torch.arange(4), rtol=1e-6, atol=1e-7)


def test_float_sequences_do_not_drift() -> None:
    x = torch.zeros(1)
    program = lower(_All([lambda t: t + torch.arange(0, 30_000, 0.3)]), (x,))
    exact = torch.arange(0, 30_000, 0.3, dtype=torch.float64)
    assert ulps(program(x)[0], exact).max() <= 1


def test_shapes() -> None:
    """0-d, zero-size, rank 8, transposed and sliced operands."""

    def ops(
        s: torch.Tensor, x: torch.Tensor, r: torch.Tensor, e: torch.Tensor
    ) -> Results:
        return (
            s + 1, s * s, s + x, x.t() * 2 + s, x[:, 1:4] + x[:, 2:5], x[::2] * 2,
            r + r.transpose(0, 7), r.permute(7, 6, 5, 4, 3, 2, 1, 0) * s, e + 1, e * s,
            e.exp() > 0, x.sum() * 0 + x[1:2] + x[:, :1], x.expand(3, 7, 5) * x,
        )  # fmt: skip

    rank8 = torch.randn(2, 1, 3, 1, 2, 1, 3, 2)
    check_op(ops, torch.tensor(1.5), torch.randn(7, 5), rank8, torch.randn(0, 3))


def test_four_at_a_time() -> None:
    """Large enough for vec4 kernels, with every way to reach an operand."""

    def ops(
        x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, i: torch.Tensor
    ) -> Results:
        return (
            x + 1, x * b, x * c, x + x.transpose(1, 2), x[:, 1:] * 2, x[:, :, 3:99] + 1,
            x[:, :, :64] - b[:64], (x > 0) & (b > 0), x.half() + b, i * 3,
            i.to(torch.int8), F.gelu(x + b) * c, torch.where(x > c, x, b),
            x.flatten()[5:9000].exp(),
        )  # fmt: skip

    x, i = torch.randn(3, 112, 112), torch.randint(-300, 300, (37, 113))
    check_op(ops, x, torch.randn(112), torch.randn(3, 1, 1), i)


def test_dynamic_shapes() -> None:
    rows = Dim("rows", min=1, max=113)

    def ops(x: torch.Tensor, y: torch.Tensor) -> Results:
        n = x.shape[0]
        return (
            x + y,
            (x * y).t() * n,
            torch.arange(n) * 2,
            torch.full((n, 2), 0.5),
            torch.arange(0, n, dtype=torch.float32) + x[:, 0],
            F.silu(x) * x.shape[0],
        )

    def case(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(n, 64), torch.randn(64)

    check_op(
        ops,
        *case(113),
        dynamic_shapes=({0: rows}, None),
        others=[case(37), case(1), case(113), case(2)],
    )


def test_more_than_one_row_of_workgroups() -> None:
    """Above 65535 workgroups of 64 invocations of one and of four elements."""
    x = torch.arange(65536 * 64 + 3, dtype=torch.float32) % 1000
    check_op(lambda t: (t * 2 + 1, (t[1:] > 500)), x)
    wide = torch.arange(65536 * 64 * 4 + 1, dtype=torch.int32)
    check_op(lambda t: t % 1000 == 7, wide)


def test_same_operand_twice() -> None:
    """A driver may not conclude that x == x: x may be NaN."""
    x = torch.tensor([1.0, float("nan"), float("inf"), -0.0])

    def ops(t: torch.Tensor) -> Results:
        return (
            t == t, t != t, t <= t, t >= t, t < t, ~(t < 0), ~(t >= 0), t - t, t / t,
            torch.isnan(t), (t != t) | (t > 1), torch.maximum(t, t), t.bool(), t.relu(),
        )  # fmt: skip

    check_op(ops, x)


def test_input_returned_as_it_is() -> None:
    check_op(lambda x, y: (x.clone(), x + y, x, y.clone() * 1), *torch.randn(2, 3, 5))


# Core ATen ops of other families, or that no kernel can run: see their tests.
def _is_mine(overload: torch._ops.OpOverload) -> bool:
    names = {
        "_to_copy", "arange", "clone", "copy", "empty", "empty_strided", "fill", "full",
        "full_like", "scalar_tensor",
    }  # fmt: skip
    name = overload._schema.name.removeprefix("aten::")
    written = any(a.is_out for a in overload._schema.arguments)
    return (torch.Tag.pointwise in overload.tags or name in names) and not written


def test_every_core_op_of_this_family_is_registered() -> None:
    missing = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload_name in getattr(packet, "overloads", list)():
            overload = getattr(packet, overload_name)
            mine = torch.Tag.core in overload.tags and _is_mine(overload)
            if mine and registry.find(f"aten.{name}.{overload_name}") is None:
                missing.append(str(overload))
    assert not missing


@pytest.mark.parametrize("kind", [torch.float64])
def test_other_types_stay_on_the_cpu(kind: torch.dtype) -> None:
    def ops(x: torch.Tensor) -> Results:
        return F.hardswish(x), F.silu(x) + 1, torch.exp(x)

    check_op(ops, torch.randn(3, 5, dtype=kind), delegated=False, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_quotient_of_halves_is_rounded_before_it_is_cut(dtype: torch.dtype) -> None:
    x, y = (60 * torch.randn(4096)).to(dtype), torch.randn(4096).to(dtype)
    unrounded = torch.trunc(x.float() / y.float()).to(dtype)
    cut = torch.div(x, y, rounding_mode="trunc")
    assert (cut != unrounded).any()
    check_op(lambda x, y: torch.div(x, y, rounding_mode="trunc"), x, y, rtol=0, atol=0)
