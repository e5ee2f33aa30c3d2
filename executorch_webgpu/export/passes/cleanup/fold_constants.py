"""Constant folding: computes at export what depends on constants alone.

A result is stored if it is small, or not larger than the constants it is made from, so
that the file does not grow; and up to some MiB if those are tiny (a mask, a table of
angles), because it would be computed anew in every call. A weight that is unpacked
stays packed. A view shares the constant's bytes, and a repeated number is computed
where it is read: the values of both are known here, but not stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from .... import ir
from ....ir.dtypes import SUPPORTED
from ...constants import Constants, wide_element
from ...torch_dtypes import dtype_of
from ..evaluate import function_of, is_static, is_view, plain

# Bytes of a result that is worth storing whatever it was made from, and whoever
# reads it; and of one that is worth it if it is read and made of that little.
_SMALL = 16384
_LARGE = 4 << 20
_LITTLE = 1024


@dataclass(frozen=True)
class _Known:
    """A value that is computed, but not stored so far."""

    tensor: torch.Tensor
    sources: frozenset[int]  # the constants it was made from


def run(graph: ir.Graph, constants: Constants) -> None:
    known: dict[int, _Known] = {}
    kept = []
    for call in graph.calls:
        if not _fold(graph, constants, known, call):
            kept.append(call)
    graph.calls = kept
    _store_what_is_read(graph, constants, known)


def _fold(
    graph: ir.Graph,
    constants: Constants,
    known: dict[int, _Known],
    call: ir.Call,
) -> bool:
    """Stores the results of a call of constants alone, or leaves them in `known`;
    returns whether the call is no longer needed."""
    outputs = [graph.values[index] for index in call.outputs]
    sources = _sources(graph, known, call)
    if sources is None:
        return False
    if any(isinstance(dim, str) for value in outputs for dim in value.shape):
        return False
    made = _bytes(outputs)
    given = _bytes([graph.values[index] for index in sources])
    small = made <= max(given, _SMALL)
    function = function_of(call.op)
    if not (small or (made <= _LARGE and given <= _LITTLE)) or call.post:
        return False
    if function is None or not is_static(call.args):
        return False

    def known_or_plain(arg: ir.Arg) -> Any:
        if not isinstance(arg, ir.Ref):
            return plain(arg)
        return known[arg.id].tensor if arg.id in known else constants.of(arg)

    results = function(ir.map_arg(call.args, known_or_plain))
    for result, value in zip(results, outputs):
        if dtype_of(result) is not value.dtype or value.dtype not in SUPPORTED:
            return False
    if not small or is_view(call) or not all(map(_fits, results)):
        for result, index in zip(results, call.outputs):
            known[index] = _Known(result.contiguous(), sources)
        return False
    for result, index in zip(results, call.outputs):
        constants.fill(index, result)
    return True


def _sources(
    graph: ir.Graph, known: dict[int, _Known], call: ir.Call
) -> frozenset[int] | None:
    """The constants that all of a call's inputs were made from; None if one was not."""
    found: set[int] = set()
    for index in ir.call_inputs(call):
        if graph.values[index].is_constant:
            found.add(index)
        elif index in known:
            found |= known[index].sources
        else:
            return None
    return frozenset(found)


def _bytes(values: list[ir.Value]) -> int:
    return sum(math.prod(value.bound) * value.dtype.size for value in values)


def _store_what_is_read(
    graph: ir.Graph, constants: Constants, known: dict[int, _Known]
) -> None:
    """Stores the known values that the remaining calls read."""
    needed = {*graph.outputs, *graph.mutations.values()}
    kept = []
    for call in reversed(graph.calls):
        (result, *_) = call.outputs
        if result in known and not needed.intersection(call.outputs):
            continue
        stored = known[result].tensor if result in known else None
        if stored is not None and not is_view(call) and _worth_storing(stored):
            constants.fill(result, stored)
            continue
        kept.append(call)
        needed.update(ir.call_inputs(call))
    graph.calls = kept[::-1]


def _worth_storing(tensor: torch.Tensor) -> bool:
    varies = bool((tensor != tensor.flatten()[:1]).any())
    return varies and _fits(tensor)


def _fits(tensor: torch.Tensor) -> bool:
    """Whether the GPU's integers hold it; what is made of it may be smaller."""
    return wide_element(tensor) is None
