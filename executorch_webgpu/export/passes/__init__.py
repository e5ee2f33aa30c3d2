"""Rewrites of an ir.Graph at export, in the order in which they run.

Each pass is a module with one function `run(graph, data)` that changes the
graph in place. `data` holds the constants' tensors, for passes that compute.
"""

from __future__ import annotations

import importlib

from ... import ir
from ..fx_to_ir import ConstantData

# Folding first, so that what fuses is only what is left; fusing pointwise ops
# last, because every other pattern but `merge_gated` looks for them by name.
PASSES = (
    "drop_copies",
    "fold_constants",
    "share_values",
    "fold_batch_norm",
    "inline_scalars",
    "fuse_written_out",
    "fuse_norms",
    "fuse_quantized",
    "fuse_rounding",
    "fuse_rotary",
    "fuse_plain_attention",
    "fuse_attention",
    "attention_by_token",
    "reorder_rows",
    "compose_views",
    "merge_linears",
    "use_codes",
    "sink_views",
    "fuse_pointwise",
    "merge_gated",
    "remove_dead",
)


def apply(graph: ir.Graph, data: ConstantData) -> ir.Graph:
    """All passes; the graph that comes out computes what the one that went in did."""
    for name in PASSES:
        module = importlib.import_module(f"{__name__}.{name}")
        module.run(graph, data)
    return graph
