"""Rewrites of an ir.Graph at export, in the order in which they run.

Each pass is a module with one function `run(graph, constants)` that changes the
graph in place; it reads and adds constant tensors through `constants`.
"""

from __future__ import annotations

from typing import Protocol

from ... import ir
from ..constants import Constants
from ..debug_handles import DebugHandles
from .cleanup import (
    drop_copies,
    fold_batch_norm,
    fold_constants,
    inline_scalars,
    remove_dead,
    share_values,
)
from .fusion import fuse_pointwise, merge_gated, merge_linears
from .layout import attention_by_token, compose_views, reorder_rows, sink_views
from .patterns import (
    attention,
    dynamic_quantization,
    integer_matmul,
    kv_cache,
    norm_and_softmax,
    packed_weights,
    rms_norm,
    rotary,
)


class Pass(Protocol):
    """What a module of a pass has."""

    def run(self, graph: ir.Graph, constants: Constants) -> None: ...


# Constant folding first, so that only what is left is fused; `fuse_pointwise` late,
# because all patterns but `merge_gated` look for elementwise ops by name.
PASSES: tuple[Pass, ...] = (
    drop_copies,
    fold_constants,
    share_values,
    fold_batch_norm,
    inline_scalars,
    norm_and_softmax,
    rms_norm,
    packed_weights,
    dynamic_quantization,
    rotary,
    attention,
    kv_cache,
    attention_by_token,
    reorder_rows,
    compose_views,
    merge_linears,
    integer_matmul,
    sink_views,
    fuse_pointwise,
    merge_gated,
    remove_dead,
)


def apply(graph: ir.Graph, constants: Constants, handles: DebugHandles) -> ir.Graph:
    """All passes; the graph that comes out computes what the one that went in did."""
    for each in PASSES:
        each.run(graph, constants)
        handles.follow(graph)
    return graph
