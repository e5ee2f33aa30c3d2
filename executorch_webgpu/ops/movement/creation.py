"""Ops that make tensors from numbers: constants and arithmetic sequences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import EQUAL, FUNCTION
from ...plan.pointwise import Emitter, Formula, Operand, Term, kind_of
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import Cheap
from ...plan.wgsl_text import Param, compute_type
from ..elementwise.formulas import elementwise

op = partial(registry.op, accuracy=FUNCTION)


def _argument(position: int) -> Formula:
    """Each element is the argument with this number."""

    def emit(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
        return e.cast(args[position], kind_of(dtype))

    return emit


def _number(value: int) -> Formula:
    def emit(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
        return e.cast(bool(value) if dtype is DType.BOOL else value, kind_of(dtype))

    return emit


elementwise(
    {"aten.full.default": _argument(1), "aten.full_like.default": _argument(1)},
    accuracy=EQUAL,
    cheap=Cheap.ALWAYS,
)
elementwise(
    {
        "aten.scalar_tensor.default": _argument(0),
        "aten.fill.Scalar": _argument(1),
        "aten.fill.Tensor": _argument(1),
        "aten.new_full.default": _argument(2),
        "aten.zeros.default": _number(0),
        "aten.zeros_like.default": _number(0),
        "aten.new_zeros.default": _number(0),
        "aten.ones.default": _number(1),
        "aten.ones_like.default": _number(1),
        "aten.new_ones.default": _number(1),
        # What torch leaves undefined is zero here, so that runs can be compared.
        "aten.empty.memory_format": _number(0),
        "aten.empty_strided.default": _number(0),
        "aten.new_empty.default": _number(0),
        "dim_order_ops._empty_dim_order.default": _number(0),
    },
    accuracy=EQUAL,
)
# Kept whole: empty_permuted is not core ATen, and empty_like decomposes into it.
elementwise(
    {
        "aten.empty_permuted.default": _number(0),
        "aten.empty_like.default": _number(0),
    },
    accuracy=EQUAL,
    keep=True,
)


def _sequence(
    g: Recorder, start: float, step: float, out: Output, base: float | None = None
) -> None:
    """out[i] = start + i * step or, with `base`, base ** (start + i * step)."""
    kind = compute_type(out.dtype)
    params: dict[str, Param]
    if kind == "i32":
        whole = float(start).is_integer() and float(step).is_integer()
        g.require(whole, "an integer sequence must have integer steps", (start, step))
        g.require(out.dtype.is_int, "a sequence must not be of type bool", out.dtype)
        params = {"start": int(start), "step": int(step)}
        code = "p.start + i * p.step"
    else:
        params = {}
        for name, value in (("start", start), ("step", step)):
            high = float(np.float32(value))
            params |= {name: high, f"{name}_low": float(value) - high}
        code = (
            "affine(i, vec2<f32>(p.start, p.start_low), vec2<f32>(p.step, p.step_low))"
        )
    if base is not None:
        params["base"] = float(base)
        code = f"powf(p.base, {code})"
    g.dispatch(
        "elementwise",
        {},
        {"y": out},
        params,
        invocations=out.numel,
        code=f"fn program(i: i32) -> {kind} {{ return {code}; }}",
    )


@op("aten.arange.start_step", fusible=True)
def arange_step(
    g: Recorder, start: float, end: float, step: float = 1, *_: object, out: Output
) -> None:
    _sequence(g, start, step, out)


@op("aten.arange.start", fusible=True)
def arange_start(
    g: Recorder, start: float, end: float, *_: object, out: Output
) -> None:
    _sequence(g, start, 1, out)


@op("aten.arange.default", fusible=True)
def arange(g: Recorder, end: float, *_: object, out: Output) -> None:
    _sequence(g, 0, 1, out)


def _spacing(g: Recorder, start: float, end: float, steps: int, out: Output) -> float:
    g.require(
        out.dtype.is_float, "the sequence must be of a float type", out.dtype.label
    )
    return (end - start) / (steps - 1) if steps > 1 else 0.0


@op("aten.linspace.default", fusible=True, keep=True)
def linspace(
    g: Recorder, start: float, end: float, steps: int, *_: object, out: Output
) -> None:
    _sequence(g, start, _spacing(g, start, end, steps, out), out)


@op("aten.logspace.default", fusible=True, keep=True)
def logspace(
    g: Recorder,
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *_: object,
    out: Output,
) -> None:
    _sequence(g, start, _spacing(g, start, end, steps, out), out, base)


@op("et_vk.grid_priors.default", fusible=True)
def grid_priors(
    g: Recorder, x: Tensor, stride: int, offset: float, *, out: Output
) -> None:
    """The centres x, y of the cells of an image of x's height and width."""
    g.dispatch(
        "elementwise",
        {},
        {"y": out},
        {"width": x.shape[-1], "stride": float(stride), "offset": float(offset)},
        invocations=out.numel,
        code="fn program(i: i32) -> f32 {\n"
        "  let cell = i / 2;\n"
        "  let at = select(cell / p.width, cell % p.width, i % 2 == 0);\n"
        "  return (f32(at) + p.offset) * p.stride;\n}",
    )
