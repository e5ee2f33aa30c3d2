"""Scans: running totals along a dimension.

A short row is scanned by one invocation. A long one is cut into blocks: the totals of
the blocks are scanned first, and each block then starts from the total of those before
it, which also keeps float sums accurate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import EQUAL, MOVED, SUM, TOLERANT
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param, compute_type

op = partial(registry.op, accuracy=SUM)

_LONG = 256  # elements from which a row is cut into blocks


@dataclass(frozen=True)
class _Total:
    """WGSL: the identity element, and the total of a total s and an element v.

    `exact` is a function of s and v for int64, whose stored values must fit 32 bits.
    With `over`, what is scanned are indices of that tensor, which `functions` read: all
    of them, in order, if `over` is the tensor to scan. `last` is what is stored for a
    total t.
    """

    start: str
    join: str
    functions: str = ""
    exact: str = ""
    over: Tensor | None = None
    last: str = "t"


_SUM = _Total("A(0)", "s + v", exact="add_exact")
_PRODUCT = _Total("A(1)", "s * v", exact="multiply_exact")
_LOG_SUM = _Total("-inf()", "log_add(s, v)")


def _extreme(x: Tensor, beats: str) -> _Total:
    """The index of the running extreme: NaN is one, and of equal elements the last."""
    taken, kind = f"other {beats} best", compute_type(x.dtype)
    if x.dtype.is_float:
        taken = f"is_nan(other) || (!is_nan(best) && {taken})"
    functions = f"fn taken(best: {kind}, other: {kind}) -> bool {{ return {taken}; }}"
    index = "(t / p.inner) % p.count"
    return _Total("-1", "further(s, v)", functions, over=x, last=index)


def _scan(g: Recorder, total: _Total, x: Tensor, dim: int, out: Output) -> None:
    if x.rank == 0:
        x = x.unsqueeze(0)
        dim = 0
    dim = x.dim(dim)
    count, inner = x.shape[dim], math.prod(x.shape[dim + 1 :])
    outer = math.prod(x.shape[:dim])
    _scan_rows(g, total, x, (outer, count, inner), out, False)


def _scan_rows(
    g: Recorder,
    total: _Total,
    x: Tensor,
    shape: tuple[int, int, int],
    out: Output,
    exclusive: bool,
) -> None:
    outer, count, inner = shape
    kind = compute_type(out.dtype)
    code = (
        f"{total.functions}\n"
        f"fn total(s: A, v: A) -> A {{ return {total.join}; }}\n"
        f"fn start() -> A {{ return {total.start}; }}\n"
    )
    block = count if count < _LONG else _root(count)
    blocks = -(-count // max(block, 1))
    params: dict[str, Param] = {
        "count": count,
        "inner": max(inner, 1),
        "blocks": max(blocks, 1),
        "block": block,
    }
    invocations = outer * blocks * inner
    inputs = {"x": x}
    if total.over is not None:
        inputs["over"] = total.over
    if x is total.over:
        del inputs["x"]
        code += "fn get_x(i: i32) -> i32 { return i; }\n"
    carry = "start()"
    workgroup = 8 if g.caps.is_cpu else 64
    if blocks > 1:
        dtype = DType.FLOAT32 if kind == "f32" else DType.INT32
        totals = g.temp((outer, blocks, inner), dtype)
        g.dispatch(
            "scan_totals",
            inputs,
            {"y": totals},
            params,
            invocations=invocations,
            consts={"A": kind},
            code=code,
            workgroup=workgroup,
        )
        carried = g.output((outer, blocks, inner), dtype)
        _scan_rows(g, total, totals, (outer, blocks, inner), carried, True)
        inputs["carried"] = carried.tensor
        carry = "get_carried(i)"
    code += f"fn carry(i: i32) -> A {{ return {carry}; }}\n"
    value = "total(brought, sum)"
    if exclusive:
        value = "total(brought, before)"
    elif out.dtype is DType.INT64 and total.exact:
        # Exact as long as all totals before it fit; else one of those was reported.
        value = f"{total.exact}(total(brought, before), v)"
    last = "t" if exclusive else total.last
    code += (
        "fn running(brought: A, before: A, sum: A, v: A) -> A {\n"
        f"  let t = {value};\n  return {last};\n}}"
    )
    g.dispatch(
        "scan_rows",
        inputs,
        {"y": out},
        params,
        invocations=invocations,
        consts={"A": kind},
        code=code,
        workgroup=workgroup,
    )


@op("aten.cumsum.default", fusible=True)
def cumsum(
    g: Recorder, x: Tensor, dim: int, dtype: DType | None, *, out: Output
) -> None:
    _scan(g, _SUM, x, dim, out)


@op("aten.cumprod.default", fusible=True, keep=True)
def cumprod(
    g: Recorder, x: Tensor, dim: int, dtype: DType | None, *, out: Output
) -> None:
    _scan(g, _PRODUCT, x, dim, out)


@op("aten.logcumsumexp.default", fusible=True, keep=True, accuracy=TOLERANT)
def logcumsumexp(g: Recorder, x: Tensor, dim: int, *, out: Output) -> None:
    g.require(x.dtype.is_float, "logcumsumexp must be of floats", x.dtype.label)
    _scan(g, _LOG_SUM, x, dim, out)


def _extremes(g: Recorder, x: Tensor, dim: int, beats: str, out: list[Output]) -> None:
    """Finds the index of each running extreme, then gathers the elements there."""
    values, indices = out
    if x.rank == 0:
        g.copy(x, values)
        g.copy(g.number(0, DType.INT64), indices)
        return
    _scan(g, _extreme(x, beats), x, dim, indices)
    g.run("aten.gather.default", x, dim, indices.tensor, False, out=values)


@op("aten.cummax.default", twin=True, accuracy=EQUAL)
def cummax(g: Recorder, x: Tensor, dim: int, *, out: list[Output]) -> None:
    _extremes(g, x, dim, ">=", out)


@op("aten.cummin.default", twin=True, accuracy=EQUAL)
def cummin(g: Recorder, x: Tensor, dim: int, *, out: list[Output]) -> None:
    _extremes(g, x, dim, "<=", out)


@op("aten.masked_scatter.default", fusible=True, accuracy=MOVED)
def masked_scatter(
    g: Recorder, x: Tensor, mask: Tensor, source: Tensor, *, out: Output
) -> None:
    """Where the mask is set, the next element of `source`: its index is how many
    elements of the mask were set before."""
    g.require(mask.dtype is DType.BOOL, "mask must be of bool", mask.dtype.label)
    wide = mask.expand(out.shape)
    before = g.output(out.shape, DType.INT32)
    _scan_rows(g, _SUM, wide, (1, wide.numel, 1), before, True)
    g.require(source.numel > 0 or not out.numel, "source must have elements", 0)
    g.dispatch(
        "masked_take",
        {
            "x": x.expand(out.shape),
            "mask": wide,
            "before": before.tensor,
            "source": source,
        },
        {"y": out},
        {"limit": source.numel},
        invocations=out.numel,
        strided=("x", "mask"),
    )


def _root(count: int) -> int:
    """The smallest power of two whose square is not less: few sizes differ in it."""
    root = 1
    while root * root < count:
        root *= 2
    return root
