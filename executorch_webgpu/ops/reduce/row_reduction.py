"""Folds: how a row of elements becomes one value, for all reductions.

A fold is a few lines of WGSL: where it starts, what one element is, how two
folds merge, and what the whole becomes. `reduce` chooses how to run it: one
invocation per row, several that merge afterwards, or a workgroup per row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.dtypes import DType
from ...plan import wgsl_text
from ...plan.recorder import Output, Recorder, Tensor, fold
from ...plan.tensor import collapse
from ...plan.wgsl_text import Param, compute_type
from . import workgroup_reduction


@dataclass(frozen=True)
class Fold:
    """WGSL expressions: over v and r (an element and its place), s and t (folds).

    `results` are the values stored, over s and p.count, one for each output.
    T is the type of elements, A that of the first field.
    """

    start: str
    element: str
    merge: str
    results: Sequence[str]
    fields: Sequence[str] = ("A",)
    lane: str = "lane_fold"
    functions: str = ""


_EXP_BELOW = """
// exp(x - top), and 0 for an x of -inf even below a top of -inf.
fn exp_below(x: f32, top: f32) -> f32 {
  return select(exp(x - top), 0.0, x == -inf());
}
"""


def moments(results: Sequence[str], functions: str = "") -> Fold:
    """Mean (s.a), sum of squared deviations (s.b) and count (s.c) of each row."""
    functions += """
fn combine(s: Acc, t: Acc) -> Acc {
  if (t.c == 0.0) { return s; }
  if (s.c == 0.0) { return t; }
  let n = s.c + t.c;
  let d = t.a - s.a;
  let w = t.c / n;
  return Acc(s.a + d * w, s.b + t.b + d * d * s.c * w, n);
}
"""
    fields = ("f32", "f32", "f32")
    nothing = "0.0, 0.0, 0.0"
    return Fold(
        nothing, "", "combine(s, t)", results, fields, "lane_moments", functions
    )


def exponentials(results: Sequence[str]) -> Fold:
    """The maximum (s.a) and the sum of exp(x - maximum) (s.b) of each row."""
    functions = f"""{_EXP_BELOW}
fn combine(s: Acc, t: Acc) -> Acc {{
  let top = max_nan(s.a, t.a);
  return Acc(top, s.b * exp_below(s.a, top) + t.b * exp_below(t.a, top));
}}
"""
    fields = ("f32", "f32")
    return Fold(
        "-inf(), 0.0", "", "combine(s, t)", results, fields, "lane_softmax", functions
    )


# -- how a fold runs -----------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Rows of `count` elements, `stride` apart, of a view that kernels index."""

    view: Tensor
    rows: int
    count: int
    stride: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def base_code(self) -> str:
        lines = ["fn row_base(o: i32) -> i32 {", "  var i = o;", "  var at = p.offset;"]
        for dim in range(len(self.shape) - 1, 0, -1):
            lines.append(f"  at += (i % row_n_at({dim})) * row_s_at({dim});")
            lines.append(f"  i = i / row_n_at({dim});")
        return "\n".join([*lines, "  return at + i * row_s_at(0);", "}"])

    @property
    def params(self) -> dict[str, Param]:
        return {
            "rows": self.rows,
            "count": self.count,
            "stride": self.stride,
            "offset": self.view.offset,
            "row_n": self.shape,
            "row_s": self.strides,
        }


def rows_of(g: Recorder, x: Tensor, dims: Sequence[int]) -> _Rows:
    """The rows that remain when `dims` are reduced; copied if they are no rows."""
    kept = [d for d in range(x.rank) if d not in dims]
    view = x.permute([*kept, *dims])
    inner = collapse(view.shape[len(kept) :], [view.strides[len(kept) :]])
    if len(inner.shape) > 1:
        view = g.contiguous(view)
        inner = collapse(view.shape[len(kept) :], [view.strides[len(kept) :]])
    outer = collapse(view.shape[: len(kept)], [view.strides[: len(kept)]])
    rows, count = math.prod(view.shape[: len(kept)]), math.prod(view.shape[len(kept) :])
    return _Rows(view, rows, count, inner.strides[0][0], outer.shape, outer.strides[0])


def _struct(fields: Sequence[str]) -> str:
    members = ", ".join(f"{name}: {kind}" for name, kind in zip("abc", fields))
    return f"struct Acc {{ {members} }}"


def fold_code(the: Fold) -> str:
    merge = the.merge or "better(s, t)"
    whole = merge if "(s, t)" in merge else f"Acc({merge})"
    lines = [_struct(the.fields), the.functions]
    lines.append(f"fn merge(s: Acc, t: Acc) -> Acc {{ return {whole}; }}")
    return "\n".join(lines)


def lane_code(the: Fold) -> str:
    lines = [f"fn start() -> Acc {{ return Acc({the.start}); }}"]
    if the.element:
        lines.append(
            f"fn element(v: T, r: i32) -> Acc {{ return Acc({the.element}); }}"
        )
    return "\n".join([*lines, wgsl_text.load(the.lane)])


def _emit_code(names: Sequence[str], values: Sequence[str]) -> str:
    puts = " ".join(f"put_{n}(o, {v});" for n, v in zip(names, values))
    return f"fn emit(o: i32, part: i32, s: Acc) {{ {puts} }}"


def _store_code(fields: int) -> str:
    puts = " ".join(
        f"put_part{k}(part * p.rows + o, s.{'abc'[k]});" for k in range(fields)
    )
    return f"fn emit(o: i32, part: i32, s: Acc) {{ {puts} }}"


def _load_code(fields: int) -> str:
    gets = ", ".join(f"get_part{k}(i)" for k in range(fields))
    return f"fn load_part(i: i32) -> Acc {{ return Acc({gets}); }}"


def _plan(g: Recorder, rows: _Rows) -> tuple[bool, int, int]:
    """Whether a workgroup takes a row, its size, and the parts of a row."""
    adjacent = rows.stride <= min((s for s in rows.strides if s), default=rows.stride)
    if g.caps.is_cpu:
        # Two cores of eight lanes: more invocations than that only cost memory.
        parts = 1 if rows.rows >= 32 else min(64 // max(rows.rows, 1), rows.count // 64)
        return False, 8, max(1, parts)
    if rows.count <= 32 or (not adjacent and rows.rows >= 4096):
        return False, 64, 1
    if not adjacent:
        return False, 64, max(1, min(8192 // max(rows.rows, 1), rows.count // 32))
    size = 64 if rows.count <= 512 else 256
    parts = 1 if rows.rows >= 128 else min(64, rows.count // (16 * size))
    return True, size, max(1, parts)


def reduce(
    g: Recorder,
    the: Fold,
    x: Tensor,
    dims: Sequence[int],
    outs: Sequence[Output],
    params: Mapping[str, Param] | None = None,
) -> None:
    """Folds `x` over `dims`; each of `outs` has one element per row."""
    rows = rows_of(g, x, dims)
    adjacent = rows.stride <= min((s for s in rows.strides if s), default=rows.stride)
    by_workgroup, size, parts = _plan(g, rows)
    names = [f"y{k}" for k in range(len(outs))]
    targets = dict(zip(names, outs))
    first = _accumulator(the, x, outs[0])
    types = {"T": compute_type(x.dtype), "A": first}
    fields = [first if kind == "A" else kind for kind in the.fields]
    emit = _emit_code(names, the.results)
    scratch: dict[str, Tensor] = {}
    if parts > 1:
        for k, kind in enumerate(fields):
            dtype = DType.FLOAT32 if kind == "f32" else DType.INT32
            scratch[f"part{k}"] = g.temp((parts, rows.rows), dtype)
    code = [fold_code(the), _store_code(len(fields)) if parts > 1 else emit]
    values: dict[str, Param] = {**rows.params, "splits": parts, **(params or {})}
    outputs = scratch or targets
    common: dict[str, Any] = {
        "raw": ("x",),
        "code": "\n".join([*code, rows.base_code, lane_code(the)]),
        "workgroup": size,
    }
    if by_workgroup:
        sizes = (rows.rows, rows.count)
        form = g.choose("reduce", sizes, workgroup_reduction.forms(g.caps), x.dtype)
        common["code"] += workgroup_reduction.across(
            form, [("fold_of", workgroup_reduction.folds(len(fields)))]
        )
        g.dispatch(
            "reduce_workgroup",
            {"x": rows.view},
            outputs,
            values,
            groups=fold(rows.rows * parts, 1),
            consts=types,
            **common,
        )
    else:
        g.dispatch(
            "reduce_serial",
            {"x": rows.view},
            outputs,
            values,
            invocations=rows.rows * parts,
            consts={**types, "SPLIT": parts > 1, "LANES_ADJACENT": adjacent},
            **common,
        )
    if parts > 1:
        merged: dict[str, Param] = {
            "splits": parts,
            "count": rows.count,
            **(params or {}),
        }
        g.dispatch(
            "reduce_merge",
            scratch,
            targets,
            merged,
            invocations=rows.rows,
            consts=types,
            code="\n".join([fold_code(the), emit, _load_code(len(fields))]),
            workgroup=size if g.caps.is_cpu else 64,
        )


def _accumulator(the: Fold, x: Tensor, out: Output) -> str:
    """The type of the first field: floats add up in f32, integers in i32."""
    if the.fields[0] != "A":
        return the.fields[0]
    return compute_type(out.dtype)


def dims_of(x: Tensor, dims: Sequence[int] | int | None) -> list[int]:
    """The dimensions to reduce, in order; none given means all."""
    if isinstance(dims, int):
        dims = [dims]
    if x.rank == 0:
        return []
    return sorted({x.dim(d) for d in dims}) if dims else list(range(x.rank))
