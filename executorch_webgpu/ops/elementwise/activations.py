"""Activations: elementwise formulas, written to be accurate in their tails."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import Unsupported
from ...ir.dtypes import DType
from ...plan.accuracy import CANCELLING, EQUAL, FUNCTION
from ...plan.pointwise import Emitter, Operand, Term, formula
from ...plan.registry import Cheap
from .arithmetic import clamp
from .formulas import elementwise, elementwise_op

_LEAKY = formula("select(b * a, a, a > 0.0)")

elementwise(
    {"aten.relu.default": formula("max_nan(a, 0.0)", "max(a, 0)")},
    accuracy=EQUAL,
    cheap=Cheap.ALWAYS,
)
elementwise({"aten.leaky_relu.default": _LEAKY}, accuracy=EQUAL)
elementwise(
    {
        "aten.sigmoid.default": formula("sigmoidf(a)"),
        "aten.elu.default": formula("select(b * c * expm1f(d * a), c * a, a > 0.0)"),
    },
    accuracy=FUNCTION,
)
elementwise(
    {
        "aten._prelu_kernel.default": _LEAKY,
        "aten.threshold.default": formula(
            "select(a, c, a <= b)", "select(a, c, a <= b)"
        ),
        "aten.hardshrink.default": formula("select(a, 0.0, abs(a) <= b)"),
    },
    accuracy=EQUAL,
    keep=True,
)
elementwise(
    {
        "aten.softplus.default": formula(
            "select(log1pf(expf(a * b)) / b, a, a * b > c)"
        ),
        "aten.log_sigmoid.default": formula("min_nan(a, 0.0) - log1pf(expf(-abs(a)))"),
        "aten.celu.default": formula("select(b * expm1f(a / b), a, a > 0.0)"),
        "aten.selu.default": formula(
            "1.0507009873554805 * select(1.6732632423543772 * expm1f(a), a, a > 0.0)"
        ),
    },
    accuracy=FUNCTION,
    keep=True,
)
elementwise(
    {
        "aten.silu.default": formula("a / (1.0 + expf(-a))"),
        "aten.hardswish.default": formula("a * clamp(a + 3.0, 0.0, 6.0) / 6.0"),
        "aten.hardsigmoid.default": formula(
            "select(clamp(a + 3.0, 0.0, 6.0) / 6.0, a, is_nan(a))"
        ),
        "aten.mish.default": formula("mishf(a)"),
        "aten.softshrink.default": formula("soft_shrink(a, b)"),
    },
    accuracy=CANCELLING,
    keep=True,
)


@elementwise_op("aten.relu6.default", accuracy=EQUAL, keep=True)
def relu6(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    return clamp(e, [args[0], 0, 6], dtype)


@elementwise_op("aten.gelu.default", accuracy=CANCELLING, keep=True)
def gelu(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    if len(args) > 1 and args[1] == "tanh":
        # 0.5 * (1 + tanh(u)) = sigmoid(2u), which is accurate where it is tiny, too.
        code = "a * sigmoidf(1.5957691216057308 * (a + 0.044715 * a * a * a))"
        return formula(code)(e, args[:1], dtype)
    return formula("a * normal_cdf(a)")(e, args[:1], dtype)


@elementwise_op("aten.logit.default", accuracy=FUNCTION, keep=True)
def logit(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    x, eps = args
    if isinstance(eps, float):
        x = clamp(e, [x, eps, 1.0 - eps], dtype)
    return formula("logitf(a)")(e, [x], dtype)


@elementwise_op("aten.rrelu.default", accuracy=EQUAL, keep=True)
def rrelu(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
    x, lower, upper, training = args[:4]
    if training:
        raise Unsupported("slopes must not be drawn at random, got training=True")
    assert isinstance(lower, (int, float))
    assert isinstance(upper, (int, float))
    return _LEAKY(e, [x, (lower + upper) / 2], dtype)
