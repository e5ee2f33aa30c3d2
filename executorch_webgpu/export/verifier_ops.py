"""Twins: ops of ours that do what an ATen op does, under a name lowering accepts.

ExecuTorch keeps an op that is neither core ATen nor decomposed only if it has one
result, and its verifier refuses the others by their namespace. It also traces attention
that it keeps with other strides than torch, on which views may rely. Such nodes call
the twin instead; everything else in this package sees the ATen op's name.
"""

from __future__ import annotations

from typing import Any

import torch

from ..plan.registry import all_ops

NAMESPACE = "webgpu_twin"

_make_library: Any = torch.library.Library  # torch gives it no types
_library = _make_library(NAMESPACE, "DEF")


def _define(overload: torch._ops.OpOverload) -> torch._ops.OpOverload:
    _, _, signature = str(overload._schema).partition("(")
    base = overload._schema.name.removeprefix("aten::")
    # The overload's name comes last, as in ATen.
    name = f"{base}.{overload._overloadname}".removesuffix(".default")
    _library.define(f"{name}({signature}")
    _library.impl(name, overload, "CompositeExplicitAutograd")
    packet = getattr(getattr(torch.ops, NAMESPACE), base)
    twin: torch._ops.OpOverload = getattr(packet, overload._overloadname)
    return twin


def _overload(name: str) -> torch._ops.OpOverload:
    _, base, overload = name.split(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, base), overload)
    return found


TWINS = {
    overload: _define(overload)
    for overload in map(_overload, (op.name for op in all_ops().values() if op.twin))
}


def is_twin(overload: torch._ops.OpOverload) -> bool:
    return overload.namespace == NAMESPACE
