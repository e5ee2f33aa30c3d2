"""Attention without stored scores: `attention_split.wgsl`, the form for GPUs.

Enters: q[B, H, L, E], k[B, Hkv, S, E], v[B, Hkv, S, Ev] as strided views that can be
read in fours, and WGSL for what a query sees. Leaves: every element of the output
written once. Where there are few rows (decoding), workgroups share out the keys, and
a second kernel adds up their parts; where there are many, each takes all keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...plan.recorder import Output, Recorder, Tensor, fold
from ...plan.wgsl_text import Param

_ROWS = 8
_WORKGROUP = 64
_MOST_COLUMNS = 4 * _WORKGROUP  # of v
# As many workgroups keep a GPU busy; a part of fewer keys is not worth merging.
_ENOUGH = 128
_LEAST_KEYS = 256


@dataclass(frozen=True)
class Seen:
    """What decides a score besides q and k: WGSL with its tensors and numbers.

    reach(i): how many keys query i sees; masked(s, b, head, i, j): a score behind the
    mask.
    `unseen` is the result of a query that sees nothing.
    """

    code: str
    inputs: Mapping[str, Tensor]
    params: Mapping[str, Param]
    raw: tuple[str, ...] = ()
    unseen: str = "0.0"


def fours(g: Recorder, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """A view whose last dimension can be read in fours; offset and strides in fours."""
    steps = (x.offset, *x.strides[:3])
    if x.strides[3] != 1 or any(step % 4 for step in steps):
        x = g.contiguous(x)
        steps = (x.offset, *x.strides[:3])
    return x, tuple(step // 4 for step in steps)


def can_split(q: Tensor, v: Tensor) -> bool:
    """Whether this form fits the head sizes."""
    wide = v.shape[3]
    return q.shape[3] % 4 == 0 and wide % 4 == 0 and 0 < wide <= _MOST_COLUMNS


def attend_split(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    seen: Seen,
    out: Output,
    strides: tuple[int, int, int],
) -> None:
    """`strides` are the output's, of batch, head and token."""
    batch, heads, queries, depth = q.shape
    kv_heads, keys, wide = k.shape[1], k.shape[2], v.shape[3] // 4
    sharing = heads // kv_heads
    rows = sharing * queries
    blocks = -(-rows // _ROWS)
    tiles = batch * kv_heads * blocks
    parts = max(1, min(-(-_ENOUGH // tiles), keys // _LEAST_KEYS))
    part_keys = -(-keys // parts // _WORKGROUP) * _WORKGROUP
    parts = -(-keys // part_keys)
    columns = max(_WORKGROUP // _ROWS, 1 << (wide - 1).bit_length())
    q, q_strides = fours(g, q)
    k, k_strides = fours(g, k)
    v, v_strides = fours(g, v)
    place: dict[str, Param] = {"rows": rows, "queries": queries, "sharing": sharing}
    place |= {"heads": kv_heads, "wide": wide}
    unseen = f"fn unseen() -> f32 {{ return {seen.unseen}; }}"
    whole = f"{_PLACE}\n{unseen}\n{_WHOLE}"
    parted: dict[str, Tensor] = {}
    code = whole
    if parts > 1:
        every = (parts, batch * kv_heads * rows)
        parted = {
            "sums": g.temp((*every, wide * 4), DType.FLOAT32),
            "stats": g.temp((*every, 2), DType.FLOAT32),
        }
        code = _PART
    g.dispatch(
        "attention_split",
        {"q": q, "k": k, "v": v, **seen.inputs},
        parted or {"y": out},
        {
            **place,
            **seen.params,
            **({"all": batch * kv_heads * rows} if parts > 1 else {"y_s": strides}),
            "tiles": tiles * parts,
            "parts": parts,
            "part_keys": part_keys,
            "blocks": blocks,
            "fours": depth // 4,
            "scale": float(scale),
            "q_s": q_strides,
            "k_s": k_strides,
            "v_s": v_strides,
        },
        groups=fold(tiles * parts, 1),
        workgroup=_WORKGROUP,
        consts={
            "ROWS": _ROWS,
            "COLUMNS": columns,
            "MINE": _ROWS * columns // _WORKGROUP,
        },
        vec4={"q", "k", "v", *(["sums"] if parts > 1 else [])},
        raw=["q", "k", "v", *seen.raw],
        code=f"{seen.code}\n{code}",
    )
    if parts > 1:
        g.dispatch(
            "attention_merge",
            parted,
            {"y": out},
            {**place, "all": batch * kv_heads * rows, "parts": parts, "y_s": strides},
            invocations=batch * kv_heads * rows * wide,
            vec4={"sums"},
            code=whole,
        )


_PLACE = """
fn place(head: i32, row: i32) -> i32 {
  let mine = (head % p.heads) * p.sharing + row / p.queries;
  return head / p.heads * y_s_at(0) + mine * y_s_at(1) + row % p.queries * y_s_at(2);
}"""
_SIGNATURE = (
    "fn finish(part: i32, head: i32, row: i32, column: i32, sums: vec4<f32>,"
    " most: f32, total: f32)"
)
_WHOLE = f"""
{_SIGNATURE} {{
  let at = place(head, row) + column * 4;
  for (var i = 0; i < 4; i++) {{
    put_y(at + i, select(sums[i] / total, unseen(), total == 0.0));
  }}
}}"""
_PART = f"""
{_SIGNATURE} {{
  let at = part * p.all + head * p.rows + row;
  put_sums4(at * p.wide + column, sums);
  if (column == 0) {{
    put_stats(at * 2, most);
    put_stats(at * 2 + 1, total);
  }}
}}"""
