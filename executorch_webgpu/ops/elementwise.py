"""Elementwise ops: tables of formulas, one line each.

A formula is WGSL over the operands' letters, in schema order. `float_code` is
used when the operands combine to a float, `int_code` when to an integer, and
`bool_code` when to a bool; a missing one means that torch would convert first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import ir
from ..dtypes import DType
from ..errors import Unsupported
from ..graph import Graph, Tensor
from ..pointwise import (
    FORMULAS,
    Emitter,
    Formula,
    Operand,
    Term,
    kind_of,
    pointwise,
    promote,
    substitute,
)
from ..registry import op


def _formula(
    float_code: str,
    int_code: str = "",
    bool_code: str = "",
    *,
    letters: str = "a b c d",
    gives: str = "",
    by_result: bool = False,
) -> Formula:
    """`gives` is the result's kind if it is not the operands'; with `by_result`
    the operands are first converted to the result's type, as torch's sums are."""

    def emit(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
        kind = kind_of(dtype) if by_result else promote(args)
        codes = {"f": float_code, "i": int_code, "b": bool_code}
        while not codes[kind]:
            kind = "i" if kind == "b" and int_code else "f"
        terms = {
            letter: e.cast(arg, kind) for letter, arg in zip(letters.split(), args)
        }
        return Term(f"({substitute(codes[kind], terms)})", gives or kind)

    return emit


def _compare(sign: str, bool_code: str) -> Formula:
    code = f"a {sign} b"
    return _formula(code, code, bool_code, gives="b")


FORMULAS.update(
    {
        # arithmetic
        "aten.add.Tensor": _formula(
            "a + c * b", "a + c * b", by_result=True, letters="a b c"
        ),
        "aten.sub.Tensor": _formula(
            "a - c * b", "a - c * b", by_result=True, letters="a b c"
        ),
        "aten.rsub.Scalar": _formula(
            "b - c * a", "b - c * a", by_result=True, letters="a b c"
        ),
        "aten.mul.Tensor": _formula("a * b", "a * b", "a && b", by_result=True),
        "aten.div.Tensor": _formula("a / b"),
        "aten.neg.default": _formula("-a", "-a"),
        "aten.abs.default": _formula("abs(a)", "abs(a)"),
        "aten.reciprocal.default": _formula("1.0 / a"),
        "aten.maximum.default": _formula("max_nan(a, b)", "max(a, b)", "a || b"),
        "aten.minimum.default": _formula("min_nan(a, b)", "min(a, b)", "a && b"),
        # comparison and logic
        "aten.eq.Tensor": _compare("==", "a == b"),
        "aten.ne.Tensor": _compare("!=", "a != b"),
        "aten.lt.Tensor": _compare("<", "!a && b"),
        "aten.le.Tensor": _compare("<=", "!a || b"),
        "aten.gt.Tensor": _compare(">", "a && !b"),
        "aten.ge.Tensor": _compare(">=", "a || !b"),
        # functions
        "aten.exp.default": _formula("exp(a)"),
        "aten.log.default": _formula("log(a)"),
        "aten.sqrt.default": _formula("sqrt(a)"),
        "aten.rsqrt.default": _formula("inverseSqrt(a)"),
        "aten.sin.default": _formula("sin(a)"),
        "aten.cos.default": _formula("cos(a)"),
        "aten.tanh.default": _formula("tanh(clamp(a, -15.0, 15.0))"),
        "aten.sigmoid.default": _formula("1.0 / (1.0 + exp(-a))"),
        "aten.relu.default": _formula("select(a, 0.0, a < 0.0)", "max(a, 0)"),
        "aten.silu.default": _formula("a / (1.0 + exp(-a))"),
    }
)
for _scalar, _tensor in {
    "aten.add.Scalar": "aten.add.Tensor",
    "aten.sub.Scalar": "aten.sub.Tensor",
    "aten.mul.Scalar": "aten.mul.Tensor",
    "aten.div.Scalar": "aten.div.Tensor",
    "aten.eq.Scalar": "aten.eq.Tensor",
    "aten.ne.Scalar": "aten.ne.Tensor",
    "aten.lt.Scalar": "aten.lt.Tensor",
    "aten.le.Scalar": "aten.le.Tensor",
    "aten.gt.Scalar": "aten.gt.Tensor",
    "aten.ge.Scalar": "aten.ge.Tensor",
}.items():
    FORMULAS[_scalar] = FORMULAS[_tensor]


@pointwise("aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default")
def to_copy(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return e.cast(args[0], kind_of(dtype))


@pointwise("aten.full.default")
def full(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return e.cast(args[1], kind_of(dtype))


@pointwise("aten.where.self")
def where(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    kind = kind_of(dtype)
    yes, no = e.cast(args[1], kind), e.cast(args[2], kind)
    return Term(f"select({no.code}, {yes.code}, {e.cast(args[0], 'b').code})", kind)


@pointwise("aten.clamp.default", "aten.hardtanh.default")
def clamp(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    kind = "f" if dtype.is_float else "i"
    value = e.cast(args[0], kind)
    # select keeps a NaN, which min and max may not.
    for bound, sign in ((args[1], "<"), (args[2], ">")):
        if bound is not None:
            limit = e.cast(bound, kind)
            code = f"select({value.code}, {limit.code}, {value.code} {sign} {limit.code})"
            value = e.let(Term(code, kind))
    return value


@pointwise("aten.gelu.default")
def gelu(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    x = e.cast(args[0], "f").code
    if len(args) > 1 and args[1] == "tanh":
        inner = f"0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x})"
        return Term(f"0.5 * {x} * (1.0 + tanh(clamp({inner}, -15.0, 15.0)))", "f")
    return Term(f"0.5 * {x} * (1.0 + erf({x} * 0.7071067811865476))", "f")


def _plan(name: str) -> Callable[..., None]:
    """The op function of a formula: a kernel of one step."""

    def plan(g: Graph, *args: Any, out: Tensor) -> None:
        operands: dict[int, Tensor] = {}
        step = ir.Step(name, [_operand(arg, operands) for arg in args], out.dtype)
        g.pointwise([step], operands, out)

    return plan


def _operand(arg: Any, operands: dict[int, Tensor]) -> ir.Arg:
    if not isinstance(arg, Tensor):
        if isinstance(arg, list):
            return [_operand(item, operands) for item in arg]
        return arg  # type: ignore[no-any-return]
    operands[len(operands)] = arg
    return ir.Ref(len(operands) - 1)


for _name in FORMULAS:
    op(_name, fusible=True)(_plan(_name))


@op("webgpu.pointwise")
def program(g: Graph, *, out: Tensor) -> None:
    """A fused chain of formulas; the steps are the call's `post`."""
    steps, out.post = out.post, []
    if out.final is None:
        raise Unsupported("a fused program must have steps, got none")
    keys = {key for step in steps for arg in step.args for key in ir.refs(arg)}
    g.pointwise(steps, {key: g.values[key] for key in sorted(keys)}, out)
