"""Attention without stored scores: `attention_split.wgsl`, the form for GPUs.

Enters: q[B, H, L, E], k[B, Hkv, S, E], v[B, Hkv, S, Ev] as strided views that can be
read in fours, and WGSL for what a query sees. Leaves: every element of the output
written once. Where there are few rows, as in decoding, the keys are split among
workgroups and a second kernel merges their results; where there are many, each
workgroup takes all keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param, load

_ROWS = 8
_WORKGROUP = 64
_MOST_COLUMNS = 4 * _WORKGROUP  # of v
# So many workgroups keep a GPU busy; a split of fewer keys is not worth merging.
_ENOUGH = 128
_LEAST_KEYS = 256


@dataclass(frozen=True)
class Seen:
    """What decides a score besides q and k: WGSL with its tensors and numbers.

    reach(i): how many keys query i sees; masked(s, b, head, i, j): a score with the
    mask applied. `unseen` is the result of a query that sees no key.
    """

    code: str
    inputs: Mapping[str, Tensor]
    params: Mapping[str, Param]
    raw: tuple[str, ...] = ()
    unseen: str = "0.0"


def fours(g: Recorder, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """A view whose last dimension can be read in fours; offset and strides in fours."""
    strides = (x.offset, *x.strides[:3])
    if x.strides[3] != 1 or any(stride % 4 for stride in strides):
        x = g.contiguous(x)
        strides = (x.offset, *x.strides[:3])
    return x, tuple(stride // 4 for stride in strides)


def can_split(q: Tensor, v: Tensor) -> bool:
    """Whether the head sizes fit: multiples of 4, and not too wide for a workgroup."""
    wide = v.shape[3]
    return q.shape[3] % 4 == 0 and wide % 4 == 0 and 0 < wide <= _MOST_COLUMNS


def _splits(tiles: int, keys: int) -> tuple[int, int]:
    """Among how many workgroups the keys of a tile are split, and the keys of each."""
    splits = max(1, min(-(-_ENOUGH // tiles), keys // _LEAST_KEYS))
    split_keys = -(-keys // splits // _WORKGROUP) * _WORKGROUP
    return -(-keys // split_keys), split_keys


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
    splits, split_keys = _splits(tiles, keys)
    columns = max(_WORKGROUP // _ROWS, 1 << (wide - 1).bit_length())
    q, q_strides = fours(g, q)
    k, k_strides = fours(g, k)
    v, v_strides = fours(g, v)
    sizes: dict[str, Param] = {"rows": rows, "queries": queries, "sharing": sharing}
    sizes |= {"heads": kv_heads, "wide": wide}
    unseen = f"fn unseen() -> f32 {{ return {seen.unseen}; }}"
    whole = f"{unseen}\n{load('finish_rows')}"
    partial: dict[str, Tensor] = {}
    code = whole
    if splits > 1:
        every = (splits, batch * kv_heads * rows)
        partial = {
            "sums": g.temp((*every, wide * 4), DType.FLOAT32),
            "stats": g.temp((*every, 2), DType.FLOAT32),
        }
        code = load("finish_parts")
    g.dispatch(
        "attention_split",
        {"q": q, "k": k, "v": v, **seen.inputs},
        partial or {"y": out},
        {
            **sizes,
            **seen.params,
            **({"all": batch * kv_heads * rows} if splits > 1 else {"y_s": strides}),
            "splits": splits,
            "split_keys": split_keys,
            "blocks": blocks,
            "fours": depth // 4,
            "scale": float(scale),
            "q_s": q_strides,
            "k_s": k_strides,
            "v_s": v_strides,
        },
        workgroups=tiles * splits,
        workgroup=_WORKGROUP,
        consts={
            "ROWS": _ROWS,
            "COLUMNS": columns,
            "MINE": _ROWS * columns // _WORKGROUP,
        },
        vec4={"q", "k", "v", *(["sums"] if splits > 1 else [])},
        raw=["q", "k", "v", *seen.raw],
        code=f"{seen.code}\n{code}",
    )
    if splits > 1:
        g.dispatch(
            "attention_merge",
            partial,
            {"y": out},
            {**sizes, "all": batch * kv_heads * rows, "splits": splits, "y_s": strides},
            invocations=batch * kv_heads * rows * wide,
            vec4={"sums"},
            code=whole,
        )
