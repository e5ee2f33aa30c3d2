"""Recorded dispatches -> a Plan: buffers for stores, ports and constants.

Buffers are sized for the upper bound and named by slots that are the same in every
plan of a delegate, so a new shape never moves a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .. import ir
from ..ir import symbols
from ..ir.dtypes import DType, Storage
from . import events
from .launches import Launch
from .live_shapes import LiveShapes
from .lower_calls import Recorded
from .plan import Buffer, Constant, Dispatch, Plan, Port, PortKind, Role, StoredValue
from .scratch import LiveRange, Pool, peak
from .tensor import Store, Tensor


class Sizes:
    """Sizes of the buffers that all plans of a delegate share."""

    def __init__(self) -> None:
        self.pool = Pool()
        self._params = 0

    def params(self, size: int) -> Store:
        """One buffer for all plans, unless one needs more than those before."""
        while self._params < size:
            self._params = max(256, 2 * self._params)
        return Store(Role.PARAMS, self._params, f"params{self._params}")


def assemble(
    graph: ir.Graph,
    shapes: LiveShapes,
    recorded: Recorded,
    sizes: Sizes,
    with_values: bool = False,
) -> Plan:
    """The plan of recorded calls; `sizes` grow if it needs more than earlier plans."""
    g, env = recorded.g, recorded.env
    launches = g.launches
    live = _live_ranges(launches.launched)
    buffers = _Numbered(live, recorded.outputs, sizes.pool)

    def port(value: int, tensor: Tensor | None) -> Port:
        return _port(graph.values[value], tensor, shapes, buffers, env)

    def limited(value: int, tensor: Tensor | None) -> Port:
        made = port(value, tensor)
        store = None if tensor is None else tensor.store
        limits = {} if store is None else g.limits.get(store, {})
        return replace(made, limits=tuple(limits.values()))

    inputs = [limited(value, recorded.tensors.get(value)) for value in graph.inputs]
    params = sizes.params(len(launches.params))
    dispatches = [
        _dispatch(launch, buffers, params, g.caps.max_binding)
        for launch in launches.launched
    ]
    outputs = [
        port(value, tensor) for value, tensor in zip(graph.outputs, recorded.results)
    ]
    constants = [
        replace(constant, buffer=buffers.index(store))
        for store, constant in g.constants.entries.values()
        if store in live
    ]
    constants += _states(graph, recorded.tensors, buffers)
    status = -1 if launches.status is None else buffers.index(launches.status)
    return Plan(
        tuple(buffers.table),
        tuple(constants),
        tuple(launches.pipelines),
        tuple(dispatches),
        bytes(launches.params),
        tuple(inputs),
        tuple(outputs),
        status,
        peak(buffers.scratch),
        dict(env),
        tuple(g.choices.values()),
        tuple(launches.sizes),
        tuple(_values(graph, recorded, buffers)) if with_values else (),
        tuple(map(_traffic, launches.launched)) if with_values else (),
    )


def _values(
    graph: ir.Graph, recorded: Recorded, buffers: _Numbered
) -> Iterator[StoredValue]:
    """The first result of each call, if it is stored: what is inlined is not."""
    touched: dict[Store, list[tuple[int, int]]] = {}
    for after, launch in enumerate(recorded.g.launches.launched):
        for bound in launch.stores:
            touched.setdefault(bound, []).append((launch.call, after))
    for index, call in enumerate(graph.calls):
        tensor = recorded.tensors.get(call.outputs[0])
        store = None if tensor is None else tensor.store
        if tensor is None or store is None or store not in touched or not tensor.numel:
            continue
        # A view is there when its source is.
        after = max((at for by, at in touched[store] if by <= index), default=0)
        yield StoredValue(
            events.value_name(index, call.op),
            index,
            after,
            buffers.index(store),
            graph.values[call.outputs[0]].dtype,
            tensor.storage,
            (tensor.shape, tensor.strides, tensor.offset),
        )


def _traffic(launch: Launch) -> int:
    """Bytes; what is broadcast counts once."""
    total = 0
    for tensor in launch.tensors:
        elements = math.prod(
            extent
            for extent, stride in zip(tensor.shape, tensor.strides)
            if stride or not extent
        )
        total += elements * tensor.storage.size
    return total


def _live_ranges(launches: Sequence[Launch]) -> dict[Store, LiveRange]:
    ranges: dict[Store, LiveRange] = {}
    for index, launch in enumerate(launches):
        for store in launch.stores:
            begun = ranges.get(store)
            first = index if begun is None else begun.first
            ranges[store] = LiveRange(store.size, first, index)
    return ranges


class _Numbered:
    """The buffers of a plan, numbered in the order in which they are met."""

    def __init__(
        self,
        live: Mapping[Store, LiveRange],
        outputs: Mapping[Store, Store],
        pool: Pool,
    ) -> None:
        self.live = live
        self._outputs = outputs
        own = {
            store: alive
            for store, alive in live.items()
            if store.role is Role.SCRATCH and store not in outputs
        }
        self.scratch = list(own.values())
        slots = pool.assign(self.scratch)
        self._scratch = {
            store: Buffer(Role.SCRATCH, pool.sizes[slots[alive]], f"s{slots[alive]}")
            for store, alive in own.items()
        }
        self._numbers: dict[tuple[Role, str], int] = {}
        self.table: list[Buffer] = []

    def index(self, store: Store) -> int:
        store = self._outputs.get(store, store)
        buffer = self._scratch.get(store) or Buffer(store.role, store.size, store.key)
        name = (buffer.role, buffer.key)
        if name not in self._numbers:
            self._numbers[name] = len(self.table)
            self.table.append(buffer)
        return self._numbers[name]

    def is_used(self, store: Store) -> bool:
        """Whether a kernel binds it, or the host reads it."""
        role = self._outputs.get(store, store).role
        return role is Role.OUTPUT or store in self.live


def _dispatch(
    launch: Launch, buffers: _Numbered, params: Store, max_binding: int
) -> Dispatch:
    bound = [buffers.index(store) for store in launch.stores]
    sizes = [buffers.table[index].size for index in bound]
    if launch.params >= 0:
        bound.append(buffers.index(params))
    return Dispatch(
        launch.pipeline,
        tuple(bound),
        launch.params,
        launch.params_size,
        launch.groups,
        launch.label,
        launch.call,
        _ranges(launch, sizes, max_binding),
    )


def _ranges(
    launch: Launch, sizes: Sequence[int], max_binding: int
) -> tuple[tuple[int, int] | None, ...]:
    """What a dispatch binds of its buffers, if that is not all of each.

    A small scratch store may be in a buffer that cannot be bound whole.
    """
    ranges = [
        (window.offset, window.size)
        if window is not None
        else (0, store.size)
        if size > max_binding
        else None
        for store, window, size in zip(launch.stores, launch.windows, sizes)
    ]
    return tuple(ranges) if any(ranges) else ()


def _states(
    graph: ir.Graph, tensors: Mapping[int, Tensor], buffers: _Numbered
) -> list[Constant]:
    """How the states' buffers are filled at load."""
    made = []
    for index, value in enumerate(graph.values):
        if not value.state:
            continue
        tensor = tensors[index]
        assert tensor.store is not None
        buffer = buffers.index(tensor.store)
        content = (value.data_key, value.dtype, tensor.storage, tensor.shape)
        made.append(Constant(buffer, *content))
    return made


def _port(
    value: ir.Value,
    tensor: Tensor | None,
    shapes: LiveShapes,
    buffers: _Numbered,
    env: dict[str, int],
) -> Port:
    store = None if tensor is None else tensor.store
    if value.is_int:
        buffer = -1 if store is None else buffers.index(store)
        size = 0 if shapes.is_data(value) else symbols.evaluate(value.symbol, env)
        kind = (PortKind.INT, buffer, DType.INT64, Storage.I32)
        return Port(value.name, *kind, (), size)
    assert tensor is not None
    assert store is not None
    return Port(
        value.name,
        PortKind.TENSOR,
        buffers.index(store) if buffers.is_used(store) else -1,
        value.dtype,
        tensor.storage,
        tensor.shape,
    )
