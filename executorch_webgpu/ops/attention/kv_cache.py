"""Key and value caches: rows written in place, and attention over them.

A cache is a state of the delegate. Writing takes over its buffer (`g.update`) and
stores only the new rows; attention reads only the rows that are live, up to the
position. Kernels read the position from data, so that no grid depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ...errors import Unsupported
from ...ir.dtypes import DType, Storage
from ...plan import registry
from ...plan.accuracy import MOVED, TOLERANT
from ...plan.positions import Position, position_code
from ...plan.recorder import DataInt, Output, Recorder, Tensor
from ...plan.tensor import buffer_bytes
from ...plan.wgsl_text import Param
from .attention_split import Seen, attend_split, can_split, fours

op = partial(registry.op, accuracy=TOLERANT)

# Query rows that one invocation takes at a time.
_ROWS = 4


def put_rows(
    g: Recorder,
    cache: Tensor,
    value: Tensor,
    dim: int,
    at: Position,
    out: Output,
    per_batch: bool = False,
) -> None:
    """`out` = `cache` with the rows of `value` at a position of dimension `dim`.

    With `per_batch`, the positions are [batch, S] and `dim` is 1.
    """
    g.require(
        value.dtype is cache.dtype,
        f"rows must be {cache.dtype.label}",
        value.dtype.label,
    )
    length, seq = cache.shape[dim], value.shape[dim]
    g.require(seq <= length, f"there may be {length} rows", seq)
    if isinstance(at, int):
        g.require(
            0 <= at <= length - seq, f"position must be at most {length - seq}", at
        )
    in_place = g.update(cache, out)
    is_checked = in_place or isinstance(at, DataInt)
    code, inputs, params = position_code(at, length)
    row = "get_pos(a * p.seq + s)" if per_batch else "raw_position(s)"
    code += f"fn cache_row(a: i32, s: i32) -> i32 {{ return {row}; }}\n"
    params |= {
        "seq": seq,
        "length": length,
        "inner": math.prod(cache.shape[dim + 1 :]),
    }

    def put(rows: Tensor) -> None:
        refuse = "" if is_checked else "report_index(at, p.length);"
        g.dispatch(
            "cache_put",
            {"x": rows, **inputs},
            {"y": out},
            params,
            invocations=value.numel,
            strided={"x"},
            code=f"{code}fn refuse(at: i32) {{ {refuse} }}\n",
        )

    if is_checked:
        _check_positions(g, at, value.shape[0] * seq if per_batch else seq, length)
    if in_place and g.undoes:
        before = g.temp(value.shape, value.dtype)
        g.dispatch(
            "cache_take",
            {"x": out.tensor, **inputs},
            {"y": before},
            params,
            invocations=value.numel,
            code=code,
        )
        g.on_failure(lambda: put(before))
    put(value)


def _check_positions(g: Recorder, at: Position, count: int, length: int) -> None:
    """Refuses positions outside a cache before anything is written to a state: on the
    host or, of a tensor, by a dispatch that reads nothing else, so that it can come
    before all others. Equal checks are made once."""
    if isinstance(at, DataInt):
        g.limit(at, count, length)
        return
    code, inputs, params = position_code(at, length, checked=True)
    if not inputs:
        return

    def check() -> Tensor:
        g.dispatch("check_positions", inputs, {}, params, invocations=count, code=code)
        return inputs["pos"]

    g.once(f"{count} positions, {params}", inputs["pos"], check)


def attend_cached(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    at: Position,
    *,
    causal: bool,
    mask: Tensor | None,
    scale: float | None,
    out: Output,
    seq: int,
) -> None:
    """Attention of q[batch, head, token, column] over the live rows of k and v, which
    have the same dimensions; `out` has its tokens in dimension `seq`, 1 or 2."""
    _require_fit(g, q, k, v, at, causal, mask)
    batch, heads, tokens, size = q.shape
    keys, length = k.shape[1], k.shape[2]
    shape = (batch, tokens, heads, size) if seq == 1 else (batch, heads, tokens, size)
    assert out.shape == shape, (out.shape, shape)
    strides = (
        tokens * heads * size,
        size if seq == 1 else tokens * size,
        heads * size if seq == 1 else size,
    )
    factor = float(scale if scale is not None else size**-0.5)
    if isinstance(at, DataInt):
        g.limit(at, tokens, length)
    live = _live(g, at, causal, mask, (tokens, length))
    forms = ["cached"]
    if can_split(q, v):
        forms.insert(1 if g.caps.is_cpu else 0, "split")
        scores = g.at_bound(batch * heads * tokens * length)
        if buffer_bytes(scores, Storage.F32) > g.caps.max_binding:
            forms = ["split"]
    sizes = (batch * keys, heads // keys * tokens, length, size)
    if g.choose("cached attention", sizes, forms, q.dtype) == "split":
        seen = Seen(
            f"{live.first_code}\n{_SEEN}",
            {**live.masks, **live.inputs},
            {**live.params, **live.mask_params, "seq": tokens, "keys": length},
            raw=("mask",),
            unseen="nan()",
        )
        attend_split(g, q, k, v, factor, seen, out, strides)
    else:
        _attend_stored(g, q, k, v, live, factor, out, strides)


def _require_fit(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    at: Position,
    causal: bool,
    mask: Tensor | None,
) -> None:
    batch, heads, tokens, size = q.shape
    keys, length = k.shape[1], k.shape[2]
    g.require(
        k.shape == v.shape and k.shape[3] == size and k.shape[0] == batch,
        f"k and v must be alike and fit q {list(q.shape)}",
        (list(k.shape), list(v.shape)),
    )
    g.require(heads % keys == 0, f"q heads must be a multiple of {keys}", heads)
    if isinstance(at, int) and mask is None:
        most = length - tokens
        g.require(0 <= at <= most, f"position must be at most {most}", at)
    g.require(size % 4 == 0, "head size must be a multiple of 4", size)
    g.require(
        mask is None or not causal,
        "attn_mask and is_causal must not both be given",
        (mask is not None, causal),
    )


@dataclass(frozen=True)
class _Live:
    """Which keys a token sees, as WGSL with its tensors and numbers.

    live(s): how many; mask_at(s, j): what is added to a score.
    """

    code: str  # live
    first_code: str  # live and mask_at, for the kernel that masks
    inputs: Mapping[str, Tensor]
    params: Mapping[str, Param]
    masks: Mapping[str, Tensor]
    mask_params: Mapping[str, Param]


def _live(
    g: Recorder,
    at: Position,
    causal: bool,
    mask: Tensor | None,
    shape: tuple[int, int],
) -> _Live:
    """For scores of `shape`, [tokens, keys]."""
    length = shape[1]
    # A mask hides what is not live, whatever the position. Without one, and if not
    # causal, a token sees all tokens of its call: up to the later end of positions.
    reach = "position(s)" if causal else "max(position(0), position(p.seq - 1))"
    reach = "p.keys" if mask is not None else f"{reach} + 1"
    live = f"fn live(s: i32) -> i32 {{ return {reach}; }}\n"
    code, inputs, params = position_code(at, length)
    masks, mask_code, mask_params = _mask(g, mask, shape)
    code += live
    return _Live(code, code + mask_code, inputs, params, masks, mask_params)


def _attend_stored(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    live: _Live,
    factor: float,
    out: Output,
    strides: tuple[int, int, int],
) -> None:
    """Two dispatches: one stores the scores, one weighs the values by them. `strides`
    are the output's, of batch, head and token."""
    batch, heads, tokens, size = q.shape
    keys, length = k.shape[1], k.shape[2]
    rows = heads // keys * tokens
    tile = min(_ROWS, rows)
    params: dict[str, Param] = {
        **live.params,
        "rows": rows,
        "seq": tokens,
        "keys": length,
        "heads": keys,
        "sharing": heads // keys,
        "fours": size // 4,
    }
    score = g.temp((batch * keys, rows, length), DType.FLOAT32)
    q, q_strides = fours(g, q)
    k, k_strides = fours(g, k)
    v, v_strides = fours(g, v)
    blocks = batch * keys * -(-rows // tile)
    g.dispatch(
        "cached_scores",
        {"q": q, "k": k, **live.masks, **live.inputs},
        {"y": score},
        {
            **params,
            **live.mask_params,
            "q_s": q_strides,
            "k_s": k_strides,
            "scale": factor,
        },
        invocations=blocks * length,
        workgroup=16 if g.caps.is_cpu else 64,
        consts={"ROWS": tile},
        vec4={"q", "k"},
        raw={"q", "k", "mask"},
        code=live.first_code,
    )
    g.dispatch(
        "cached_values",
        {"x": score, "v": v, **live.inputs},
        {"y": out},
        {**params, "v_s": v_strides, "y_s": strides},
        invocations=blocks * (size // 4),
        workgroup=8 if g.caps.is_cpu else 64,
        consts={"ROWS": tile},
        vec4={"v"},
        raw={"v"},
        code=live.code,
    )


_SEEN = (
    "fn reach(i: i32) -> i32 { return min(p.keys, live(i)); }\n"
    "fn masked(s: f32, b: i32, head: i32, i: i32, j: i32) -> f32"
    " { return s + mask_at(i, j); }"
)


def _mask(
    g: Recorder, mask: Tensor | None, shape: tuple[int, int]
) -> tuple[dict[str, Tensor], str, dict[str, Param]]:
    """`fn mask_at(s, j)`: what is added to a score."""
    if mask is None:
        return {}, "fn mask_at(s: i32, j: i32) -> f32 { return 0.0; }", {}
    g.require(
        mask.shape == shape and mask.dtype.is_float,
        f"attn_mask must be {list(shape)}, of a float type",
        (list(mask.shape), mask.dtype.label),
    )
    at = "mask_s_at(0) + s * mask_s_at(1) + j * mask_s_at(2)"
    code = f"fn mask_at(s: i32, j: i32) -> f32 {{ return get_mask({at}); }}"
    return {"mask": mask}, code, {"mask_s": (mask.offset, *mask.strides)}


# -- the ops ------------------------------------------------------------------------


@op("webgpu.cache_put", data_ints=(3,), accuracy=MOVED)
def cache_put(
    g: Recorder,
    cache: Tensor,
    value: Tensor,
    dim: int,
    at: Tensor | DataInt | int,
    *,
    out: Output,
) -> None:
    shape = list(cache.shape)
    if isinstance(at, Tensor):
        shape[dim] = at.numel
        value = value.expand(shape)
    put_rows(g, cache, value, dim, at, out)


@op("webgpu.attend_cached", data_ints=(3,))
def attend(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    at: Tensor | DataInt | int,
    scale: float | None,
    by_token: bool = False,
    *,
    out: Output,
) -> None:
    """Tokens at positions `at`, or from it on, attend to all up to their own.

    The result is [B, H, S, D], or [B, S, H, D] if `by_token`.
    """
    attend_cached(
        g,
        q,
        k,
        v,
        at,
        causal=True,
        mask=None,
        scale=scale,
        out=out,
        seq=1 if by_token else 2,
    )


@op("webgpu.slice_at", data_ints=(2,), accuracy=MOVED)
def slice_at(g: Recorder, x: Tensor, dim: int, start: DataInt, *, out: Output) -> None:
    """`x` from a position that only the data knows, as long as `out` is."""
    dim = x.dim(dim)
    g.limit(start, out.shape[dim], x.shape[dim])
    code, inputs, params = position_code(start, x.shape[dim])
    g.dispatch(
        "slice_at",
        {"x": x, **inputs},
        {"y": out},
        {
            **params,
            "seq": out.shape[dim],
            "length": x.shape[dim],
            "inner": math.prod(x.shape[dim + 1 :]),
        },
        invocations=out.numel,
        code=code,
    )


@op("llama.update_cache.default", data_ints=(2,), mutates=(1,), accuracy=MOVED)
def update_cache(
    g: Recorder,
    value: Tensor,
    cache: Tensor,
    start_pos: DataInt | int,
    *,
    out: list[Output],
) -> None:
    put_rows(g, cache, value, 1, start_pos, out[1])
    _unused(g, out[0], out[1].tensor)


@op(
    "llama.update_cache_with_indices.default",
    data_ints=(2,),
    mutates=(1,),
    accuracy=MOVED,
)
def update_cache_with_indices(
    g: Recorder,
    value: Tensor,
    cache: Tensor,
    start_pos: DataInt | int,
    indices: Tensor,
    *,
    out: list[Output],
) -> None:
    put_rows(g, cache, value, 1, indices, out[1], per_batch=True)
    _unused(g, out[0], out[1].tensor)


def _unused(g: Recorder, result: Output, cache: Tensor) -> None:
    """The op's first result, which has no meaning: any element will do."""
    g.alias(result, cache.with_view((1,), (1,), 0))


@op("llama.custom_sdpa.default", data_ints=(3,), fusible=False)
def custom_sdpa(
    g: Recorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start_pos: DataInt | int,
    attn_mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    out: Output,
) -> None:
    if dropout:
        raise Unsupported(f"dropout must be 0, got {dropout}")
    attend_cached(
        g,
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        start_pos,
        causal=is_causal,
        mask=attn_mask,
        scale=scale,
        out=out,
        seq=1,
    )


@op("llama.sdpa_with_kv_cache.default", data_ints=(5, 6), mutates=(3, 4))
def sdpa_with_kv_cache(  # noqa: PLR0913  the op's schema has as many
    g: Recorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    start_pos: DataInt | int,
    seq_len: DataInt | int,
    attn_mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    out: list[Output],
) -> None:
    put_rows(g, key_cache, key, 1, start_pos, out[1])
    put_rows(g, value_cache, value, 1, start_pos, out[2])
    custom_sdpa(
        g,
        query,
        out[1].tensor,
        out[2].tensor,
        start_pos,
        attn_mask,
        dropout,
        is_causal,
        scale,
        out=out[0],
    )
