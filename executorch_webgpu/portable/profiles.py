"""Which devices plans are made for at export: what they offer, not who they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .. import ir
from ..ir.dtypes import DType
from ..plan.caps import AOT_CAPS, Caps


def profiles_for(graph: ir.Graph, f16_accumulate: bool) -> Iterator[Caps]:
    """The kinds of devices that need plans of their own, the most capable first: with
    subgroups, with f16, and what every browser offers. Before them what computes on the
    host's processor, which likes other kernels.

    f16 makes no difference to a graph that has no halves.
    """
    has_halves = any(value.dtype is DType.FLOAT16 for value in graph.values)
    base = replace(AOT_CAPS, f16=False, name="baseline")
    yield replace(base, is_cpu=True, packs=False, name="cpu")
    if has_halves:
        halves = replace(AOT_CAPS, f16_accumulate=f16_accumulate)
        yield replace(halves, subgroups=True, name="f16 and subgroups")
        yield replace(halves, name="f16")
    yield replace(base, subgroups=True, name="subgroups")
    yield base
