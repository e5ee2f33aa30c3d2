"""Special functions: Bessel, gamma and its kin, neighbours and exponents of floats.

Elementwise formulas over `wgsl/prelude/special.wgsl`. torch exports some of them under
two names, of which only one is an op of its own; both are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ... import ir
from ...errors import Unsupported
from ...ir.dtypes import DType
from ...plan.accuracy import CANCELLING, COMPOSED, EQUAL, FUNCTION
from ...plan.pointwise import Emitter, Operand, Term, formula, pointwise
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op
from .formulas import elementwise_op

_NAMES = {
    FUNCTION: {
        "i0f(a)": "i0 special_i0",
        "i0ef(a)": "special_i0e",
        "i1f(a)": "special_i1",
        "i1ef(a)": "special_i1e",
    },
    CANCELLING: {
        "lgammaf(a)": "lgamma special_gammaln",
        "digammaf(a)": "digamma special_digamma special_psi",
    },
    COMPOSED: {
        "igammaf(a, b)": "igamma special_gammainc",
        "igammacf(a, b)": "igammac special_gammaincc",
    },
}
for _accuracy, _table in _NAMES.items():
    for _code, _names in _table.items():
        _overloads = [f"aten.{name}.default" for name in _names.split()]
        elementwise_op(*_overloads, accuracy=_accuracy, keep=True)(formula(_code))


# Up to here every coefficient of the reflection is an f32.
_MOST_DERIVATIVES = 20


@elementwise_op(
    "aten.polygamma.default",
    "aten.special_polygamma.default",
    accuracy=COMPOSED,
    keep=True,
)
def polygamma(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    """The n-th derivative of digamma: n! * zeta(n + 1, x) but for its sign, and for
    negative x by that of pi * cot(pi * x)."""
    n = args[0]
    assert isinstance(n, int)
    x = e.cast(args[1], "f").code
    if n == 0:
        return Term(f"digammaf({x})", "f")
    if not 0 < n <= _MOST_DERIVATIVES:
        raise Unsupported(f"n must be from 0 to {_MOST_DERIVATIVES}, got {n}")
    # A power of two of n! goes into the terms, so that they underflow hardly before the
    # result does; the rest is at least 1, so that they overflow no sooner.
    power = int(math.log2(math.factorial(n)) / (n + 1))
    rest = math.factorial(n) / 2.0 ** (power * (n + 1))
    numbers = (float(n + 1), 2.0**-power, rest)
    given = ", ".join(e.cast(number, "f").code for number in numbers)
    distance = f"select(abs({x}), 1.0 - {x}, {x} < 0.0)"
    far = e.let(Term(f"hurwitz_zeta({distance}, {given})", "f")).code
    sign = "" if n % 2 else "-"
    reflected = f"{sign}{_cotangent(e, x, n)} - {far}"
    value = f"select({sign}{far}, {reflected}, {x} < 0.0)"
    if n > 1:  # at the infinities, what torch's way to sum gives
        limit = f"select(nan(), {sign}inf(), {x} < 0.0)"
        value = f"select({value}, {limit}, is_inf({x}))"
    return Term(value, "f")


def _cotangent(e: Emitter, x: str, n: int) -> str:
    """The magnitude of pi * cot(pi * x)'s n-th derivative: a polynomial in cot."""
    coefficients = [0, 1]  # of the powers of cot
    for _ in range(n):
        slopes = [k * c for k, c in enumerate(coefficients)][1:]
        # cot' = -(1 + cot^2)
        coefficients = [a + b for a, b in zip([*slopes, 0, 0], [0, 0, *slopes])]
    c = e.let(Term(f"cot_pi({x})", "f")).code
    square = e.let(Term(f"{c} * {c}", "f")).code
    code = ""
    for value in reversed(coefficients[(n + 1) % 2 :: 2]):
        number = e.cast(value * math.pi ** (n + 1), "f").code
        code = f"({number} + {square} * {code})" if code else number
    return code if n % 2 else f"{c} * {code}"


@elementwise_op("aten.nextafter.default", accuracy=EQUAL, keep=True)
def nextafter(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    x, y = (e.cast(arg, "f").code for arg in args)
    if dtype is DType.FLOAT16:
        return Term(f"next_half({x}, {y})", "f")
    gap = 0x10000 if dtype is DType.BFLOAT16 else 1
    return Term(f"next_after({x}, {y}, {gap})", "f")


_FREXP = {
    "webgpu.mantissa": formula("mantissa_of(a)"),
    "webgpu.exponent": formula("exponent_of(a)", gives="i"),
}
for _name, _formula in _FREXP.items():
    pointwise(_name)(_formula)


@op("aten.frexp.Tensor", twin=True, fusible=True, accuracy=EQUAL)
def frexp(g: Recorder, x: Tensor, *, out: list[Output]) -> None:
    for name, result in zip(_FREXP, out):
        if result.needed:
            g.pointwise([ir.Step(name, [ir.Ref(0)], result.dtype)], {0: x}, result)
