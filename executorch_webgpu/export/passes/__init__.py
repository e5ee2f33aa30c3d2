"""Rewrites of an ir.Graph at export, in the order in which they run.

Each pass is a module with one function `run(graph, constants)` that changes the
graph in place; it reads and adds constant tensors through `constants`.
"""

from __future__ import annotations

import importlib

from ... import ir
from ..constants import Constants

# Folding first, so that what fuses is only what is left; fusing pointwise ops
# last, because every other pattern but `merge_gated` looks for them by name.
PASSES = (
    "cleanup.drop_copies",
    "cleanup.fold_constants",
    "cleanup.share_values",
    "cleanup.fold_batch_norm",
    "cleanup.inline_scalars",
    "patterns.norm_and_softmax",
    "patterns.rms_norm",
    "patterns.packed_weights",
    "patterns.dynamic_quantization",
    "patterns.rotary",
    "patterns.attention",
    "patterns.kv_cache",
    "layout.attention_by_token",
    "layout.reorder_rows",
    "layout.compose_views",
    "fusion.merge_linears",
    "patterns.integer_matmul",
    "layout.sink_views",
    "fusion.fuse_pointwise",
    "fusion.merge_gated",
    "cleanup.remove_dead",
)


def apply(graph: ir.Graph, constants: Constants) -> ir.Graph:
    """All passes; the graph that comes out computes what the one that went in did."""
    for name in PASSES:
        module = importlib.import_module(f"{__name__}.{name}")
        module.run(graph, constants)
    return graph
