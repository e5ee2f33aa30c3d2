"""Reductions over the invocations of a workgroup: `fn <name>(id, v)`.

Enters: how two values combine. Leaves: WGSL for a function that all invocations of a
workgroup call, once in a kernel, each with its own value, and that returns the
reduction of all values to each of them. Two forms, which combine in different orders:

- `workgroup`: a tree in workgroup memory, with a barrier at each level.
- `subgroups`, where the adapter has them: a subgroup reduces its values without memory
  and stores its result; after one barrier every subgroup reduces all results.

Of subgroups nothing is assumed, neither their size nor which invocations they hold:
WebGPU does not tell, and not every compiler knows how they are numbered. A lane counts
the lanes of its subgroup, and those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...plan.caps import Caps


@dataclass(frozen=True)
class Join:
    """WGSL: the type of values, how a and b combine, the identity element, and the
    reduction of v over a subgroup, with functions that this needs."""

    kind: str
    join: str
    identity: str
    subgroup: str
    functions: str = ""


_HAS_NAN = "subgroupAny(is_nan(v))"

SUM = Join("f32", "a + b", "0.0", "subgroupAdd(v)")
MAX = Join("f32", "max(a, b)", "-inf()", "subgroupMax(v)")
# Drivers differ in what subgroupMax and subgroupMin make of NaN.
MAX_NAN = Join(
    "f32", "max_nan(a, b)", "-inf()", f"select(subgroupMax(v), nan(), {_HAS_NAN})"
)
MIN_NAN = Join(
    "f32", "min_nan(a, b)", "inf()", f"select(subgroupMin(v), nan(), {_HAS_NAN})"
)


def accumulators(fields: int) -> Join:
    """The merge of accumulators, values of type Acc with so many fields, in order.

    Each iteration merges with the lane twice as far away as the one before, so that the
    first lane gets the whole. No subgroup has more than 128 lanes.
    """
    names = "abc"[:fields]
    down = ", ".join(f"subgroupShuffleDown(whole.{n}, offset)" for n in names)
    first = ", ".join(f"subgroupBroadcastFirst(whole.{n})" for n in names)
    functions = f"""
fn merge_lanes(v: Acc) -> Acc {{
  let width = subgroupAdd(1u);
  let number = subgroupExclusiveAdd(1u);
  var whole = v;
  for (var offset = 1u; offset < min(u32(WG), 128u); offset *= 2u) {{
    let other = Acc({down});
    if (number + offset < width) {{ whole = merge(whole, other); }}
  }}
  return Acc({first});
}}"""
    return Join("Acc", "merge(a, b)", "start()", "merge_lanes(v)", functions)


def forms(caps: Caps) -> list[str]:
    """The forms that an adapter has, the most likely first.

    A CPU adapter gets the one that compiles faster: other kernels are meant for it.
    """
    has_subgroups = caps.subgroups and not caps.is_cpu
    return ["subgroups", "workgroup"] if has_subgroups else ["workgroup"]


def across(form: str, joins: Sequence[tuple[str, Join]]) -> str:
    """WGSL for reductions over a workgroup, by name, in one of the `forms`."""
    code = _SUBGROUPS if form == "subgroups" else _WORKGROUP
    texts = []
    for name, the in joins:
        texts.append(the.functions if form == "subgroups" else "")
        texts.append(code.format(name=name, **_expressions(the)))
    return "\n".join(texts)


def alone(names: Sequence[str]) -> str:
    """The same functions where each invocation has reduced all values itself."""
    return "\n".join(f"fn {n}(id: i32, v: f32) -> f32 {{ return v; }}" for n in names)


def _expressions(the: Join) -> dict[str, str]:
    return {
        "kind": the.kind,
        "join": the.join,
        "identity": the.identity,
        "subgroup": the.subgroup,
    }


_WORKGROUP = """
var<workgroup> {name}_of: array<{kind}, WG>;
fn {name}_join(a: {kind}, b: {kind}) -> {kind} {{ return {join}; }}
fn {name}(id: i32, v: {kind}) -> {kind} {{
  {name}_of[id] = v;
  for (var half = WG / 2; half > 0; half /= 2) {{
    workgroupBarrier();
    if (id < half) {{
      {name}_of[id] = {name}_join({name}_of[id], {name}_of[id + half]);
    }}
  }}
  workgroupBarrier();
  return {name}_of[0];
}}"""

_SUBGROUPS = """
var<workgroup> {name}_of: array<{kind}, WG>;
fn {name}_join(a: {kind}, b: {kind}) -> {kind} {{ return {join}; }}
fn {name}_lanes(v: {kind}) -> {kind} {{ return {subgroup}; }}
fn {name}(id: i32, v: {kind}) -> {kind} {{
  let width = i32(subgroupAdd(1u));
  let number = i32(subgroupExclusiveAdd(1u));
  let own = {name}_lanes(v);
  if (number == 0) {{ {name}_of[id] = own; }} else {{ {name}_of[id] = {identity}; }}
  workgroupBarrier();
  // A lane takes contiguous entries. Results are as far apart as subgroups are large:
  // it gets few, and the subgroup combines them as a tree, which keeps sums accurate.
  let run = (WG + width - 1) / width;
  let end = min(WG, (number + 1) * run);
  var all = {identity};
  for (var i = number * run; i < end; i++) {{ all = {name}_join(all, {name}_of[i]); }}
  return {name}_lanes(all);
}}"""
