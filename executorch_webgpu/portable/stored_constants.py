"""Constants as a file with plans holds them: once, as kernels of GPUs bind them.

Enters: what the plans of a graph bind of each constant. Leaves: the graph with
`webgpu.laid_out` calls, which say how the constants that it had are made of what the
file holds. What they give is compared with these, to the bit, before it is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

import numpy as np

from .. import ir
from ..ir.dtypes import DType, Storage, is_converted, to_storage
from ..ir.signatures import LaidOut
from ..plan import host_packing
from ..plan.constant_data import MOST_PADDED, GetBytes, joined
from ..plan.plan import Constant, Part
from .plans import Plans

# Bytes. A smaller constant is stored again: the call would take as many.
LEAST = 1 << 10

# How the elements of a buffer are called outside it.
_DTYPES = {
    Storage.F32: DType.FLOAT32,
    Storage.F16: DType.FLOAT16,
    Storage.I32: DType.INT32,
}


def packed(data: np.ndarray, constant: Constant) -> np.ndarray:
    """Elements of a constant as its packing lays them out."""
    if not constant.packing:
        return data
    return host_packing.pack(constant.packing, data, constant.packing_args)


def as_stored(data: np.ndarray, constant: Constant) -> tuple[np.ndarray, DType]:
    """What a file holds of a packed constant, in few bytes of which every player can
    make its buffer's."""
    if data.dtype != constant.dtype.numpy or constant.dtype is DType.INT32:
        return _narrow(data, constant)  # words, or what was counted in them
    if constant.dtype is DType.INT64:
        return to_storage(data, DType.INT64, Storage.I32), DType.INT32
    if is_converted(constant.dtype, constant.storage):
        return data, constant.dtype
    return to_storage(data, constant.dtype, constant.storage), _DTYPES[constant.storage]


def _narrow(data: np.ndarray, constant: Constant) -> tuple[np.ndarray, DType]:
    """Sums of codes seldom need 32 bits."""
    if not host_packing.can_unpack(constant.packing) and data.size:
        least, most = int(data.min()), int(data.max())
        if -(1 << 15) <= least <= most < 1 << 15:
            return data.astype(np.int16), DType.INT16
    return data, DType.INT32


def laid_out(
    graph: ir.Graph, found: Mapping[str, tuple[Part, ...]], get_bytes: GetBytes
) -> dict[int, tuple[Part, ...]]:
    """The parts to hold instead of a constant's own data, by its value's number."""
    # A state has its own data, whatever it is.
    states = {value.data_key for value in graph.values if value.state}
    made = {}
    for number, value in enumerate(graph.values):
        if value.data_key in found and value.data_key not in states:
            raw = get_bytes(value.data_key)
            shape = cast("tuple[int, ...]", value.shape)
            for parts in _choices(found[value.data_key]):
                if raw.nbytes >= LEAST and _makes(parts, value, shape, raw, get_bytes):
                    made[number] = parts
                    break
    return made


def _choices(parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """One of the parts, or all of them."""
    whole = tuple(p for p in parts if host_packing.can_unpack(p.packing))
    yield from ((part,) for part in whole)
    if len(whole) > 1:
        yield whole


def _makes(
    parts: tuple[Part, ...],
    value: ir.Value,
    shape: tuple[int, ...],
    raw: memoryview,
    get_bytes: GetBytes,
) -> bool:
    """Whether parts give a constant's bytes back."""
    held = sum(math.prod(p.view[0] if p.view else shape) for p in parts)
    if held * MOST_PADDED < math.prod(shape):
        return False
    flat = joined(get_bytes, parts, value.dtype, shape)
    return flat.view(np.uint8).data == raw


def with_parts(
    graph: ir.Graph, plans: Plans, parts: Mapping[int, tuple[Part, ...]]
) -> tuple[ir.Graph, Plans]:
    """The graph whose constants are made of parts, and its plans: the same, but that
    calls have other numbers."""
    values = list(graph.values)
    made = ir.Graph(
        values,
        [],
        graph.inputs,
        graph.outputs,
        graph.mutations,
        graph.symbols,
    )
    held: dict[str, ir.Ref] = {}
    for number, each in parts.items():
        for part in each:
            if part.data_key not in held:
                size = (part.shape, part.shape)
                name = f"{values[number].name}_{len(held)}"
                value = ir.Value(name, part.dtype, *size, data_key=part.data_key)
                held[part.data_key] = ir.Ref(made.add(value))
        call = LaidOut(
            [held[part.data_key] for part in each],
            [part.packing for part in each],
            [list(part.packing_args) for part in each],
            [_numbers(part) for part in each],
        ).call(number)
        values[number] = replace(values[number], data_key="")
        made.calls.append(call)
    added = len(made.calls)
    made.calls += graph.calls
    dispatches = tuple(replace(row, call=row.call + added) for row in plans.dispatches)
    return made, replace(plans, dispatches=dispatches)


def _numbers(part: Part) -> list[int]:
    if part.view is None:
        return []
    shape, strides, offset = part.view
    return [offset, *shape, *strides]
