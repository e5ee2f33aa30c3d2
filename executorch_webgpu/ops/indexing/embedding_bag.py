"""Embedding bags: rows of a table, reduced over the indices of each bag."""

from __future__ import annotations

from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op


@op(
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    fusible=True,
)
def embedding_bag(
    g: Recorder,
    table: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    scales: Tensor | None,
    include_last_offset: bool,
    padding: int,
    *,
    out: list[Output],
) -> None:
    bags = out[0]
    g.require(table.dtype.is_float, "the table must be of floats", table.dtype.label)
    for tensor in out[1:]:
        g.require(not tensor.needed, "only the bags may be used", "another result")
    inputs = {"table": table, "index": indices, "offsets": offsets}
    weight = "1.0"
    if scales is not None:
        inputs["scale"] = scales
        weight = "get_scale(j)"
    g.dispatch(
        "embedding_bag",
        inputs,
        {"y": bags},
        {
            "bags": bags.shape[0],
            "offsets_given": offsets.shape[0],
            "indices": indices.shape[0],
            "rows": table.shape[0],
            "columns": table.shape[1],
            # No index is this small, so that without padding all count.
            "padding": padding if padding >= 0 else -(2**31),
        },
        invocations=bags.numel,
        consts={"MODE": mode},
        code=f"fn scale_of(j: i32) -> f32 {{ return {weight}; }}",
    )
