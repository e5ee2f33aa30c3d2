"""Ops of our own that do what an ATen op does, under a name that lowering accepts.

ExecuTorch keeps an op that is neither core ATen nor decomposed only if it has one
result, and its verifier refuses the others by their namespace. Where it keeps one, it
traces attention, too, with other strides than torch, on which views may rely. Such
nodes call the twin instead; everything else of this package sees the ATen op's name.
"""

from __future__ import annotations

from typing import Any

import torch

NAMESPACE = "webgpu_twin"

_make_library: Any = torch.library.Library  # torch gives it no types
_library = _make_library(NAMESPACE, "DEF")


def _define(overload: torch._ops.OpOverload) -> torch._ops.OpOverload:
    _, _, signature = str(overload._schema).partition("(")
    base = overload._schema.name.removeprefix("aten::")
    # An overload's name stays the last part of the whole name.
    name = f"{base}.{overload._overloadname}".removesuffix(".default")
    _library.define(f"{name}({signature}")
    _library.impl(name, overload, "CompositeExplicitAutograd")
    packet = getattr(getattr(torch.ops, NAMESPACE), base)
    twin: torch._ops.OpOverload = getattr(packet, overload._overloadname)
    return twin


TWINS = {
    overload: _define(overload)
    for overload in (
        torch.ops.aten._embedding_bag_forward_only.default,
        torch.ops.aten._int_mm.default,
        torch.ops.aten.adaptive_max_pool1d.default,
        torch.ops.aten.adaptive_max_pool2d.default,
        torch.ops.aten.adaptive_max_pool3d.default,
        torch.ops.aten.cummax.default,
        torch.ops.aten.cummin.default,
        torch.ops.aten.fractional_max_pool2d.default,
        torch.ops.aten.fractional_max_pool3d.default,
        torch.ops.aten.frexp.Tensor,
        torch.ops.aten.median.dim,
        torch.ops.aten.mode.default,
        torch.ops.aten.nanmedian.dim,
        torch.ops.aten.scaled_dot_product_attention.default,
    )
}


def is_twin(overload: torch._ops.OpOverload) -> bool:
    return overload.namespace == NAMESPACE
