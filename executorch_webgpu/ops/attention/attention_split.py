"""Attention without stored scores: `attention_flash.wgsl`, the form for GPUs.

Enters: q[B, H, L, E], k[B, Hkv, S, E], v[B, Hkv, S, Ev] as strided views that can be
read in fours, and WGSL for what a query sees. Leaves: every element of the output
written once. The queries of all heads that share keys are rows of one product, so
that each workgroup loads keys once for several of them. Where there are few rows, as in
decoding, the keys are split among workgroups and a second kernel merges their results;
where there are many, each workgroup takes all keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...plan.caps import Caps
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.traced_int import rung
from ...plan.wgsl_text import Param, load
from ..reduce import workgroup_reduction

_WORKGROUP = 64  # and the keys of an iteration
_MOST_COLUMNS = 4 * _WORKGROUP  # of v
# Rows of a tile: with more, k and v are loaded less often, by fewer workgroups.
TILE_ROWS = (16, 8, 4)
_FEWEST_ROWS = 4
# Up to so many rows share one tile, so that keys are loaded once for all.
_FEW = 8
# Waves for each SIMD, and so workgroups, that keep a GPU busy.
_WAVES = 2
# What a CPU adapter is taken for: small tiles, which it compiles in less time.
_CPU_SIMDS = 192
_MOST_SPLITS = 128
# Of `attention_merge.wgsl`: splits that are loaded at a time.
_AHEAD = 8


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


@dataclass(frozen=True)
class Form:
    """The rows of a tile, the splits of the keys, whether tiles alone keep a GPU busy,
    and the kernel's constants."""

    rows: int
    splits: int
    is_busy: bool
    consts: Mapping[str, int]


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


def form_for(
    simds: int, heads: int, rows: int, keys: int, fours: int, wide: int
) -> Form:
    """For `rows` of each of `heads` key heads, `fours` fours of q and `wide` of v.

    Where rows are many, their tiles are the largest that keep a GPU busy. If even the
    smallest do not, keys are split.
    """
    enough = _WAVES * simds
    heads, rows, keys = rung(heads), rung(rows), rung(keys)
    few = [n for n in TILE_ROWS if rows <= n <= _FEW]
    busy = [n for n in TILE_ROWS if heads * -(-rows // n) >= enough]
    tile = few[-1] if few else busy[0] if busy else TILE_ROWS[-1]
    tiles = heads * -(-rows // tile)
    splits = max(1, min(enough // tiles, keys // _WORKGROUP, _MOST_SPLITS))
    # The slice of k in workgroup memory: as few fours as possible beyond the last.
    deep = min((4, 5), key=lambda n: -(-fours // n) * n)
    consts = {"ROWS": tile, "FOURS": fours, "SLICE": deep, "WIDE": wide}
    consts["AHEAD"] = min(4, -(-_WORKGROUP // (_WORKGROUP // wide)))
    return Form(tile, splits, tiles >= enough, consts)


def running_forms(caps: Caps, form: Form) -> list[str]:
    """How invocations combine maxima and totals of rows (`running_*.wgsl`), the most
    likely first.

    Across a subgroup they wait for no memory, but have more instructions, and the more
    so the more rows there are. Other waves can hide the one, and not the other.
    """
    forms = workgroup_reduction.forms(caps)
    return forms[::-1] if form.is_busy and form.rows > _FEWEST_ROWS else forms


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
    every = batch * kv_heads * rows
    simds = _CPU_SIMDS if g.caps.is_cpu else g.caps.simds
    form = form_for(simds, batch * kv_heads, rows, keys, depth // 4, wide)
    split_keys = -(-keys // form.splits // _WORKGROUP) * _WORKGROUP
    splits = -(-keys // split_keys) if form.splits > 1 else 1
    blocks = -(-rows // form.rows)
    q, q_strides = fours(g, q)
    k, k_strides = fours(g, k)
    v, v_strides = fours(g, v)
    sizes: dict[str, Param] = {"rows": rows, "queries": queries, "sharing": sharing}
    sizes["heads"] = kv_heads
    placed: dict[str, Param] = {"y_s": tuple(stride // 4 for stride in strides)}
    finish = f"fn unseen() -> f32 {{ return {seen.unseen}; }}\n{load('finish_rows')}"
    shape = (batch * kv_heads, rows, keys, depth)
    running = running_forms(g.caps, form)
    combine = load(f"running_{g.choose('attention rows', shape, running, q.dtype)}")
    partial: dict[str, Tensor] = {}
    if splits > 1:
        partial = {
            "sums": g.temp((splits, every, wide * 4), DType.FLOAT32),
            "stats": g.temp((splits, every, 2), DType.FLOAT32),
        }
    g.dispatch(
        "attention_flash",
        {"q": q, "k": k, "v": v, **seen.inputs},
        partial or {"y": out},
        {
            **sizes,
            **seen.params,
            "slices": -(-depth // 4 // form.consts["SLICE"]),
            **({"all": every} if partial else placed),
            "wide": wide,
            "splits": splits,
            "split_keys": split_keys,
            "blocks": blocks,
            "scale": float(scale),
            "q_s": q_strides,
            "k_s": k_strides,
            "v_s": v_strides,
        },
        workgroups=batch * kv_heads * blocks * splits,
        workgroup=_WORKGROUP,
        consts=form.consts,
        vec4={"q", "k", "v", "sums" if partial else "y"},
        raw=["q", "k", "v", *seen.raw],
        code="\n".join(
            [seen.code, combine, load("finish_parts") if partial else finish]
        ),
    )
    if partial:
        g.dispatch(
            "attention_merge",
            partial,
            {"y": out},
            {**sizes, **placed, "wide": wide, "all": every, "splits": splits},
            invocations=every * wide,
            consts={"AHEAD": _AHEAD},
            vec4={"sums", "y"},
            code=finish,
        )
