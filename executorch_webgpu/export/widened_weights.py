"""Integer weights that take more memory on the GPU than in the model.

A buffer has elements of 32 bits, or of 16 if they are floats: a weight of 8 bits or
fewer keeps its size only if a kernel takes it packed. Where none does, results are
right but the saving is lost, so a warning names the weight.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from .. import ir
from ..ir.dtypes import DType, Storage
from ..plan.caps import AOT_CAPS
from ..plan.plan import Plan
from ..plan.planner import Planner

_log = logging.getLogger("executorch_webgpu")

_INTEGERS = (DType.INT8, DType.UINT8)
# Elements from which a weight is worth a warning.
_LEAST = 1 << 16
# Rows and groups of packed weights are filled up to whole words.
_PADDING = 1.5


@dataclass(frozen=True)
class IntegerWeight:
    """A constant of 8-bit integers, or of smaller ones in bytes."""

    name: str
    dtype: DType
    size: int  # bytes
    values: frozenset[int]  # it, and large results of it and of constants alone
    readers: tuple[str, ...]  # the ops that combine one of these with anything else


@dataclass(frozen=True)
class Widened:
    """A weight that is larger on the GPU than in the model."""

    weight: IntegerWeight
    storage: Storage
    size: int  # bytes on the GPU

    def __str__(self) -> str:
        given, held = self.weight.size / 1e6, self.size / 1e6
        text = (
            f"{self.weight.name}: {self.weight.dtype.label} weight is held as"
            f" {self.storage.numpy.name} on the GPU,"
            f" {held:.1f} MB instead of {given:.1f} MB"
        )
        readers = " and ".join(self.weight.readers)
        return f"{text}: {readers} cannot read it packed" if readers else text


def integer_weights(graph: ir.Graph) -> list[IntegerWeight]:
    """The large integer weights of a graph that no pass has changed."""
    readers: dict[int, set[str]] = {}  # by weight
    weights: dict[int, set[int]] = {}  # by value that only depends on constants
    for index, value in enumerate(graph.values):
        if value.is_constant:
            weights[index] = set()
            if _is_large(value) and value.dtype in _INTEGERS:
                weights[index].add(index)
                readers[index] = set()
    for call in graph.calls:
        inputs = set(ir.call_inputs(call))
        used = {weight for given in inputs for weight in weights.get(given, ())}
        if not inputs <= weights.keys():
            for weight in used:
                readers[weight].add(call.op)
            continue
        for output in call.outputs:
            weights[output] = used if _is_large(graph.values[output]) else set()
    return [
        IntegerWeight(
            graph.values[weight].name,
            graph.values[weight].dtype,
            math.prod(graph.values[weight].bound),
            frozenset(value for value, used in weights.items() if weight in used),
            tuple(sorted(ops)),
        )
        for weight, ops in readers.items()
    ]


def _is_large(value: ir.Value) -> bool:
    return math.prod(value.bound) >= _LEAST


def widened(weights: Sequence[IntegerWeight], graph: ir.Graph) -> list[Widened]:
    """Those of `weights` that the graph, with its passes done, holds in more bits."""
    keys = [
        {graph.values[value].data_key for value in weight.values} - {""}
        for weight in weights
    ]
    if not any(keys):  # all are packed, and nothing has to be planned
        return []
    plan = Planner(graph, AOT_CAPS).upper_bound()
    found = [_held(plan, weight, names) for weight, names in zip(weights, keys)]
    return [held for held in found if held.size > held.weight.size * _PADDING]


def _held(plan: Plan, weight: IntegerWeight, keys: set[str]) -> Widened:
    """What the buffers that are filled from some data take."""
    storages = {c.buffer: c.storage for c in plan.constants if c.data_key in keys}
    sizes = {buffer: plan.buffers[buffer].size for buffer in storages}
    largest = max(sizes, key=sizes.__getitem__, default=-1)
    return Widened(weight, storages.get(largest, Storage.I32), sum(sizes.values()))


def warn(found: Sequence[Widened]) -> None:
    """Says in one line what is widened in a program, the largest by name."""
    if not found:
        return
    first, *rest = sorted(found, key=lambda held: held.weight.size - held.size)
    text = str(first)
    if rest:
        given = sum(held.weight.size for held in rest) / 1e6
        taken = sum(held.size for held in rest) / 1e6
        text += f"; so are {len(rest)} more: {taken:.1f} MB instead of {given:.1f} MB"
    _log.warning("%s", text)
