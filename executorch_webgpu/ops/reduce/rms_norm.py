"""RMS norm in one dispatch: y = x / sqrt(mean(x^2) + eps) * weight.

A row is what the normalized dimensions hold. A decoder has one row per token, and a
dispatch costs more than the sum: on a CPU adapter every invocation sums the row for
itself, instead of in a dispatch before.
"""

from __future__ import annotations

import math
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import row_major
from ...plan.wgsl_text import Param
from .norm_registers import fits, norm_in_registers
from .row_reduction import Reduction, reduce
from .workgroup_reduction import SUM, across, forms

op = partial(registry.op, accuracy=TOLERANT)

# Invocations that a CPU adapter should have at least.
_BUSY = 32
_WORKGROUP = 64

_INVERSE = Reduction(
    "0.0",
    "v * v",
    "s.a + t.a",
    ["1.0 / sqrt(s.a / f32(p.count) + p.eps)"],
    ("f32",),
)


@op("webgpu.rms_norm", "et_vk.rms_norm.default", fusible=True)
def rms_norm_of_rows(
    g: Recorder, x: Tensor, weight: Tensor | None, eps: float | None, *, out: Output
) -> None:
    """Over the last dimension."""
    g.require(x.dtype.is_float, "a norm must be of floats", x.dtype.label)
    g.require(x.rank >= 1, "a norm must have a dimension to norm", x.rank)
    depth = x.shape[-1]
    rows = x.numel // max(depth, 1)
    inputs = {"x": x}
    code = "fn scaled(k: i32, v: f32) -> f32 { return v; }"
    if weight is not None:
        g.require(
            weight.numel == depth, f"weight must have {depth} elements", weight.numel
        )
        inputs["w"] = weight
        code = "fn scaled(k: i32, v: f32) -> f32 { return v * get_w(k); }"
    params: dict[str, Param] = {"depth": depth, "eps": _eps(eps)}
    if not g.caps.is_cpu and fits(depth, out):
        norm_in_registers(g, x, depth, weight, None, _eps(eps), out, is_rms=True)
        return
    if not g.caps.is_cpu:
        form = g.choose("rms", (rows, depth), forms(g.caps), x.dtype)
        g.dispatch(
            "rms_workgroup",
            inputs,
            {"y": out},
            params,
            workgroups=rows,
            workgroup=_WORKGROUP,
            code=code + across(form, [("row_sum", SUM)]),
        )
        return
    chunks = max(1, min(_BUSY // max(rows, 1), depth))
    chunk = -(-depth // chunks)
    chunks = -(-depth // chunk) if depth else 0
    fours = depth % 4 == 0
    squares = "sum_squares4" if fours else "sum_squares"
    g.dispatch(
        "rms_rows",
        inputs,
        {"y": out},
        {**params, "chunk": chunk, "chunks": chunks},
        invocations=rows * chunks,
        workgroup=8,
        vec4={"x"} if fours else (),
        code=f"{code}\nfn squares(base: i32) -> f32 {{ return {squares}(base); }}",
    )


@op("aten.rms_norm.default", fusible=True, keep=True)
def rms_norm(
    g: Recorder,
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    eps: float | None,
    *,
    out: Output,
) -> None:
    if len(normalized_shape) > 1:
        x = _rows(g, x, normalized_shape)
        weight = weight and g.reshape(weight, (weight.numel,))
    rms_norm_of_rows(g, x, weight, eps, out=out)


@op("aten._fused_rms_norm.default", fusible=True)
def fused_rms_norm(
    g: Recorder,
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    eps: float | None,
    *,
    out: list[Output],
) -> None:
    """Also the factor of each row, which training would save."""
    value, inverse = out
    rms_norm(g, x, normalized_shape, weight, eps, out=value)
    if inverse.needed:
        rows = _rows(g, x, normalized_shape)
        made = g.output(rows.shape[:1], DType.FLOAT32)
        reduce(g, _INVERSE, rows, [1], [made], {"eps": _eps(eps)})
        made_rows = made.tensor.with_view(inverse.shape, row_major(inverse.shape))
        g.copy(made_rows, inverse)


def _rows(g: Recorder, x: Tensor, normalized_shape: list[int]) -> Tensor:
    depth = math.prod(normalized_shape)
    return g.reshape(x, (x.numel // max(depth, 1), depth))


def _eps(eps: float | None) -> float:
    """torch's default is float32's epsilon, also of narrower types: it computes so."""
    return 2.0**-23 if eps is None else float(eps)
