"""Reductions over any dimensions: each op is a fold of `row_reduction.py`.

Floats add up in f32, integers in i32 or, for int64, in two of them; NaN spreads, and
the first of equal elements is the one that is found, as in torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DType
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op
from ...plan.wgsl_text import Param, compute_type
from .row_reduction import Fold, dims_of, exponentials, moments, reduce

_FLOAT_EXTREME = """
fn extreme() -> f32 { return SIGN * -inf(); }
fn beats(a: f32, b: f32) -> bool {
  return !is_nan(b) && (is_nan(a) || SIGN * a > SIGN * b);
}
fn same(a: f32, b: f32) -> bool { return a == b || (is_nan(a) && is_nan(b)); }
"""
_INT_EXTREME = """
fn extreme() -> i32 { return select(2147483647, -2147483647 - 1, SIGN > 0); }
fn beats(a: i32, b: i32) -> bool { return select((a < b), (a > b), SIGN > 0); }
fn same(a: i32, b: i32) -> bool { return a == b; }
"""
_FLOAT_TRUTH = """
fn truth(v: f32) -> i32 {
  return select(0, 1, (bitcast<u32>(v) & 0x7fffffffu) != 0u);
}
"""
_INT_TRUTH = "fn truth(v: i32) -> i32 { return select(0, 1, v != 0); }"
_RATIO = """
fn ratio(a: f32, b: f32) -> f32 {
  if (b > 0.0) { return a / b; }
  return select(nan(), inf(), a > 0.0);
}
"""
_POWER = """
// pow of a number >= 0, which pow itself may give NaN for at 0 and at inf.
fn power(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return a; }
  if (a == 0.0) { return select(inf(), 0.0, b > 0.0); }
  if (is_inf(a)) { return select(0.0, inf(), b > 0.0); }
  return pow(a, b);
}
"""
_NO_INDEX = 2**31 - 1


def _truth(x: Tensor) -> str:
    return _FLOAT_TRUTH if x.dtype.is_float else _INT_TRUTH


def _extreme(x: Tensor, sign: int, results: Sequence[str]) -> Fold:
    """The largest (sign 1) or smallest (-1) element and its first place."""
    if x.dtype.is_float:
        functions = _FLOAT_EXTREME.replace("SIGN", f"{float(sign)}")
    else:
        functions = _INT_EXTREME.replace("SIGN", str(sign))
    functions += """
fn better(s: Acc, t: Acc) -> Acc {
  if (beats(t.a, s.a)) { return t; }
  if (same(t.a, s.a) && t.b < s.b) { return t; }
  return s;
}
"""
    return Fold(
        f"extreme(), {_NO_INDEX}",
        "v, r",
        "",
        results,
        (compute_type(x.dtype), "i32"),
        functions=functions,
    )


def _expect_elements(g: Recorder, x: Tensor, dims: Sequence[int]) -> None:
    empty = any(x.shape[d] == 0 for d in dims) and all(
        x.shape[d] for d in range(x.rank) if d not in dims
    )
    g.require(not empty, "a row to search must have elements", list(x.shape))


# -- the ops -------------------------------------------------------------------------

_SUM = Fold("A(0)", "A(v)", "s.a + t.a", ["s.a"])
_PRODUCT = Fold("A(1)", "A(v)", "s.a * t.a", ["s.a"])
# An int64 total is 64 bits wide until it is stored.
_EXACT_SUM = Fold(
    "0, 0",
    "whole(v), whole(v) >> 31u",
    "combine(s, t)",
    ["wide_exact(vec2(s.a, s.b))"],
    ("i32", "i32"),
    functions="""
fn combine(s: Acc, t: Acc) -> Acc {
  let sum = wide_add(vec2(s.a, s.b), vec2(t.a, t.b));
  return Acc(sum.x, sum.y);
}
""",
)
# The product of what is not 0 only grows: that it did not fit (s.b) stays so.
_EXACT_PRODUCT = Fold(
    "1, 0",
    "whole(v), 0",
    "combine(s, t)",
    ["product(s)"],
    ("i32", "i32"),
    functions="""
fn is_zero(s: Acc) -> bool { return s.a == 0 && s.b == 0; }
fn combine(s: Acc, t: Acc) -> Acc {
  if (is_zero(s) || is_zero(t)) { return Acc(0, 0); }
  return Acc(s.a * t.a, s.b | t.b | select(1, 0, fits_product(s.a, t.a)));
}
fn product(s: Acc) -> i32 {
  if (s.b != 0) { report(BAD_WHOLE, 0, 0); }
  return s.a;
}
""",
)


def _total(the: Fold, x: Tensor, out: Output) -> Fold:
    """The fold of a sum or product; of int64, one that fits or is reported."""
    if out.dtype is not DType.INT64 or x.dtype is DType.BOOL:
        return the
    exact = _EXACT_SUM if the is _SUM else _EXACT_PRODUCT
    code = "int_exact(v)" if x.dtype.is_float else "v"
    whole = f"fn whole(v: T) -> i32 {{ return {code}; }}"
    return replace(exact, functions=exact.functions + whole)


_MEAN = Fold(
    "A(0)",
    "A(v)",
    "s.a + t.a",
    ["ratio(s.a, f32(p.count))"],
    functions="fn ratio(a: f32, n: f32) -> f32 {\n"
    "  if (n == 0.0) { return nan(); }\n  return a / n;\n}",
)


@op("aten.sum.dim_IntList", fusible=True, lazy=1)
def sum_dims(
    g: Recorder,
    x: Tensor,
    dim: list[int] | None,
    keepdim: bool,
    dtype: DType | None,
    *,
    out: Output,
) -> None:
    reduce(g, _total(_SUM, x, out), x, dims_of(x, dim), [out])


@op("aten.sum.default", fusible=True, lazy=1)
def sum_all(g: Recorder, x: Tensor, dtype: DType | None, *, out: Output) -> None:
    reduce(g, _total(_SUM, x, out), x, dims_of(x, None), [out])


@op("aten.nansum.default", fusible=True, keep=True, lazy=1)
def nansum(
    g: Recorder,
    x: Tensor,
    dim: list[int] | None,
    keepdim: bool,
    dtype: DType | None,
    *,
    out: Output,
) -> None:
    the = _total(_SUM, x, out)
    if x.dtype.is_float:
        the = replace(_SUM, element="A(select(v, 0.0, is_nan(v)))")
    reduce(g, the, x, dims_of(x, dim), [out])


@op("aten.count_nonzero.dim_IntList", fusible=True, keep=True, lazy=1)
def count_nonzero(g: Recorder, x: Tensor, dim: list[int], *, out: Output) -> None:
    the = replace(_SUM, element="truth(v)", functions=_truth(x))
    reduce(g, the, x, dims_of(x, dim), [out])


@op("aten.mean.dim", fusible=True, lazy=1)
def mean_dims(
    g: Recorder,
    x: Tensor,
    dim: list[int] | None,
    keepdim: bool,
    dtype: DType | None,
    *,
    out: Output,
) -> None:
    reduce(g, _MEAN, x, dims_of(x, dim), [out])


@op("aten.mean.default", fusible=True, lazy=1)
def mean_all(g: Recorder, x: Tensor, dtype: DType | None, *, out: Output) -> None:
    reduce(g, _MEAN, x, dims_of(x, None), [out])


@op("aten.prod.dim_int", fusible=True, lazy=1)
def prod_dim(
    g: Recorder, x: Tensor, dim: int, keepdim: bool, dtype: DType | None, *, out: Output
) -> None:
    reduce(g, _total(_PRODUCT, x, out), x, dims_of(x, dim), [out])


@op("aten.prod.default", fusible=True, lazy=1)
def prod_all(g: Recorder, x: Tensor, dtype: DType | None, *, out: Output) -> None:
    reduce(g, _total(_PRODUCT, x, out), x, dims_of(x, None), [out])


def _extreme_value(
    g: Recorder, x: Tensor, dims: Sequence[int], sign: int, out: Output
) -> None:
    """The largest or smallest element of each row, without its place."""
    _expect_elements(g, x, dims)
    found = _extreme(x, sign, [])
    name = "max" if sign > 0 else "min"
    merge = f"{name}_nan(s.a, t.a)" if x.dtype.is_float else f"{name}(s.a, t.a)"
    functions = found.functions.split("fn better")[0]
    the = Fold("extreme()", "v", merge, ["s.a"], found.fields[:1], functions=functions)
    reduce(g, the, x, dims, [out])


@op("aten.amax.default", fusible=True, lazy=1)
def amax(g: Recorder, x: Tensor, dim: list[int], keepdim: bool, *, out: Output) -> None:
    _extreme_value(g, x, dims_of(x, dim), 1, out)


@op("aten.amin.default", fusible=True, lazy=1)
def amin(g: Recorder, x: Tensor, dim: list[int], keepdim: bool, *, out: Output) -> None:
    _extreme_value(g, x, dims_of(x, dim), -1, out)


@op("aten.max.default", fusible=True, lazy=1)
def max_all(g: Recorder, x: Tensor, *, out: Output) -> None:
    _extreme_value(g, x, dims_of(x, None), 1, out)


@op("aten.min.default", fusible=True, lazy=1)
def min_all(g: Recorder, x: Tensor, *, out: Output) -> None:
    _extreme_value(g, x, dims_of(x, None), -1, out)


def _extreme_place(
    g: Recorder, x: Tensor, dims: Sequence[int], sign: int, outs: Sequence[Output]
) -> None:
    _expect_elements(g, x, dims)
    results = ["s.a", "s.b"] if len(outs) > 1 else ["s.b"]
    reduce(g, _extreme(x, sign, results), x, dims, outs)


@op("aten.max.dim", lazy=1)
def max_dim(
    g: Recorder, x: Tensor, dim: int, keepdim: bool, *, out: list[Output]
) -> None:
    _extreme_place(g, x, dims_of(x, dim), 1, out)


@op("aten.min.dim", lazy=1)
def min_dim(
    g: Recorder, x: Tensor, dim: int, keepdim: bool, *, out: list[Output]
) -> None:
    _extreme_place(g, x, dims_of(x, dim), -1, out)


@op("aten.argmax.default", fusible=True, lazy=1)
def argmax(
    g: Recorder, x: Tensor, dim: int | None, keepdim: bool, *, out: Output
) -> None:
    _extreme_place(g, x, dims_of(x, dim), 1, [out])


@op("aten.argmin.default", fusible=True, lazy=1)
def argmin(
    g: Recorder, x: Tensor, dim: int | None, keepdim: bool, *, out: Output
) -> None:
    _extreme_place(g, x, dims_of(x, dim), -1, [out])


@op("aten.any.default", "aten.any.dim", "aten.any.dims", fusible=True, lazy=1)
def any_(
    g: Recorder,
    x: Tensor,
    dim: list[int] | int | None = None,
    keepdim: bool = False,
    *,
    out: Output,
) -> None:
    the = Fold("0", "truth(v)", "s.a | t.a", ["s.a"], functions=_truth(x))
    reduce(g, the, x, _truth_dims(x, dim, out), [out])


@op(
    "aten.all.default", "aten.all.dim", "aten.all.dims", fusible=True, keep=True, lazy=1
)
def all_(
    g: Recorder,
    x: Tensor,
    dim: list[int] | int | None = None,
    keepdim: bool = False,
    *,
    out: Output,
) -> None:
    the = Fold("1", "truth(v)", "s.a & t.a", ["s.a"], functions=_truth(x))
    reduce(g, the, x, _truth_dims(x, dim, out), [out])


def _truth_dims(x: Tensor, dim: list[int] | int | None, out: Output) -> list[int]:
    """any and all take an empty list of dimensions as it is: no reduction."""
    return [] if dim == [] and out.shape == x.shape else dims_of(x, dim)


@op("aten.logsumexp.default", fusible=True, keep=True, lazy=2)
def logsumexp(
    g: Recorder, x: Tensor, dim: list[int], keepdim: bool, *, out: Output
) -> None:
    g.require(x.dtype.is_float, "logsumexp must be of floats", x.dtype.label)
    the = exponentials(["select(s.a + log(s.b), s.a, is_inf(s.a))"])
    reduce(g, the, x, dims_of(x, dim), [out])


# -- variance ------------------------------------------------------------------------

_VARIANCE = "ratio(s.b, s.c - p.correction)"
_MOMENT = {
    "var": _VARIANCE,
    "std": f"sqrt({_VARIANCE})",
    "mean": "select(s.a, nan(), s.c == 0.0)",
}


def _spread(
    g: Recorder,
    x: Tensor,
    dim: Sequence[int] | None,
    correction: float | None,
    wanted: Sequence[str],
    outs: Sequence[Output],
) -> None:
    g.require(x.dtype.is_float, "a variance must be of floats", x.dtype.label)
    the = moments([_MOMENT[name] for name in wanted], _RATIO)
    params = {"correction": 1.0 if correction is None else float(correction)}
    reduce(g, the, x, dims_of(x, dim), outs, params)


@op("aten.var.correction", fusible=True, lazy=2)
def var(
    g: Recorder,
    x: Tensor,
    dim: list[int] | None,
    correction: float | None,
    keepdim: bool,
    *,
    out: Output,
) -> None:
    _spread(g, x, dim, correction, ["var"], [out])


@op("aten.std.correction", fusible=True, keep=True, lazy=2)
def std(
    g: Recorder,
    x: Tensor,
    dim: list[int] | None,
    correction: float | None,
    keepdim: bool,
    *,
    out: Output,
) -> None:
    _spread(g, x, dim, correction, ["std"], [out])


@op("aten.var.dim", fusible=True, lazy=2)
def var_dim(
    g: Recorder,
    x: Tensor,
    dim: list[int] | None,
    unbiased: bool,
    keepdim: bool,
    *,
    out: Output,
) -> None:
    _spread(g, x, dim, float(unbiased), ["var"], [out])


# -- vector norms --------------------------------------------------------------------


@op("aten.linalg_vector_norm.default", fusible=True, keep=True, lazy=1)
def vector_norm(
    g: Recorder,
    x: Tensor,
    order: float,
    dim: list[int] | None,
    keepdim: bool,
    dtype: DType | None,
    *,
    out: Output,
) -> None:
    g.require(x.dtype.is_float, "a norm must be of floats", x.dtype.label)
    params: dict[str, Param] = {}
    total = "s.a + t.a"
    if math.isinf(order):
        merge = "max_nan(s.a, t.a)" if order > 0 else "min_nan(s.a, t.a)"
        the = Fold("0.0" if order > 0 else "inf()", "abs(v)", merge, ["s.a"])
    elif order == 2:
        the = Fold("0.0", "v * v", total, ["sqrt(s.a)"])
    elif order == 1:
        the = Fold("0.0", "abs(v)", total, ["s.a"])
    elif order == 0:
        the = Fold("0.0", "f32(truth(v))", total, ["s.a"], functions=_truth(x))
    else:
        params["order"] = float(order)
        the = Fold(
            "0.0",
            "power(abs(v), p.order)",
            total,
            ["power(s.a, 1.0 / p.order)"],
            functions=_POWER,
        )
    reduce(g, the, x, dims_of(x, dim), [out], params)
