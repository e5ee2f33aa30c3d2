"""Reductions over any dimensions: each op is a reduction of `row_reduction.py`.

Floats add up in f32, integers in i32 or, for int64, in two of them. As in torch, NaN
propagates, and of equal elements the index of the first is found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import EQUAL, SUM, TOLERANT
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param, compute_type
from .row_reduction import Reduction, dims_of, exponentials, moments, reduce

op = partial(registry.op, accuracy=EQUAL)

_NO_INDEX = 2**31 - 1


def _truth(x: Tensor) -> str:
    """WGSL: 1 if the element v is not 0, else 0."""
    return "truth_float(v)" if x.dtype.is_float else "select(0, 1, v != 0)"


def _identity(x: Tensor, sign: int) -> str:
    """WGSL: the identity element of a maximum (sign 1) or a minimum (-1)."""
    if x.dtype.is_float:
        return "-inf()" if sign > 0 else "inf()"
    return "-2147483647 - 1" if sign > 0 else "2147483647"


def _extreme(x: Tensor, sign: int, results: Sequence[str]) -> Reduction:
    """The largest (sign 1) or smallest (-1) element and its first index."""
    beats, same = ("a > b" if sign > 0 else "a < b"), "a == b"
    if x.dtype.is_float:
        beats, same = f"beats_float(a, b, {float(sign)})", "same_float(a, b)"
    return Reduction(
        f"{_identity(x, sign)}, {_NO_INDEX}",
        "v, r",
        "merge_extremes(s, t)",
        results,
        (compute_type(x.dtype), "i32"),
        functions=f"fn beats(a: T, b: T) -> bool {{ return {beats}; }}\n"
        f"fn same(a: T, b: T) -> bool {{ return {same}; }}",
    )


def _expect_elements(g: Recorder, x: Tensor, dims: Sequence[int]) -> None:
    empty = any(x.shape[d] == 0 for d in dims) and all(
        x.shape[d] for d in range(x.rank) if d not in dims
    )
    g.require(not empty, "a row to search must have elements", list(x.shape))


# -- the ops -------------------------------------------------------------------------

_SUM = Reduction("A(0)", "A(v)", "s.a + t.a", ["s.a"])
_PRODUCT = Reduction("A(1)", "A(v)", "s.a * t.a", ["s.a"])
# For int64; `whole` (of `_total`) is the element as an integer.
_EXACT_SUM = Reduction(
    "0, 0",
    "whole(v), whole(v) >> 31u",
    "merge_wide(s, t)",
    ["wide_exact(vec2(s.a, s.b))"],
    ("i32", "i32"),
)
_EXACT_PRODUCT = Reduction(
    "1, 0", "whole(v), 0", "merge_products(s, t)", ["product_exact(s)"], ("i32", "i32")
)


def _total(the: Reduction, x: Tensor, out: Output) -> Reduction:
    """A sum or product as it is; of int64, exact: a result that does not fit 32 bits is
    reported."""
    if out.dtype is not DType.INT64 or x.dtype is DType.BOOL:
        return the
    exact = _EXACT_SUM if the is _SUM else _EXACT_PRODUCT
    code = "int_exact(v)" if x.dtype.is_float else "v"
    return replace(exact, functions=f"fn whole(v: T) -> i32 {{ return {code}; }}")


_MEAN = Reduction(
    "A(0)", "A(v)", "s.a + t.a", ["select(s.a / f32(p.count), nan(), p.count == 0)"]
)


@op("aten.sum.dim_IntList", fusible=True, lazy=1, accuracy=SUM)
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


@op("aten.sum.default", fusible=True, lazy=1, accuracy=SUM)
def sum_all(g: Recorder, x: Tensor, dtype: DType | None, *, out: Output) -> None:
    reduce(g, _total(_SUM, x, out), x, dims_of(x, None), [out])


@op("aten.nansum.default", fusible=True, keep=True, lazy=1, accuracy=SUM)
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
    the = replace(_SUM, element=_truth(x))
    reduce(g, the, x, dims_of(x, dim), [out])


@op("aten.mean.dim", fusible=True, lazy=1, accuracy=SUM)
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


@op("aten.mean.default", fusible=True, lazy=1, accuracy=SUM)
def mean_all(g: Recorder, x: Tensor, dtype: DType | None, *, out: Output) -> None:
    reduce(g, _MEAN, x, dims_of(x, None), [out])


@op("aten.prod.dim_int", fusible=True, lazy=1, accuracy=SUM)
def prod_dim(
    g: Recorder, x: Tensor, dim: int, keepdim: bool, dtype: DType | None, *, out: Output
) -> None:
    reduce(g, _total(_PRODUCT, x, out), x, dims_of(x, dim), [out])


@op("aten.prod.default", fusible=True, lazy=1, accuracy=SUM)
def prod_all(g: Recorder, x: Tensor, dtype: DType | None, *, out: Output) -> None:
    reduce(g, _total(_PRODUCT, x, out), x, dims_of(x, None), [out])


def _extreme_value(
    g: Recorder, x: Tensor, dims: Sequence[int], sign: int, out: Output
) -> None:
    """The largest or smallest element of each row, without its index."""
    _expect_elements(g, x, dims)
    name = "max" if sign > 0 else "min"
    merge = f"{name}_nan(s.a, t.a)" if x.dtype.is_float else f"{name}(s.a, t.a)"
    kind = compute_type(x.dtype)
    the = Reduction(_identity(x, sign), "v", merge, ["s.a"], (kind,))
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


def _extreme_index(
    g: Recorder, x: Tensor, dims: Sequence[int], sign: int, outs: Sequence[Output]
) -> None:
    _expect_elements(g, x, dims)
    results = ["s.a", "s.b"] if len(outs) > 1 else ["s.b"]
    reduce(g, _extreme(x, sign, results), x, dims, outs)


@op("aten.max.dim", lazy=1)
def max_dim(
    g: Recorder, x: Tensor, dim: int, keepdim: bool, *, out: list[Output]
) -> None:
    _extreme_index(g, x, dims_of(x, dim), 1, out)


@op("aten.min.dim", lazy=1)
def min_dim(
    g: Recorder, x: Tensor, dim: int, keepdim: bool, *, out: list[Output]
) -> None:
    _extreme_index(g, x, dims_of(x, dim), -1, out)


@op("aten.argmax.default", fusible=True, lazy=1)
def argmax(
    g: Recorder, x: Tensor, dim: int | None, keepdim: bool, *, out: Output
) -> None:
    _extreme_index(g, x, dims_of(x, dim), 1, [out])


@op("aten.argmin.default", fusible=True, lazy=1)
def argmin(
    g: Recorder, x: Tensor, dim: int | None, keepdim: bool, *, out: Output
) -> None:
    _extreme_index(g, x, dims_of(x, dim), -1, [out])


@op("aten.any.default", "aten.any.dim", "aten.any.dims", fusible=True, lazy=1)
def any_(
    g: Recorder,
    x: Tensor,
    dim: list[int] | int | None = None,
    keepdim: bool = False,
    *,
    out: Output,
) -> None:
    the = Reduction("0", _truth(x), "s.a | t.a", ["s.a"])
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
    the = Reduction("1", _truth(x), "s.a & t.a", ["s.a"])
    reduce(g, the, x, _truth_dims(x, dim, out), [out])


def _truth_dims(x: Tensor, dim: list[int] | int | None, out: Output) -> list[int]:
    """any and all take an empty list of dimensions as it is: no reduction."""
    return [] if dim == [] and out.shape == x.shape else dims_of(x, dim)


@op("aten.logsumexp.default", fusible=True, keep=True, lazy=2, accuracy=TOLERANT)
def logsumexp(
    g: Recorder, x: Tensor, dim: list[int], keepdim: bool, *, out: Output
) -> None:
    g.require(x.dtype.is_float, "logsumexp must be of floats", x.dtype.label)
    the = exponentials(["select(s.a + log(s.b), s.a, is_inf(s.a))"])
    reduce(g, the, x, dims_of(x, dim), [out])


# -- variance ------------------------------------------------------------------------

_VARIANCE = "variance(s.b, s.c - p.correction)"
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
    the = moments([_MOMENT[name] for name in wanted])
    params = {"correction": 1.0 if correction is None else float(correction)}
    reduce(g, the, x, dims_of(x, dim), outs, params)


@op("aten.var.correction", fusible=True, lazy=2, accuracy=TOLERANT)
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


@op("aten.std.correction", fusible=True, keep=True, lazy=2, accuracy=TOLERANT)
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


@op("aten.var.dim", fusible=True, lazy=2, accuracy=TOLERANT)
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


@op("aten.linalg_vector_norm.default", fusible=True, keep=True, lazy=1, accuracy=SUM)
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
        the = Reduction("0.0" if order > 0 else "inf()", "abs(v)", merge, ["s.a"])
    elif order == 2:
        the = Reduction("0.0", "v * v", total, ["sqrt(s.a)"])
    elif order == 1:
        the = Reduction("0.0", "abs(v)", total, ["s.a"])
    elif order == 0:
        the = Reduction("0.0", f"f32({_truth(x)})", total, ["s.a"])
    else:
        params["order"] = float(order)
        the = Reduction(
            "0.0",
            "power_positive(abs(v), p.order)",
            total,
            ["power_positive(s.a, 1.0 / p.order)"],
        )
    reduce(g, the, x, dims_of(x, dim), [out], params)
