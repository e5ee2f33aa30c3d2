"""Planner: ir.Graph and live shapes in, Plan out.

Runs every op function in order on the live shapes. Buffers are sized for the
upper bound and named by slots that are the same in every plan, so a new shape
never moves a buffer. Planning is pure: the same shapes give an equal plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import ir
from ..errors import InvalidBlob, InvalidInput, Unsupported, WebGPUError
from ..ir import symbols
from ..ir.dtypes import DType, Storage, storage_of
from . import registry
from . import scratch as memory
from .caps import Caps
from .concat_in_place import place_of, placed
from .inline_producers import deferred, last_uses
from .plan import Buffer, Constant, Dispatch, Plan, Port, PortKind, Role
from .pointwise import is_program
from .recorder import Graph, Launch
from .tensor import ConstantSource, DataInt, Store, Tensor, row_major


class Planner:
    """Plans for one graph on one kind of device."""

    def __init__(
        self, graph: ir.Graph, caps: Caps, tuned: Mapping[str, str] | None = None
    ) -> None:
        self.graph = graph
        self.caps = caps
        # Forms that measuring has found to be the best, by the choice's key.
        self.tuned = dict(tuned or {})
        self.pool = memory.Pool()
        self._bounds: dict[tuple[int, int], int] = {}
        self._params_size = 0
        self._deferred = deferred(graph)
        self._last_use = last_uses(graph, self._deferred)
        self._placed = placed(graph, self._deferred)
        self._shape_symbols = _shape_symbols(graph)
        self._readers = _readers(graph)
        self._planned_bound = False

    def upper_bound(self) -> Plan:
        """The plan for the largest shapes, which sizes all buffers."""
        env = {name: high for name, (_, high) in self.graph.symbols.items()}
        plan = self._plan(env)
        if self._placed and not self._planned_bound:
            plan = self._place_at_no_cost(plan, env)
        self._planned_bound = True
        return plan

    def _place_at_no_cost(self, plan: Plan, env: dict[str, int]) -> Plan:
        """Places no results if memory would grow: a whole lives longer than a part."""
        pool, places = self.pool, self._placed
        self.pool, self._placed = memory.Pool(), {}
        plain = self._plan(env)
        if plain.scratch_bytes < plan.scratch_bytes:
            return plain
        self.pool, self._placed = pool, places
        return plan

    def lower_bound(self) -> Plan:
        """The plan for the smallest shapes."""
        env = {name: low for name, (low, _) in self.graph.symbols.items()}
        return self._plan(env)

    def plan(self, inputs: Sequence[tuple[int, ...] | int]) -> Plan:
        """The plan for live input shapes (of tensors) and values (of integers)."""
        if not self._planned_bound:
            self.upper_bound()
        return self._plan(self.bind(inputs))

    def bind(self, inputs: Sequence[tuple[int, ...] | int]) -> dict[str, int]:
        """The symbols' values; InvalidInput if a shape was not exported."""
        values = [self.graph.values[index] for index in self.graph.inputs]
        if len(inputs) != len(values):
            raise InvalidInput(f"inputs must be {len(values)}, got {len(inputs)}")
        equations: list[tuple[ir.Dim, int]] = []
        for value, live in zip(values, inputs):
            if isinstance(live, int):
                if self._is_data(value):
                    continue
                equations.append((value.symbol, live))
            else:
                if len(live) != len(value.shape):
                    raise InvalidInput(
                        f"input {value.name} must have {len(value.shape)} dimensions,"
                        f" got {list(live)}"
                    )
                equations += zip(value.shape, live)
        try:
            env = symbols.solve(equations, self.accepted())
        except InvalidInput as error:
            raise InvalidInput(f"{error} (inputs {list(inputs)})") from None
        for value, live in zip(values, inputs):
            self._check_shape(value, live, env)
        return env

    def accepted(self) -> dict[str, tuple[int, int]]:
        """The bounds of live sizes.

        Export calls sizes of 0 and 1 special and then says at least 2, although it
        was asked for 1. Support is asked for from 2 on, because what takes the second
        of n needs that; to most kernels 1 is as good as any.
        """
        return {
            name: (1 if low == 2 and high > 1 else low, high)
            for name, (low, high) in self.graph.symbols.items()
        }

    def _check_shape(
        self, value: ir.Value, live: tuple[int, ...] | int, env: dict[str, int]
    ) -> None:
        if isinstance(live, int):
            return
        expected = tuple(symbols.evaluate(dim, env) for dim in value.shape)
        if expected != live:
            raise InvalidInput(
                f"input {value.name} must have shape {list(value.shape)}"
                f" (up to {list(value.bound)}), got {list(live)}"
            )

    def _is_data(self, value: ir.Value) -> bool:
        """Whether an integer input is data for kernels, not part of a shape."""
        return value.is_int and not symbols.names(value.symbol) <= self._shape_symbols

    # -- one plan ----------------------------------------------------------------

    def _plan(self, env: dict[str, int]) -> Plan:
        g = Graph(self.caps)
        g.bounds = self._bounds
        g.tuned = self.tuned
        g.readers = self._readers
        tensors: dict[int, Tensor] = {}
        data = self._inputs(g, tensors, env)
        g.values = tensors
        for index, call in enumerate(self.graph.calls):
            self._call(g, tensors, data, env, index, call)
        g.begin(len(self.graph.calls), "output")
        results: list[Tensor | None] = []
        for number, value in enumerate(self.graph.outputs):
            is_int = self.graph.values[value].is_int
            made = None if is_int else self._output(g, tensors[value], number, value)
            results.append(made)
        self._store_states(g, tensors)
        return self._finish(g, tensors, results, env)

    def _store_states(self, g: Graph, tensors: dict[int, Tensor]) -> None:
        """The new content of every state that was not changed where it is."""
        g.label = "state"
        pending = []
        for state, value in self.graph.mutations.items():
            target, result = tensors[state], tensors[value]
            if result.store is target.store and result.is_contiguous:
                continue
            if result.store is not None and result.store.role is Role.STATE:
                # Another state's content, which may be overwritten first.
                copied = g.temp(result.shape, result.dtype)
                g.copy(result, copied)
                result = copied
            pending.append((result, target))
        for result, target in pending:
            g.copy(result, target)

    def _may_overwrite(
        self, tensors: dict[int, Tensor], index: int, call: ir.Call, x: Tensor
    ) -> bool:
        """Whether `x` is a state that this call replaces and nothing reads later."""
        store = x.store
        if store is None or store.role is not Role.STATE or not x.is_contiguous:
            return False
        sharing = [value for value, t in tensors.items() if t.store is store]
        replaced = any(
            self.graph.mutations.get(value) in call.outputs for value in sharing
        )
        kept = self.graph.mutations.values()
        return replaced and not any(
            self.last_use(value) > index or value in kept for value in sharing
        )

    def _inputs(
        self, g: Graph, tensors: dict[int, Tensor], env: dict[str, int]
    ) -> dict[str, DataInt]:
        """Tensors for inputs, constants and states; data integers by symbol."""
        data: dict[str, DataInt] = {}
        slots = {value: slot for slot, value in enumerate(self.graph.inputs)}
        for index, value in enumerate(self.graph.values):
            if value.is_int:
                if index in slots and self._is_data(value):
                    tensor = g.tensor((), DType.INT32)
                    tensor.store = Store(Role.INPUT, 16, f"in{slots[index]}")
                    tensors[index] = tensor
                    self._add_data(data, value, tensor, env)
                continue
            if index in slots:
                tensor = self._tensor(g, value, env)
                tensor.strides = _dim_order_strides(tensor.shape, value.dim_order)
                size = _size(tensor)
                tensor.store = Store(Role.INPUT, size, f"in{slots[index]}")
            elif value.state:
                tensor = self._tensor(g, value, env)
                tensor.store = Store(Role.STATE, _size(tensor), value.state)
            elif value.data_key:
                tensor = self._tensor(g, value, env)
                tensor.source = ConstantSource(
                    value.data_key, value.dtype, tensor.shape
                )
            else:
                continue
            tensors[index] = tensor
        return data

    def _add_data(
        self,
        data: dict[str, DataInt],
        value: ir.Value,
        tensor: Tensor,
        env: dict[str, int],
    ) -> None:
        """The symbol that an integer input tells: it is that symbol plus a size."""
        free = symbols.names(value.symbol) - self._shape_symbols
        for name in free if len(free) == 1 else ():
            add = symbols.evaluate(value.symbol, {**env, name: 0})
            linear = symbols.evaluate(value.symbol, {**env, name: 1}) == add + 1
            if linear and (name not in data or value.symbol == name):
                data[name] = DataInt(tensor, -add)

    def _tensor(self, g: Graph, value: ir.Value, env: dict[str, int]) -> Tensor:
        shape = tuple(symbols.evaluate(dim, env) for dim in value.shape)
        if any(extent < 0 for extent in shape):
            raise InvalidInput(f"{value.name} must have sizes >= 0, got {list(shape)}")
        bound = 1
        for extent in value.bound:
            bound *= extent
        if value.dtype is DType.FLOAT64:
            raise Unsupported("a tensor must not be float64, got float64")
        return g.tensor(shape, value.dtype, bound)

    def _call(
        self,
        g: Graph,
        tensors: dict[int, Tensor],
        data: dict[str, DataInt],
        env: dict[str, int],
        index: int,
        call: ir.Call,
    ) -> None:
        found = registry.find(call.op)
        if found is None:
            raise InvalidBlob(
                f"op must be known, got {call.op}; if another version of"
                " executorch_webgpu exported the program, export it again"
            )
        g.begin(index, call.op)
        g.may_overwrite = lambda x: self._may_overwrite(tensors, index, call, x)
        outs = [self._tensor(g, self.graph.values[v], env) for v in call.outputs]
        for value, tensor in zip(call.outputs, outs):
            tensor.needed = value in self._last_use
        if call.post:
            final = outs[0].dtype
            assert call.result is not None
            outs[0] = g.tensor(outs[0].shape, call.result, outs[0].bound)
            outs[0].final = final
            outs[0].post = [
                step.map_args(lambda arg: _live(arg, env)) for step in call.post
            ]
        g.deferred_reads = self._deferred.get(index, 0)
        g.deferrable = outs[0] if g.deferred_reads else None
        self._place(g, env, index, outs[0])
        args = [
            self._resolve(arg, tensors, data, env, position in found.data_ints)
            for position, arg in enumerate(call.args)
        ]
        if not found.view and not is_program(call):
            args = ir.map_arg(args, lambda arg: _fitting(g, arg))
        try:
            found.function(g, *args, out=outs if len(outs) != 1 else outs[0])
        except WebGPUError as error:
            if str(error).startswith(call.op):
                raise
            raise type(error)(f"{call.op}: {error}") from error
        for value, tensor in zip(call.outputs, outs):
            tensor = self._written(tensor)
            if index not in self._deferred:
                g.settle(tensor)
            if tensor.needed and tensor.store is None and tensor.source is None:
                raise AssertionError(f"{call.op}: op function left an output unwritten")
            tensors[value] = tensor

    def _written(self, tensor: Tensor) -> Tensor:
        """A call's output as others read it: after its steps, and where it lies."""
        if tensor.post:
            final = tensor.stored
            storage = storage_of(final, self.caps.f16)
            tensor = replace(tensor, dtype=final, storage=storage, post=[], final=None)
        if tensor.place is not None and tensor.is_placed:
            strides = row_major(tensor.place.shape)
            return tensor.with_view(tensor.shape, strides, tensor.place.at)
        return tensor

    def _place(self, g: Graph, env: dict[str, int], index: int, out: Tensor) -> None:
        """Where a call's output goes if that is a cat's buffer, as cat's own does."""
        if index in g.wholes:
            out.store = g.wholes[index]
        target = self._placed.get(index)
        if target is None:
            return
        call = self.graph.calls[target]
        value = self.graph.values[call.outputs[0]]
        whole = self._tensor(g, value, env)
        if g.is_large(whole):
            return  # cat writes it window by window
        if target not in g.wholes:
            g.wholes[target] = Store(Role.SCRATCH, _size(whole), "")
        parts = list(ir.refs(call.args[0]))
        dims = call.args[1] if len(call.args) > 1 else 0
        assert isinstance(dims, int)
        dim = whole.dim(dims)
        out.place = place_of(
            g.wholes[target],
            dim,
            parts.index(self.graph.calls[index].outputs[0]),
            [self._tensor(g, self.graph.values[v], env).shape for v in parts],
            whole.shape,
            all(extent == 1 for extent in value.shape[:dim]),
        )

    def _resolve(
        self,
        arg: ir.Arg,
        tensors: dict[int, Tensor],
        data: dict[str, DataInt],
        env: dict[str, int],
        may_be_data: bool,
    ) -> Any:
        match arg:
            case ir.Ref(id=value):
                return tensors[value]
            case ir.Expr(text=text):
                free = symbols.names(text) & data.keys()
                if not free:
                    return symbols.evaluate(text, env)
                if may_be_data and len(free) == 1:
                    (name,) = free
                    known = {**env, name: 0}
                    add = symbols.evaluate(text, known)
                    if symbols.evaluate(text, {**env, name: 1}) == add + 1:
                        base = data[name]
                        return DataInt(base.tensor, base.add + add)
                raise Unsupported(
                    f"an integer must not depend on data here, got {text}"
                )
            case list():
                return [self._resolve(item, tensors, data, env, False) for item in arg]
        return arg

    def _output(self, g: Graph, tensor: Tensor, number: int, index: int) -> Tensor:
        """Puts an output's elements into a buffer of its own, in the host's order."""
        value = self.graph.values[index]
        order = value.dim_order or tuple(range(tensor.rank))
        view = tensor.permute(order)
        store = tensor.store
        whole = store is not None and store.size == _size(tensor)
        if (
            store is not None
            and whole
            and view.is_contiguous
            and store.role is Role.SCRATCH
        ):
            store.role, store.key = Role.OUTPUT, f"out{number}"
            return tensor
        if store is not None and store.role is Role.OUTPUT and view.is_contiguous:
            return tensor
        out = g.tensor(view.shape, tensor.dtype, tensor.bound)
        out.store = Store(Role.OUTPUT, _size(out), f"out{number}")
        g.copy(view, out)
        return replace(out, shape=tensor.shape)

    def _finish(
        self,
        g: Graph,
        tensors: dict[int, Tensor],
        results: Sequence[Tensor | None],
        env: dict[str, int],
    ) -> Plan:
        scratch = [s for s in _stores(g.launches) if s.role is Role.SCRATCH]
        slots = self.pool.assign(scratch)
        buffers: dict[tuple[Role, str], int] = {}
        table: list[Buffer] = []

        def index_of(store: Store) -> int:
            role, key, size = store.role, store.key, store.size
            if role is Role.SCRATCH:
                key, size = f"s{slots[store]}", self.pool.sizes[slots[store]]
            if (role, key) not in buffers:
                buffers[role, key] = len(table)
                table.append(Buffer(role, size, key))
            return buffers[role, key]

        inputs = [
            self._port(tensors.get(i), self.graph.values[i], index_of, env)
            for i in self.graph.inputs
        ]
        dispatches = []
        params_store = self._params_store(len(g.params))
        for launch in g.launches:
            bound = [index_of(store) for store in launch.stores]
            if launch.params >= 0:
                bound.append(index_of(params_store))
            dispatches.append(
                Dispatch(
                    launch.pipeline,
                    tuple(bound),
                    launch.params,
                    launch.params_size,
                    launch.groups,
                    launch.label,
                    launch.call,
                    self._ranges(launch, [table[index].size for index in bound]),
                )
            )
        outputs = [
            self._port(tensor, self.graph.values[i], index_of, env)
            for i, tensor in zip(self.graph.outputs, results)
        ]
        constants = self._constants(g, tensors, index_of)
        status = index_of(g.status) if g.checked else -1
        return Plan(
            tuple(table),
            constants,
            tuple(g.pipelines),
            tuple(dispatches),
            bytes(g.params),
            tuple(inputs),
            tuple(outputs),
            status,
            memory.peak(scratch),
            dict(env),
            tuple(g.choices.values()),
        )

    def _ranges(
        self, launch: Launch, sizes: Sequence[int]
    ) -> tuple[tuple[int, int] | None, ...]:
        """What a dispatch binds of its buffers, if that is not all of each.

        A small scratch store may lie in a buffer that cannot be bound whole.
        """
        ranges = [
            (window.offset, window.size)
            if window is not None
            else (0, store.size)
            if size > self.caps.max_binding
            else None
            for store, window, size in zip(launch.stores, launch.windows, sizes)
        ]
        return tuple(ranges) if any(ranges) else ()

    def _params_store(self, size: int) -> Store:
        """One buffer for all plans, unless one needs more than those before."""
        while self._params_size < size:
            self._params_size = max(256, 2 * self._params_size)
        return Store(Role.PARAMS, self._params_size, f"params{self._params_size}")

    def _constants(
        self, g: Graph, tensors: dict[int, Tensor], index_of: Any
    ) -> tuple[Constant, ...]:
        used = [
            replace(constant, buffer=index_of(store))
            for store, constant in g.constants.values()
            if store.first >= 0
        ]
        for index, value in enumerate(self.graph.values):
            if not value.state:
                continue
            tensor = tensors[index]
            store = tensor.store
            assert store is not None
            used.append(
                Constant(
                    index_of(store),
                    value.data_key,
                    value.dtype,
                    tensor.storage,
                    tensor.shape,
                )
            )
        return tuple(used)

    def _port(
        self, tensor: Tensor | None, value: ir.Value, index_of: Any, env: dict[str, int]
    ) -> Port:
        if value.is_int:
            buffer = -1
            if tensor is not None and tensor.store is not None:
                buffer = index_of(tensor.store)
            size = 0
            if not self._is_data(value):
                size = symbols.evaluate(value.symbol, env)
            kind = (PortKind.INT, buffer, DType.INT64, Storage.I32)
            return Port(value.name, *kind, (), size)
        assert tensor is not None
        assert tensor.store is not None
        used = tensor.store.role is Role.OUTPUT or tensor.store.first >= 0
        return Port(
            value.name,
            PortKind.TENSOR,
            index_of(tensor.store) if used else -1,
            value.dtype,
            tensor.storage,
            tensor.shape,
        )

    def last_use(self, value: int) -> int:
        """The last call that reads a value; calls + 1 if it is an output."""
        return self._last_use.get(value, -1)


def _fitting(g: Graph, arg: Any) -> Any:
    """A resolved argument; a tensor can be bound, or is too large for that."""
    return g.fitting(arg) if isinstance(arg, Tensor) else arg


def _live(arg: ir.Arg, env: dict[str, int]) -> ir.Arg:
    """An argument of a fused step; an expression is evaluated."""
    return symbols.evaluate(arg.text, env) if isinstance(arg, ir.Expr) else arg


def _size(tensor: Tensor) -> int:
    return max(16, -(-tensor.bound * tensor.storage.size // 16) * 16)


def _stores(launches: Sequence[Launch]) -> list[Store]:
    seen: dict[Store, None] = {}
    for launch in launches:
        seen.update(dict.fromkeys(launch.stores))
    return list(seen)


def _dim_order_strides(
    shape: Sequence[int], dim_order: Sequence[int]
) -> tuple[int, ...]:
    """Strides of a tensor whose dimensions lie in memory in the given order."""
    if not dim_order:
        return row_major(shape)
    packed = row_major([shape[dim] for dim in dim_order])
    strides = [0] * len(shape)
    for position, dim in enumerate(dim_order):
        strides[dim] = packed[position]
    return tuple(strides)


def _readers(graph: ir.Graph) -> dict[str, set[str]]:
    """The names of the ops that read each constant, by its key."""
    readers: dict[str, set[str]] = {}
    for call in graph.calls:
        for value in ir.call_inputs(call):
            if graph.values[value].is_constant:
                readers.setdefault(graph.values[value].data_key, set()).add(call.op)
    return readers


def _shape_symbols(graph: ir.Graph) -> frozenset[str]:
    """Symbols that decide a shape, or an argument that must be known to plan."""
    texts: set[str] = set()
    for value in graph.values:
        texts |= {dim for dim in value.shape if isinstance(dim, str)}
    for index in graph.outputs:
        if graph.values[index].is_int:
            texts.add(graph.values[index].symbol)
    for call in graph.calls:
        found = registry.find(call.op)
        data = found.data_ints if found else ()
        for position, arg in enumerate(call.args):
            if position not in data:
                texts |= _expressions(arg)
        for step in call.post:
            texts |= _expressions(step.args)
    return frozenset(name for text in texts for name in symbols.names(text))


def _expressions(arg: ir.Arg) -> set[str]:
    return {leaf.text for leaf in ir.leaves(arg) if isinstance(leaf, ir.Expr)}
