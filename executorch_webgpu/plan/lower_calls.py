"""The calls of a graph for one set of live shapes: op functions run in order.

Enters: what is known of the graph whatever the shapes are, and the symbols' values.
Leaves: the recorded dispatches, and the tensors of the graph's values.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import ir
from ..errors import InvalidInput, Unsupported, WebGPUError
from ..ir import symbols
from ..ir.dtypes import DType
from . import registry
from .accidents import accidents_in
from .buffers import CallContext
from .concat_in_place import places
from .live_shapes import LiveShapes
from .output import Epilogue, Output, Place
from .plan import Role
from .pointwise import is_program
from .recorder import Recorder
from .tensor import ConstantSource, DataInt, Store, Tensor, row_major


@dataclass(frozen=True)
class GraphFacts:
    """What planning needs to know of a graph besides its calls."""

    graph: ir.Graph
    shapes: LiveShapes
    deferred: Mapping[int, int]  # calls that may be inlined: how often they are read
    last_use: Mapping[int, int]  # the last call that reads each value
    # Calls whose result has a place in a concatenation's buffer, with that call.
    placed: Mapping[int, int]


@dataclass(frozen=True)
class Recorded:
    """All calls of a graph, planned for one set of live shapes."""

    g: Recorder
    env: dict[str, int]
    tensors: Mapping[int, Tensor]  # of the graph's values
    results: Sequence[Tensor | None]  # of its outputs; None: an integer
    # Scratch stores that are outputs as they are, with the output's store.
    outputs: Mapping[Store, Store]


class CallLowering:
    """The tensors of a graph's values, made call by call."""

    def __init__(self, facts: GraphFacts, g: Recorder, env: dict[str, int]) -> None:
        self._facts = facts
        self._graph = facts.graph
        self._g = g
        self._env = env
        self._tensors: dict[int, Tensor] = {}
        # The values that are in each state's buffer, and the states that each replaces.
        self._held_in: dict[Store, list[int]] = defaultdict(list)
        self._replaces: dict[int, list[int]] = defaultdict(list)
        for state, value in self._graph.mutations.items():
            self._replaces[value].append(state)
        self._data: dict[str, DataInt] = {}  # integers that are data, by symbol
        # Stores of concatenations that are written before their call, by its index.
        self._wholes: dict[int, Store] = {}
        # Places in these, by the concatenation's index and the input's value.
        self._places: dict[int, dict[int, Place]] = {}
        # Scratch stores that are outputs as they are.
        self._outputs: dict[Store, Store] = {}

    def run(self) -> Recorded:
        self._add_inputs()
        for index, call in enumerate(self._graph.calls):
            with accidents_in(self._graph, index):
                self._lower(index, call)
        end = len(self._graph.calls)
        self._g.begin(CallContext(end, "output"))
        results = [
            None if self._graph.values[value].is_int else self._result(number, value)
            for number, value in enumerate(self._graph.outputs)
        ]
        self._g.begin(CallContext(end, "state"))
        self._g.end_calls()
        self._store_states()
        return Recorded(self._g, self._env, self._tensors, results, self._outputs)

    # -- what is there before the first call ---------------------------------------

    def _add_inputs(self) -> None:
        """Tensors for inputs, constants and states."""
        slots = {value: slot for slot, value in enumerate(self._graph.inputs)}
        for index, value in enumerate(self._graph.values):
            slot = slots.get(index)
            if value.is_int:
                if slot is not None and self._facts.shapes.is_data(value):
                    number = self._g.output((), DType.INT32, 1)
                    tensor = self._held(number, Role.INPUT, f"in{slot}")
                    self._tensors[index] = tensor
                    self._add_data(value, tensor)
                continue
            if slot is None and not value.state and not value.data_key:
                continue
            out = self._output(value)
            if slot is not None:
                tensor = self._held(out, Role.INPUT, f"in{slot}")
                strides = _dim_order_strides(out.shape, value.dim_order)
                self._tensors[index] = replace(tensor, strides=strides)
            elif value.state:
                self._add(index, self._held(out, Role.STATE, value.state))
            else:
                # Data has one size, also where the graph says that it varies.
                out = replace(out, shape=tuple(map(int, out.shape)))
                source = ConstantSource(value.data_key, value.dtype, out.shape)
                self._tensors[index] = self._g.over(out, source)

    def _held(self, out: Output, role: Role, key: str) -> Tensor:
        """`out`, in a buffer of its own."""
        return self._g.over(out, Store(role, self._g.buffer_bytes(out), key))

    def _add_data(self, value: ir.Value, tensor: Tensor) -> None:
        """Registers the symbol of an integer input, if that is the symbol plus n."""
        free = symbols.names(value.symbol) - self._facts.shapes.shape_symbols
        for name in free if len(free) == 1 else ():
            add = self._addend(value.symbol, name)
            if add is not None and (name not in self._data or value.symbol == name):
                self._data[name] = DataInt(tensor, -add)

    def _addend(self, text: str, name: str) -> int | None:
        """n, if an expression is the symbol `name` plus n."""
        add = symbols.evaluate(text, {**self._env, name: 0})
        one = symbols.evaluate(text, {**self._env, name: 1})
        return add if one == add + 1 else None

    def _output(self, value: ir.Value) -> Output:
        """A value as an output of its live shape, without an epilogue."""
        shape = tuple(symbols.evaluate(dim, self._env) for dim in value.shape)
        if any(extent < 0 for extent in shape):
            raise InvalidInput(f"{value.name} must have sizes >= 0, got {list(shape)}")
        if any(extent > bound for extent, bound in zip(shape, value.bound)):
            # Buffers are as large as the bounds.
            raise InvalidInput(
                f"{value.name} must have sizes of at most {list(value.bound)},"
                f" got {list(shape)}"
            )
        if value.dtype is DType.FLOAT64:
            raise Unsupported("a tensor must not be float64, got float64")
        return self._g.output(shape, value.dtype, math.prod(value.bound))

    # -- one call ------------------------------------------------------------------

    def _lower(self, index: int, call: ir.Call) -> None:
        found = registry.known(call.op)
        g = self._g
        g.begin(CallContext(index, call.op, self._overwritable(index, call)))
        outs = self._outs(index, call)
        args = [
            self._resolve(arg, position in found.data_ints)
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
        for value, out in zip(call.outputs, outs):
            if out.written is None:
                if out.needed:
                    raise AssertionError(f"{call.op}: an output must be written")
                continue
            if index not in self._facts.deferred:
                g.settle(out.tensor)
            self._add(value, out.tensor)

    def _add(self, value: int, tensor: Tensor) -> None:
        self._tensors[value] = tensor
        if tensor.is_state and tensor.store is not None:
            self._held_in[tensor.store].append(value)

    def _overwritable(self, index: int, call: ir.Call) -> frozenset[Store]:
        """States that this call replaces and nothing reads later."""
        last_use = self._facts.last_use
        replaced = {
            self._tensors[state].store
            for value in call.outputs
            for state in self._replaces.get(value, ())
        }
        return frozenset(
            store
            for store in replaced
            if store is not None
            and all(last_use.get(value, -1) <= index for value in self._held_in[store])
        )

    def _outs(self, index: int, call: ir.Call) -> list[Output]:
        """What the op function is to make."""
        outs = [
            replace(
                self._output(self._graph.values[value]),
                needed=value in self._facts.last_use,
            )
            for value in call.outputs
        ]
        first = outs[0]
        if call.post:
            assert call.result is not None
            epilogue = self._epilogue(call.post, first.dtype)
            first = replace(first, dtype=call.result, epilogue=epilogue)
        if index in self._wholes:
            first.becomes(self._g.over(first, self._wholes[index]))
        reads = self._facts.deferred.get(index, 0)
        outs[0] = replace(first, reads=reads, place=self._place(index))
        return outs

    def _epilogue(self, steps: Sequence[ir.Step], dtype: DType) -> Epilogue:
        def live(arg: ir.Arg) -> ir.Arg:
            if isinstance(arg, ir.Expr):
                return symbols.evaluate(arg.text, self._env)
            return arg

        keys = sorted(set(ir.step_inputs(steps)))
        operands = {key: self._tensors[key] for key in keys}
        return Epilogue(tuple(s.map_args(live) for s in steps), operands, dtype)

    def _place(self, index: int) -> Place | None:
        """The place of a call's output in a concatenation's buffer; None if it has a
        buffer of its own."""
        target = self._facts.placed.get(index)
        if target is None:
            return None
        if target not in self._places:
            self._places[target] = self._places_in(self._graph.calls[target])
        found = self._places[target].get(self._graph.calls[index].outputs[0])
        if found is not None:
            self._wholes[target] = found.store
        return found

    def _places_in(self, call: ir.Call) -> dict[int, Place]:
        """The places of a concatenation's inputs; none if it is too large to bind,
        because it is then written window by window."""
        value = self._graph.values[call.outputs[0]]
        whole = self._output(value)
        if self._g.is_large(whole):
            return {}
        inputs = list(ir.refs(call.args[0]))
        dims = call.args[1] if len(call.args) > 1 else 0
        assert isinstance(dims, int)
        dim = whole.dim(dims)
        made = places(
            Store(Role.SCRATCH, self._g.buffer_bytes(whole)),
            dim,
            [self._output(self._graph.values[each]).shape for each in inputs],
            whole.shape,
            all(extent == 1 for extent in value.shape[:dim]),
        )
        return dict(zip(inputs, made))

    def _resolve(self, arg: ir.Arg, may_be_data: bool) -> Any:
        match arg:
            case ir.Ref(id=value):
                return self._tensors[value]
            case ir.Expr(text=text):
                free = symbols.names(text) & self._data.keys()
                if not free:
                    return symbols.evaluate(text, self._env)
                if may_be_data and len(free) == 1:
                    (name,) = free
                    add = self._addend(text, name)
                    if add is not None:
                        base = self._data[name]
                        return DataInt(base.tensor, base.add + add)
                raise Unsupported(
                    f"an integer must not depend on data here, got {text}"
                )
            case list():
                return [self._resolve(item, False) for item in arg]
        return arg

    # -- after the last call -------------------------------------------------------

    def _result(self, number: int, index: int) -> Tensor:
        """Puts an output's elements into a buffer of its own, in the host's order."""
        tensor = self._tensors[index]
        order = self._graph.values[index].dim_order or tuple(range(tensor.rank))
        view = tensor.permute(order)
        store = tensor.store
        if store is not None and view.is_contiguous:
            whole = store.role is Role.SCRATCH and store.size == tensor.bytes
            if whole or store in self._outputs:
                made = Store(Role.OUTPUT, store.size, f"out{number}")
                self._outputs.setdefault(store, made)
                return tensor
        out = self._g.output(view.shape, tensor.dtype, tensor.bound)
        copied = self._held(out, Role.OUTPUT, f"out{number}")
        self._g.copy(view, copied)
        return replace(copied, shape=tensor.shape)

    def _store_states(self) -> None:
        """Copies the new content of every state that was not updated in place."""
        g, pending = self._g, []
        for state, value in self._graph.mutations.items():
            target, result = self._tensors[state], self._tensors[value]
            if result.store is target.store and result.is_contiguous:
                continue
            if result.is_state:
                # Another state's content, which may be overwritten first.
                copied = g.temp(result.shape, result.dtype)
                g.copy(result, copied)
                result = copied
            pending.append((result, target))
        for result, target in pending:
            g.copy(result, target)


def _fitting(g: Recorder, arg: Any) -> Any:
    """A resolved argument; a tensor is made to fit a binding, if it can be."""
    return g.fitting(arg) if isinstance(arg, Tensor) else arg


def _dim_order_strides(
    shape: Sequence[int], dim_order: Sequence[int]
) -> tuple[int, ...]:
    """Strides of a tensor whose dimensions are stored in the given order."""
    if not dim_order:
        return row_major(shape)
    packed = row_major([shape[dim] for dim in dim_order])
    strides = [0] * len(shape)
    for position, dim in enumerate(dim_order):
        strides[dim] = packed[position]
    return tuple(strides)
