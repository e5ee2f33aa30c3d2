"""Normalisation: rows are shifted and scaled by their own or by given statistics.

A row is the elements that share one mean (a token of layer norm, a group of group
norm). On a CPU adapter statistics and normalisation are two kernels, elsewhere one
workgroup does both for a row, in registers where it can (norm_registers.py). Statistics
are f32, in two passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import row_major
from ...plan.wgsl_text import Param
from . import norm_registers, workgroup_reduction
from .row_reduction import moments, partial_code, reduce, reduce_code

op = partial(registry.op, accuracy=TOLERANT)

_MOMENTS = moments(["s.a", "1.0 / sqrt(s.b / s.c + p.eps)"])


@dataclass(frozen=True)
class _Layout:
    """Rows of `count` elements, and the channel that element r of row o is in:
    (o * per_row + r / inner) % channels."""

    rows: int
    count: int
    channels: int
    per_row: int = 0
    inner: int = 1

    @property
    def params(self) -> dict[str, Param]:
        return {
            "rows": self.rows,
            "count": self.count,
            "channels": max(self.channels, 1),
            "per_row": self.per_row,
            "inner": max(self.inner, 1),
        }


def _affine(
    weight: Tensor | None, bias: Tensor | None
) -> tuple[str, dict[str, Tensor]]:
    """`affine(v, channel)` and the tensors it reads."""
    code, inputs = "v", {}
    if weight is not None:
        code, inputs["weight"] = f"{code} * get_weight(c)", weight
    if bias is not None:
        code, inputs["bias"] = f"{code} + get_bias(c)", bias
    return f"fn affine(v: f32, c: i32) -> f32 {{ return {code}; }}", inputs


def _apply(
    g: Recorder,
    x: Tensor,
    layout: _Layout,
    shift: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Output,
    *,
    eps: float | None = None,
    by_channel: bool = False,
) -> None:
    """Normalises by known statistics; with `eps`, `scale` is a variance."""
    code, inputs = _affine(weight, bias)
    inputs = {"x": x, "scale": scale, **inputs, "shift": shift}
    params = layout.params
    code += "\nfn shift_at(k: i32) -> f32 { return get_shift(k); }"
    at = "get_scale(k)" if eps is None else "1.0 / sqrt(get_scale(k) + p.eps)"
    code += f"\nfn scale_at(k: i32) -> f32 {{ return {at}; }}"
    if eps is not None:
        params["eps"] = float(eps)
    deep = min(layout.rows, 32768)
    groups = (-(-layout.count // 64), deep, -(-layout.rows // max(deep, 1)))
    g.dispatch(
        "norm_apply",
        inputs,
        {"y": out},
        params,
        workgroups=groups,
        code=code,
        consts={"BY_CHANNEL": by_channel, "BY_ELEMENT": layout.inner == 1},
    )


def _by_row(
    g: Recorder,
    x: Tensor,
    layout: _Layout,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    out: Output,
    stats: Sequence[Output] = (),
) -> None:
    """Normalises each row by its own statistics, which `stats` receive."""
    g.require(x.dtype.is_float, "a norm must be of floats", x.dtype.label)
    x = g.contiguous(x)
    if g.caps.is_cpu:
        rows = x.with_view((layout.rows, layout.count), (layout.count, 1))
        made = [g.output((layout.rows,), DType.FLOAT32) for _ in range(2)]
        reduce(g, _MOMENTS, rows, [1], made, {"eps": float(eps)})
        _apply(g, x, layout, made[0].tensor, made[1].tensor, weight, bias, out)
        for target, stat in zip(stats, made):
            if target.needed:
                strides = row_major(target.shape)
                g.copy(stat.tensor.with_view(target.shape, strides), target)
        return
    needed = [k for k, stat in enumerate(stats) if stat.needed]
    by_element = layout.inner == 1 and layout.channels == layout.count
    if by_element and not needed and norm_registers.fits(layout.count, out):
        norm_registers.norm_in_registers(
            g, x, layout.count, weight, bias, float(eps), out
        )
        return
    code, inputs = _affine(weight, bias)
    targets = {f"stat{k}": stats[k] for k in needed}
    puts = " ".join(f"put_stat{k}(o, {_MOMENTS.results[k]});" for k in needed)
    sizes = (layout.rows, layout.count)
    form = g.choose("norm", sizes, workgroup_reduction.forms(g.caps), x.dtype)
    lines = [
        reduce_code(_MOMENTS),
        workgroup_reduction.across(
            form, [("reduced", workgroup_reduction.accumulators(len(_MOMENTS.fields)))]
        ),
        partial_code(_MOMENTS),
        code,
        f"fn emit(o: i32, split: i32, s: Acc) {{ {puts} }}",
        f"fn shift_of(s: Acc) -> f32 {{ return {_MOMENTS.results[0]}; }}",
        f"fn scale_of(s: Acc) -> f32 {{ return {_MOMENTS.results[1]}; }}",
    ]
    g.dispatch(
        "norm_workgroup",
        {"x": x, **inputs},
        {"y": out, **targets},
        {**layout.params, "stride": 1, "eps": float(eps)},
        workgroups=layout.rows,
        workgroup=64 if layout.count <= 512 else 256,
        consts={"T": "f32", "A": "f32", "BY_ELEMENT": layout.inner == 1},
        code="\n".join(lines),
    )


# -- layer norm ----------------------------------------------------------------------


def _layer_layout(g: Recorder, x: Tensor, normalized: Sequence[int]) -> _Layout:
    lead = max(x.rank - len(normalized), 0)
    g.require(
        tuple(normalized) == x.shape[lead:],
        f"normalized_shape must be that of x, {list(x.shape[lead:])}",
        list(normalized),
    )
    count = math.prod(normalized)
    rows = math.prod(x.shape[:lead])
    return _Layout(rows, count, count)


@op("aten.native_layer_norm.default", fusible=True, lazy=3)
def native_layer_norm(
    g: Recorder,
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    out: list[Output],
) -> None:
    layout = _layer_layout(g, x, normalized_shape)
    _by_row(g, x, layout, weight, bias, eps, out[0], out[1:])


@op("aten.layer_norm.default", fusible=True, keep=True, lazy=3)
def layer_norm(
    g: Recorder,
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    cudnn_enable: bool,
    *,
    out: Output,
) -> None:
    layout = _layer_layout(g, x, normalized_shape)
    _by_row(g, x, layout, weight, bias, eps, out)


# -- group norm ----------------------------------------------------------------------


def _group_layout(x: Tensor, groups: int) -> _Layout:
    batch, channels = x.shape[:2]
    inner = math.prod(x.shape[2:])
    per_row = channels // groups
    return _Layout(batch * groups, per_row * inner, channels, per_row, inner)


@op("aten.native_group_norm.default", fusible=True, lazy=3)
def native_group_norm(
    g: Recorder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
    *,
    out: list[Output],
) -> None:
    _by_row(g, x, _group_layout(x, groups), weight, bias, eps, out[0], out[1:])


@op("aten.group_norm.default", fusible=True, keep=True, lazy=3)
def group_norm(
    g: Recorder,
    x: Tensor,
    groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    cudnn_enabled: bool,
    *,
    out: Output,
) -> None:
    _by_row(g, x, _group_layout(x, groups), weight, bias, eps, out)


# -- batch norm ----------------------------------------------------------------------


def _batch_layout(x: Tensor) -> _Layout:
    """Rows of one channel where they are long enough to fill a workgroup."""
    batch, channels = x.shape[:2]
    inner = math.prod(x.shape[2:])
    if inner >= 32:
        return _Layout(batch * channels, inner, channels, 1, inner)
    return _Layout(batch, channels * inner, channels, 0, inner)


def _by_channel(
    g: Recorder,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    out: Output,
) -> None:
    g.require(x.dtype.is_float, "a norm must be of floats", x.dtype.label)
    _apply(
        g,
        x,
        _batch_layout(x),
        mean,
        variance,
        weight,
        bias,
        out,
        eps=eps,
        by_channel=True,
    )


@op("aten._native_batch_norm_legit_no_training.default", fusible=True, lazy=1)
def batch_norm_inference(
    g: Recorder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
    *,
    out: list[Output],
) -> None:
    _by_channel(g, x, mean, variance, weight, bias, eps, out[0])
    for rest in out[1:]:  # the statistics that training would save: empty
        if rest.needed:
            g.copy(g.number(0.0, DType.FLOAT32).expand(rest.shape), rest)


@op("aten.batch_norm.default", fusible=True, lazy=3)
def batch_norm(
    g: Recorder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
    *,
    out: Output,
) -> None:
    if mean is None or variance is None:
        mean, scale = _batch_statistics(g, x, eps)
        _apply(g, x, _batch_layout(x), mean, scale, weight, bias, out, by_channel=True)
        return
    g.require(not training, "batch norm must not train", training)
    _by_channel(g, x, mean, variance, weight, bias, eps, out)


def _batch_statistics(g: Recorder, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    g.require(x.dtype.is_float, "a norm must be of floats", x.dtype.label)
    made = [g.output((x.shape[1],), DType.FLOAT32) for _ in range(2)]
    dims = [d for d in range(x.rank) if d != 1]
    reduce(g, _MOMENTS, x, dims, made, {"eps": float(eps)})
    return made[0].tensor, made[1].tensor


@op("aten._native_batch_norm_legit.no_stats", fusible=True, lazy=3)
def batch_norm_own_statistics(
    g: Recorder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: list[Output],
) -> None:
    mean, scale = _batch_statistics(g, x, eps)
    _apply(g, x, _batch_layout(x), mean, scale, weight, bias, out[0], by_channel=True)
    for target, stat in zip(out[1:], (mean, scale)):
        if target.needed:
            g.copy(stat, target)
