"""Row reductions: how the elements of a row become one value.

Enters: a reduction, which is a few lines of WGSL (the identity element, the accumulator
of one element, how two accumulators merge, the results), a view and the dimensions to
reduce. Leaves: one element per row in each output. `reduce` chooses how: one invocation
per row, several whose accumulators are merged afterwards, or a workgroup per row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.dtypes import DType
from ...plan import wgsl_text
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import collapse
from ...plan.traced_int import rung
from ...plan.wgsl_text import Param, compute_type
from . import workgroup_reduction


@dataclass(frozen=True)
class Reduction:
    """WGSL expressions over v and r (an element and its index), s and t (accumulators).

    `start` is the identity element, `element` the accumulator of one element, `merge`
    that of two. `results` are the values stored, over s and p.count, one for each
    output. T is the type of elements, A that of the accumulator's first field.
    `partial` is the file with the function that reduces an invocation's elements.
    """

    start: str
    element: str
    merge: str
    results: Sequence[str]
    fields: Sequence[str] = ("A",)
    partial: str = "lane_fold"
    functions: str = ""


def moments(results: Sequence[str]) -> Reduction:
    """Mean (s.a), sum of squared deviations (s.b) and count (s.c) of each row."""
    fields = ("f32", "f32", "f32")
    identity, merge = "0.0, 0.0, 0.0", "merge_moments(s, t)"
    return Reduction(identity, "", merge, results, fields, "lane_moments")


def exponentials(results: Sequence[str]) -> Reduction:
    """The maximum (s.a) and the sum of exp(x - maximum) (s.b) of each row."""
    identity, merge = "-inf(), 0.0", "merge_exponentials(s, t)"
    return Reduction(identity, "", merge, results, ("f32", "f32"), "lane_softmax")


# -- how a reduction runs ------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Rows of `count` elements, `stride` apart, of a strided view.

    `shape` and `strides` are those of the dimensions that are not reduced.
    """

    view: Tensor
    rows: int
    count: int
    stride: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def adjacent(self) -> bool:
        """Whether the elements of a row are next to each other: its stride is least."""
        others = [stride for stride in self.strides if stride]
        return self.stride <= min(others, default=self.stride)

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
    """The rows that `dims` span; copied if no single stride walks along each."""
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


def reduce_code(the: Reduction) -> str:
    """WGSL: Acc, and `merge` of two accumulators."""
    whole = the.merge if "(s, t)" in the.merge else f"Acc({the.merge})"
    lines = [_struct(the.fields), the.functions]
    lines.append(f"fn merge(s: Acc, t: Acc) -> Acc {{ return {whole}; }}")
    return "\n".join(lines)


def partial_code(the: Reduction) -> str:
    """WGSL: `partial`, the reduction of an invocation's elements, and its helpers."""
    lines = [f"fn start() -> Acc {{ return Acc({the.start}); }}"]
    if the.element:
        lines.append(
            f"fn element(v: T, r: i32) -> Acc {{ return Acc({the.element}); }}"
        )
    return "\n".join([*lines, wgsl_text.load(the.partial)])


def _emit_code(names: Sequence[str], values: Sequence[str]) -> str:
    puts = " ".join(f"put_{n}(o, {v});" for n, v in zip(names, values))
    return f"fn emit(o: i32, split: i32, s: Acc) {{ {puts} }}"


def _store_code(fields: int) -> str:
    puts = " ".join(
        f"put_split{k}(split * p.rows + o, s.{'abc'[k]});" for k in range(fields)
    )
    return f"fn emit(o: i32, split: i32, s: Acc) {{ {puts} }}"


def _load_code(fields: int) -> str:
    gets = ", ".join(f"get_split{k}(i)" for k in range(fields))
    return f"fn load_split(i: i32) -> Acc {{ return Acc({gets}); }}"


@dataclass(frozen=True)
class _Launch:
    """How rows are reduced: by whole workgroups or by single invocations, in workgroups
    of `size`, each row in so many splits."""

    by_workgroup: bool
    size: int
    splits: int


def _plan(g: Recorder, of: _Rows) -> _Launch:
    rows, count = max(rung(of.rows), 1), rung(of.count)
    if g.caps.is_cpu:
        # Enough for a few cores with vectors of 8: more splits only cost memory.
        splits = 1 if rows >= 32 else min(64 // rows, count // 64)
        return _Launch(False, 8, max(1, splits))
    if count <= 32 or (not of.adjacent and rows >= 4096):
        return _Launch(False, 64, 1)
    if not of.adjacent:
        return _Launch(False, 64, max(1, min(8192 // rows, count // 32)))
    size = 64 if count <= 512 else 256
    splits = 1 if rows >= 128 else min(64, count // (16 * size))
    return _Launch(True, size, max(1, splits))


def reduce(
    g: Recorder,
    the: Reduction,
    x: Tensor,
    dims: Sequence[int],
    outs: Sequence[Output],
    params: Mapping[str, Param] | None = None,
) -> None:
    """Reduces `x` over `dims`; each of `outs` has one element per row."""
    rows = rows_of(g, x, dims)
    launch = _plan(g, rows)
    names = [f"y{k}" for k in range(len(outs))]
    targets = dict(zip(names, outs))
    emit = _emit_code(names, the.results)
    first = _accumulator(the, x, outs[0])
    types = {"T": compute_type(x.dtype), "A": first}
    given = dict(params or {})
    if launch.splits == 1:
        _reduce_rows(g, the, rows, launch, types, given, emit, targets)
        return
    fields = [first if kind == "A" else kind for kind in the.fields]
    scratch = {
        f"split{k}": g.temp(
            (launch.splits, rows.rows), DType.FLOAT32 if kind == "f32" else DType.INT32
        )
        for k, kind in enumerate(fields)
    }
    store = _store_code(len(fields))
    _reduce_rows(g, the, rows, launch, types, given, store, scratch)
    g.dispatch(
        "reduce_merge",
        scratch,
        targets,
        {"splits": launch.splits, "count": rows.count, **given},
        invocations=rows.rows,
        consts=types,
        code="\n".join([reduce_code(the), emit, _load_code(len(fields))]),
        workgroup=launch.size if g.caps.is_cpu else 64,
    )


def _reduce_rows(
    g: Recorder,
    the: Reduction,
    rows: _Rows,
    launch: _Launch,
    types: Mapping[str, str],
    params: Mapping[str, Param],
    emit: str,
    outputs: Mapping[str, Output | Tensor],
) -> None:
    """The reduction of every row, or of every split of it, which `emit` stores."""
    code = [reduce_code(the), emit, rows.base_code, partial_code(the)]
    count = rows.rows * launch.splits
    grid: dict[str, Any] = {
        "invocations": count,
        "consts": {
            **types,
            "SPLIT": launch.splits > 1,
            "ADJACENT": rows.adjacent,
        },
    }
    if launch.by_workgroup:
        sizes, forms = (rows.rows, rows.count), workgroup_reduction.forms(g.caps)
        form = g.choose("reduce", sizes, forms, rows.view.dtype)
        join = workgroup_reduction.accumulators(len(the.fields))
        code.append(workgroup_reduction.across(form, [("reduced", join)]))
        grid = {"workgroups": count, "consts": types}
    g.dispatch(
        "reduce_workgroup" if launch.by_workgroup else "reduce_serial",
        {"x": rows.view},
        outputs,
        {**rows.params, "splits": launch.splits, **params},
        **grid,
        raw=("x",),
        code="\n".join(code),
        workgroup=launch.size,
    )


def _accumulator(the: Reduction, x: Tensor, out: Output) -> str:
    """The type of the accumulator's first field: f32 for floats, i32 for integers."""
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
