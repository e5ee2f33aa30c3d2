"""RMS norm over the last dimension in one launch, whatever the number of rows.

A token at a time there is one row, and a launch costs more than the sums: on a CPU
adapter every invocation adds up the row for itself rather than wait for others.
"""

from __future__ import annotations

from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op
from ...plan.wgsl_text import Param
from .norm import rms_eps
from .workgroup_reduction import SUM, across, forms

# Invocations that a CPU adapter should have at least.
_BUSY = 32
_WORKGROUP = 64

_SQUARES_FOURS = """
fn squares(base: i32) -> f32 {
  var sum = vec4<f32>();
  for (var k = 0; k < p.depth / 4; k++) {
    let x = get_x4(base / 4 + k);
    sum += x * x;
  }
  return sum.x + sum.y + sum.z + sum.w;
}"""
_SQUARES = """
fn squares(base: i32) -> f32 {
  var sum = 0.0;
  for (var k = 0; k < p.depth; k++) {
    let x = get_x(base + k);
    sum += x * x;
  }
  return sum;
}"""


def rms_rows(
    g: Recorder, x: Tensor, weight: Tensor | None, eps: float | None, out: Output
) -> None:
    g.require(x.dtype.is_float, "input must be float", x.dtype.label)
    g.require(x.rank >= 1, "input must have a dimension to norm", x.rank)
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
    params: dict[str, Param] = {"depth": depth, "eps": rms_eps(eps)}
    if not g.caps.is_cpu:
        fold = max(1, min(rows, 32768))
        form = g.choose("rms", (rows, depth), forms(g.caps), x.dtype)
        g.dispatch(
            "rms_workgroup",
            inputs,
            {"y": out},
            {**params, "rows": rows, "fold": fold},
            groups=(fold, -(-rows // fold), 1),
            workgroup=_WORKGROUP,
            code=code + across(form, [("row_sum", SUM)]),
        )
        return
    chunks = max(1, min(_BUSY // max(rows, 1), depth))
    chunk = -(-depth // chunks)
    chunks = -(-depth // chunk) if depth else 0
    fours = depth % 4 == 0
    g.dispatch(
        "rms_rows",
        inputs,
        {"y": out},
        {**params, "chunk": chunk, "chunks": chunks},
        invocations=rows * chunks,
        workgroup=8,
        vec4={"x"} if fours else (),
        code=code + (_SQUARES_FOURS if fours else _SQUARES),
    )


@op("webgpu.rms_norm", fusible=True)
def rms_norm(
    g: Recorder, x: Tensor, weight: Tensor | None, eps: float | None, *, out: Output
) -> None:
    rms_rows(g, x, weight, eps, out)


@op("et_vk.rms_norm.default", fusible=True)
def et_vk_rms_norm(
    g: Recorder, x: Tensor, weight: Tensor, eps: float, *, out: Output
) -> None:
    rms_rows(g, x, weight, eps, out)


@op("et_vk.prepack.default")
def prepack(g: Recorder, x: Tensor, *, out: Output) -> None:
    """A constant goes to its consumer's buffer, in the layout it asks for."""
    g.alias(out, x)


@op("et_vk.sdpa.default")
def sdpa(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
    *,
    out: Output,
) -> None:
    g.run(
        "aten.scaled_dot_product_attention.default",
        q,
        k,
        v,
        attn_mask,
        0.0,
        False,
        scale,
        False,
        out=out,
    )
