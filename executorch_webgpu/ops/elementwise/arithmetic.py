"""Elementwise arithmetic, comparison, logic and functions: one formula each.

A formula is WGSL over the operands' letters, in schema order. `float_code` is
used when the operands combine to a float, `int_code` when to an integer, and
`bool_code` when to a bool; a missing one means that torch would convert first.
Functions that WGSL lacks are in `wgsl/prelude/{common,math,arithmetic,exact}.wgsl`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...errors import Unsupported
from ...ir.dtypes import DType
from ...plan.accuracy import CANCELLING, EQUAL, FUNCTION, STEPPING
from ...plan.pointwise import Emitter, Formula, Operand, Term, formula, kind_of
from ...plan.recorder import Output, Recorder
from ...plan.registry import Cheap, op
from ...plan.wgsl_text import rounded
from .formulas import elementwise, elementwise_op

_INT32 = (-(2**31), 2**31 - 1)


# -- arithmetic --------------------------------------------------------------------


def _sum(sign: str, swapped: bool = False) -> Formula:
    """a + alpha * b, in the result's type; alpha is most often 1.

    Drivers simplify a - a to 0 even for infinities, so NaN is given explicitly.
    """

    def emit(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
        kind = "f" if dtype.is_float else "i"
        exact = dtype is DType.INT64
        a, b = (e.cast(arg, kind).code for arg in args[:2])
        a, b = (b, a) if swapped else (a, b)
        if len(args) > 2 and args[2] != 1:
            factor = e.cast(args[2], kind).code
            b = f"multiply_exact({factor}, {b})" if exact else f"{factor} * {b}"
        elif a == b and sign == "-" and kind == "f":
            return Term(f"select(0.0, nan(), is_nan({a}) || is_inf({a}))", "f")
        if exact:
            name = "add_exact" if sign == "+" else "subtract_exact"
            return Term(f"{name}({a}, {b})", kind)
        return Term(f"({a} {sign} {b})", kind)

    return emit


_PRODUCT = formula(
    "a * b", "a * b", "a && b", exact="multiply_exact(a, b)", by_result=True
)


def _divided(float_code: str, int_code: str, exact: str = "") -> Formula:
    """A formula in which an integer b divides: as in torch, it must not be 0."""
    plain = formula(float_code, int_code, exact=exact)

    def checked(code: str) -> str:
        return re.sub(r"\bb\b", "divisor(b)", code)

    guarded = formula(float_code, checked(int_code), exact=checked(exact))

    def emit(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
        known = isinstance(args[1], (int, float)) and args[1] != 0
        return (plain if known else guarded)(e, args[:2], dtype)

    return emit


_FMOD = _divided("fmodf(a, b)", "a % b")
_REMAINDER = _divided("remainder_floor(a, b)", "remainder_floor_int(a, b)")
_TRUNCATED_INTEGERS = _divided("trunc(a / b)", "a / b", "divide_exact(a, b)")


def _truncated(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    """A quotient rounded towards 0; of float16, of a quotient rounded to float16."""
    if not dtype.is_float:
        return _TRUNCATED_INTEGERS(e, args, dtype)
    a, b = (e.cast(arg, "f").code for arg in args[:2])
    return Term(f"trunc({rounded(dtype, f'({a} / {b})')})", "f")


_DIVISIONS = {
    None: formula("a / b"),
    "trunc": _truncated,
    "floor": _divided(
        "divide_floor(a, b)", "divide_floor_int(a, b)", "divide_floor_exact(a, b)"
    ),
}


def _quotient(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    a, b = (e.cast(arg, "f").code for arg in args[:2])
    if a == b:
        undefined = f"is_nan({a}) || is_inf({a}) || {a} == 0.0"
        return Term(f"select(1.0, nan(), {undefined})", "f")
    return Term(f"({a} / {b})", "f")


elementwise(
    {
        "aten.add.Tensor": _sum("+"),
        "aten.add.Scalar": _sum("+"),
        "aten.sub.Tensor": _sum("-"),
        "aten.sub.Scalar": _sum("-"),
        "aten.mul.Tensor": _PRODUCT,
        "aten.mul.Scalar": _PRODUCT,
        "aten.neg.default": formula("-a", "-a", exact="subtract_exact(0, a)"),
        "aten.abs.default": formula("abs(a)", "abs(a)", "a", exact="abs_exact(a)"),
        "aten.maximum.default": formula("max_nan(a, b)", "max(a, b)", "a || b"),
        "aten.minimum.default": formula("min_nan(a, b)", "min(a, b)", "a && b"),
    },
    accuracy=EQUAL,
    cheap=Cheap.ALWAYS,
)
elementwise(
    {
        "aten.sign.default": formula("select(sign(a), 0.0, is_nan(a))", "sign(a)", "a"),
        "aten.ceil.default": formula("ceil(a)", "a"),
        "aten.floor.default": formula("floor(a)", "a"),
        "aten.round.default": formula("round(a)", "a"),
        "aten.trunc.default": formula("trunc(a)", "a"),
    },
    accuracy=EQUAL,
)
elementwise(
    {"aten.div.Tensor": _quotient, "aten.div.Scalar": _quotient},
    accuracy=FUNCTION,
    cheap=Cheap.BY_NUMBER,
)
elementwise(
    {
        "aten.fmod.Tensor": _FMOD,
        "aten.fmod.Scalar": _FMOD,
        "aten.remainder.Tensor": _REMAINDER,
        "aten.remainder.Scalar": _REMAINDER,
        "aten.reciprocal.default": formula("1.0 / a"),
        "aten.sqrt.default": formula("select(sqrt(a), nan(), a < 0.0)"),
        "aten.rsqrt.default": formula("select(1.0 / sqrt(a), nan(), a < 0.0)"),
        "aten.exp.default": formula("expf(a)"),
        "aten.expm1.default": formula("expm1f(a)"),
        "aten.log.default": formula("logf(a)"),
        "aten.log2.default": formula("log2f(a)"),
        "aten.log10.default": formula("log10f(a)"),
        "aten.log1p.default": formula("log1pf(a)"),
        "aten.sin.default": formula("sinf(a)"),
        "aten.cos.default": formula("cosf(a)"),
        "aten.tan.default": formula("tanf(a)"),
        "aten.asin.default": formula("asinf(a)"),
        "aten.acos.default": formula("acosf(a)"),
        "aten.atan.default": formula("atanf(a)"),
        "aten.atan2.default": formula("atan2f(a, b)"),
        "aten.sinh.default": formula("sinhf(a)"),
        "aten.cosh.default": formula("coshf(a)"),
        "aten.tanh.default": formula("tanhf(a)"),
        "aten.asinh.default": formula("asinhf(a)"),
        "aten.acosh.default": formula("acoshf(a)"),
        "aten.atanh.default": formula("atanhf(a)"),
        "aten.erf.default": formula("erf(a)"),
    },
    accuracy=FUNCTION,
)
# From here on not core ATen: kept from decomposition.
elementwise(
    {
        "aten.rsub.Tensor": _sum("-", swapped=True),
        "aten.rsub.Scalar": _sum("-", swapped=True),
        "aten.square.default": formula("a * a", "a * a", exact="multiply_exact(a, a)"),
    },
    accuracy=EQUAL,
    keep=True,
    cheap=Cheap.ALWAYS,
)
elementwise(
    {
        "aten.sgn.default": formula("select(sign(a), 0.0, is_nan(a))", "sign(a)", "a"),
        "aten.positive.default": formula("a", "a"),
        "aten.frac.default": formula("a - trunc(a)"),
        "aten.fmax.default": formula("max_number(a, b)", "max(a, b)", "a || b"),
        "aten.fmin.default": formula("min_number(a, b)", "min(a, b)", "a && b"),
        "aten.copysign.Tensor": formula("copy_sign(a, b)"),
        "aten.copysign.Scalar": formula("copy_sign(a, b)"),
        "aten.gcd.default": formula("", "gcd_int(a, b)"),
        "aten.lcm.default": formula(
            "",
            "abs(a / max(gcd_int(a, b), 1) * b)",
            exact="abs_exact(multiply_exact(a / max(gcd_int(a, b), 1), b))",
        ),
        "aten.angle.default": formula(
            "select(select(0.0, 3.1415927, a < 0.0), a, is_nan(a))"
        ),
    },
    accuracy=EQUAL,
    keep=True,
)
elementwise(
    {
        "aten.true_divide.Tensor": _quotient,
        "aten.remainder.Scalar_Tensor": _REMAINDER,
        "aten.exp2.default": formula("exp2f(a)"),
        "aten.erfc.default": formula("erfc(a)"),
        "aten.erfinv.default": formula("erfinvf(a)"),
        "aten.hypot.default": formula("hypotf(a, b)"),
        "aten.ldexp.Tensor": formula("a * exp2f(b)"),
        "aten.xlogy.Tensor": formula("x_log_y(a, b)"),
    },
    accuracy=FUNCTION,
    keep=True,
)
elementwise(
    {
        "aten.logaddexp.default": formula("log_add_exp(a, b)"),
        # torch's own form: exact at both ends.
        "aten.lerp.Scalar": formula("lerpf(a, b, c)"),
        "aten.lerp.Tensor": formula("lerpf(a, b, c)"),
        "aten.addcdiv.default": formula("a + d * (b / c)"),
    },
    accuracy=CANCELLING,
    keep=True,
)
elementwise(
    {
        "aten.addcmul.default": formula(
            "a + d * b * c",
            "a + d * b * c",
            exact="add_exact(a, multiply_exact(multiply_exact(d, b), c))",
            by_result=True,
        ),
    },
    accuracy=CANCELLING,
    keep=True,
    cheap=Cheap.ALWAYS,
)


@elementwise_op(
    "aten.div.Tensor_mode",
    "aten.div.Scalar_mode",
    accuracy=STEPPING,
    cheap=Cheap.BY_NUMBER,
)
def div_mode(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    mode = None if args[2] is None else str(args[2])
    return _DIVISIONS[mode](e, args[:2], dtype)


@elementwise_op(
    "aten.floor_divide.default", "aten.floor_divide.Scalar", accuracy=STEPPING
)
def floor_divide(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return div_mode(e, [*args[:2], "floor"], dtype)


@elementwise_op("aten.round.decimals", accuracy=STEPPING, keep=True)
def round_decimals(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    decimals = args[1]
    assert isinstance(decimals, int)
    if not dtype.is_float:
        return e.cast(args[0], "i")
    x, ten = e.cast(args[0], "f").code, e.cast(10.0 ** abs(decimals), "f").code
    code = (
        f"round({x} * {ten}) / {ten}" if decimals > 0 else f"round({x} / {ten}) * {ten}"
    )
    return Term(f"({code})" if decimals else f"round({x})", "f")


# Exponents for which torch, too, does not use pow.
_POWERS = {
    0.5: "select(sqrt(a), nan(), a < 0.0)",
    1.0: "a",
    2.0: "a * a",
    3.0: "a * a * a",
    -0.5: "select(1.0 / sqrt(a), nan(), a < 0.0)",
    -1.0: "1.0 / a",
    -2.0: "1.0 / (a * a)",
}


@elementwise_op(
    "aten.pow.Tensor_Scalar",
    "aten.pow.Tensor_Tensor",
    "aten.pow.Scalar",
    accuracy=FUNCTION,
)
def power(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    base, exponent = args
    if dtype.is_float and isinstance(exponent, (int, float)):
        code = _POWERS.get(float(exponent), "powf(a, b)")
    elif isinstance(base, (int, float)) and base == 2:
        code = "exp2f(b)"
    else:
        code = "powf(a, b)"
    whole = formula(code, "power_int(a, b)", exact="power_exact(a, b)", by_result=True)
    return whole(e, args, dtype)


# -- comparison and logic ----------------------------------------------------------


def _compare(float_code: str, int_code: str, bool_code: str) -> Formula:
    inner = formula(float_code, int_code, bool_code, gives="b")

    def emit(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
        halves = [a.dtype for a in args if isinstance(a, Term)]
        return inner(e, [_in_type(arg, halves[0]) for arg in args], dtype)

    return emit


def _in_type(arg: Operand, dtype: DType | None) -> Operand:
    """A number as torch compares it with float16 or bfloat16: rounded to that."""
    if isinstance(arg, (int, float)) and math.isfinite(arg):
        if dtype is DType.FLOAT16:
            with np.errstate(over="ignore"):
                return float(np.float16(arg))
        if dtype is DType.BFLOAT16:
            bits = np.float32(arg).view(np.uint32)
            kept = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & 0xFFFF0000
            return float(np.uint32(kept).view(np.float32))
    return arg


# NaN is tested by its bits where a driver could assume that a == a.
_EQUAL = _compare("a == b && !is_nan(a)", "a == b", "a == b")
_UNEQUAL = _compare("a != b || is_nan(a) || is_nan(b)", "a != b", "a != b")
_LESS = _compare("a < b", "a < b", "!a && b")
_LESS_EQUAL = _compare("a <= b && !is_nan(a)", "a <= b", "!a || b")
_GREATER = _compare("a > b", "a > b", "a && !b")
_GREATER_EQUAL = _compare("a >= b && !is_nan(a)", "a >= b", "a || !b")


def _logic(code: str) -> Formula:
    return formula("", "", code, gives="b", kind="b")


_BITWISE = {
    "and": formula("", "a & b", "a && b"),
    "or": formula("", "a | b", "a || b"),
    "xor": formula("", "a ^ b", "a != b"),
}
_SHIFT_LEFT = formula(
    "",
    "select(a << u32(b & 31), 0, b < 0 || b > 31)",
    exact="shift_left_exact(a, b)",
)
_SHIFT_RIGHT = formula("", "a >> u32(select(b, 31, b < 0 || b > 31))")

elementwise(
    {
        **{f"aten.eq.{form}": _EQUAL for form in ("Tensor", "Scalar")},
        **{f"aten.ne.{form}": _UNEQUAL for form in ("Tensor", "Scalar")},
        **{f"aten.lt.{form}": _LESS for form in ("Tensor", "Scalar")},
        **{f"aten.le.{form}": _LESS_EQUAL for form in ("Tensor", "Scalar")},
        **{f"aten.gt.{form}": _GREATER for form in ("Tensor", "Scalar")},
        **{f"aten.ge.{form}": _GREATER_EQUAL for form in ("Tensor", "Scalar")},
        "aten.logical_and.default": _logic("a && b"),
        "aten.logical_or.default": _logic("a || b"),
        "aten.logical_not.default": _logic("!a"),
        "aten.bitwise_not.default": formula("", "~a", "!a"),
    },
    accuracy=EQUAL,
    cheap=Cheap.ALWAYS,
)
elementwise(
    {
        "aten.isnan.default": formula("is_nan(a)", "false", gives="b"),
        "aten.isinf.default": formula("is_inf(a)", "false", gives="b"),
        "aten.logical_xor.default": _logic("a != b"),
        **{
            f"aten.bitwise_{name}.{form}": code
            for name, code in _BITWISE.items()
            for form in ("Tensor", "Scalar")
        },
    },
    accuracy=EQUAL,
)
elementwise(
    {
        # Not core ATen, and nothing decomposes them.
        **{f"aten.bitwise_{n}.Scalar_Tensor": code for n, code in _BITWISE.items()},
        "aten.isfinite.default": formula("!is_nan(a) && !is_inf(a)", "true", gives="b"),
        "aten.signbit.default": formula(
            "(bitcast<u32>(a) >> 31u) == 1u", "a < 0", gives="b"
        ),
        **{
            f"aten.{name}.{form}": code
            for name, forms, code in (
                (
                    "bitwise_left_shift",
                    "Tensor Tensor_Scalar Scalar_Tensor",
                    _SHIFT_LEFT,
                ),
                (
                    "bitwise_right_shift",
                    "Tensor Tensor_Scalar Scalar_Tensor",
                    _SHIFT_RIGHT,
                ),
                ("__lshift__", "Tensor Scalar", _SHIFT_LEFT),
                ("__rshift__", "Tensor Scalar", _SHIFT_RIGHT),
            )
            for form in forms.split()
        },
    },
    accuracy=EQUAL,
    keep=True,
)


# -- choice ------------------------------------------------------------------------


@elementwise_op("aten.where.self", accuracy=EQUAL, cheap=Cheap.ALWAYS)
def where(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    kind = kind_of(dtype)
    yes, no = e.cast(args[1], kind), e.cast(args[2], kind)
    return Term(f"select({no.code}, {yes.code}, {e.cast(args[0], 'b').code})", kind)


@elementwise_op(
    "aten.masked_fill.Scalar",
    "aten.masked_fill.Tensor",
    accuracy=EQUAL,
    keep=True,
    cheap=Cheap.ALWAYS,
)
def masked_fill(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return where(e, [args[1], args[2], args[0]], dtype)


@elementwise_op(
    "aten.clamp.default",
    "aten.clamp.Tensor",
    "aten.hardtanh.default",
    accuracy=EQUAL,
    cheap=Cheap.ALWAYS,
)
def clamp(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    low, high = (*args[1:], None, None)[:2]
    kind = "f" if dtype.is_float else "i"
    value = e.cast(args[0], kind)
    for bound, pick in ((low, "max"), (high, "min")):
        if bound is None:
            continue
        if kind == "i" and isinstance(bound, int) and not isinstance(bound, bool):
            bound = _reachable(bound, pick)
        name = f"{pick}_nan" if kind == "f" else pick
        value = e.let(Term(f"{name}({value.code}, {e.cast(bound, kind).code})", kind))
    return value


def _reachable(bound: int, pick: str) -> int:
    """A bound beyond int32, which no value passes, as the nearest int32."""
    if (pick == "max" and bound > _INT32[1]) or (pick == "min" and bound < _INT32[0]):
        raise Unsupported(f"a bound must leave int32 values, got {bound}")
    return min(max(bound, _INT32[0]), _INT32[1])


@elementwise_op(
    "aten.clamp_min.default",
    "aten.clamp_min.Tensor",
    accuracy=EQUAL,
    keep=True,
    cheap=Cheap.ALWAYS,
)
def clamp_min(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return clamp(e, [*args[:2], None], dtype)


@elementwise_op(
    "aten.clamp_max.default",
    "aten.clamp_max.Tensor",
    accuracy=EQUAL,
    keep=True,
    cheap=Cheap.ALWAYS,
)
def clamp_max(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return clamp(e, [args[0], None, args[1]], dtype)


_LARGEST = {DType.FLOAT16: 65504.0, DType.BFLOAT16: 3.3895313892515355e38}


@elementwise_op("aten.nan_to_num.default", accuracy=EQUAL, keep=True)
def nan_to_num(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    x, nan, high, low = args
    if not dtype.is_float:
        return e.cast(x, kind_of(dtype))
    largest = _LARGEST.get(dtype, 3.4028234663852886e38)
    value = e.cast(x, "f")
    choices = (
        (nan if nan is not None else 0.0, f"is_nan({value.code})"),
        (
            high if high is not None else largest,
            f"is_inf({value.code}) && {value.code} > 0.0",
        ),
        (
            low if low is not None else -largest,
            f"is_inf({value.code}) && {value.code} < 0.0",
        ),
    )
    result = value
    for number, condition in choices:
        code = f"select({result.code}, {e.cast(number, 'f').code}, {condition})"
        result = e.let(Term(code, "f"))
    return result


# -- conversion --------------------------------------------------------------------


@elementwise_op(
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
    accuracy=EQUAL,
    cheap=Cheap.ALWAYS,
    cast=True,
)
def to_copy(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return e.term(args[0])  # converted as every result is


# Types that are stored in their own width, and the WGSL that reinterprets bits as them.
_BITS = {DType.FLOAT32: "bitcast<f32>", DType.INT32: "bitcast<i32>"}
_BYTES = (DType.INT8, DType.UINT8)


@elementwise_op("aten.view_copy.dtype", "aten.view.dtype", accuracy=EQUAL)
def view_dtype(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    """The same bits reinterpreted as another type."""
    x = e.term(args[0])
    if x.dtype is dtype or (x.dtype in _BYTES and dtype in _BYTES):
        return x  # an integer is wrapped into its type as it is stored
    if x.dtype not in _BITS or dtype not in _BITS:
        name = "none" if x.dtype is None else x.dtype.label
        raise Unsupported(
            "bits can be seen as another type between float32 and int32, and int8 and"
            f" uint8: others are held in other widths, got {name} as {dtype.label}"
        )
    return Term(f"{_BITS[dtype]}({x.code})", kind_of(dtype))


@elementwise_op("aten.copy.default", accuracy=EQUAL)
def copy(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return e.term(args[1])


# EQUAL: its results are those of its steps in dispatches of their own.
@op("webgpu.pointwise", accuracy=EQUAL)
def program(g: Recorder, *, out: Output) -> None:
    """An elementwise program, whose steps are the call's epilogue."""
    fused = out.epilogue
    if fused is None:
        raise Unsupported("an elementwise program must have steps, got none")
    made = replace(out, dtype=fused.dtype, epilogue=None)
    g.pointwise(fused.steps, fused.operands, made)
