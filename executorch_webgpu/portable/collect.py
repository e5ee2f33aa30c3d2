"""Variants for a few kinds of devices -> the tables that a file holds.

Everything is there once: equal expressions are one register, equal lines of kernels one
line, equal dispatches of all variants one dispatch. So what many variants cost is
little more than a list of numbers for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from .. import ir
from ..errors import Unsupported
from ..ir.dtypes import is_converted
from ..ir.named_data import content_key
from ..ir.serialize import WRITER
from ..ir.symbols import evaluate, names
from ..plan import plan as planned
from ..plan import variant
from ..plan.caps import Caps
from ..plan.constant_data import elements
from ..plan.live_shapes import shape_text
from ..plan.plan import Part
from ..plan.planner import Planner
from ..plan.size_code import Instruction, SizeCode
from ..plan.tensor import buffer_bytes
from ..plan.traced_int import Trace, TracedInt
from ..plan.variants import Cover, Refused, cover
from .plans import (
    Buffer,
    Constant,
    Dispatch,
    Guard,
    Kernel,
    Limit,
    Operation,
    Plans,
    Port,
    Profile,
    Register,
    Symbol,
    Variant,
)
from .stored_constants import LEAST, as_stored, packed

GetData = Callable[[str], Any]  # the bytes of named data by key

T = TypeVar("T", bound=Hashable)


@dataclass
class Collected:
    """The plans of a graph, the data that they need beside the graph's, by key, and for
    each profile the sizes that are not served."""

    plans: Plans
    data: dict[str, np.ndarray] = field(default_factory=dict)
    refused: dict[str, tuple[Refused, ...]] = field(default_factory=dict)
    # Of constants that no kernel binds as the graph has them, what kernels bind.
    parts: dict[str, tuple[Part, ...]] = field(default_factory=dict)


def collect(graph: ir.Graph, profiles: Iterable[Caps], get_data: GetData) -> Collected:
    """The plans of a graph; Unsupported if a player could not find its sizes."""
    tables = _Tables(graph, get_data)
    # Those of CPUs last, which take constants as the others have them.
    for caps in sorted(profiles, key=lambda each: each.is_cpu):
        tables.add(caps)
    return Collected(tables.plans(), tables.data, tables.refused, tables.parts())


class _Table(Generic[T]):
    """Rows, each once, numbered in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}

    def index(self, row: T) -> int:
        return self._numbers.setdefault(row, len(self._numbers))

    @property
    def rows(self) -> tuple[T, ...]:
        return tuple(self._numbers)


class _Tables:
    def __init__(self, graph: ir.Graph, get_data: GetData) -> None:
        self._graph = graph
        self._get_data = get_data
        self._symbols: tuple[Symbol, ...] = ()
        self._code: SizeCode | None = None
        self._lines: _Table[str] = _Table()
        self._kernels: _Table[Kernel] = _Table()
        self._buffers: _Table[Buffer] = _Table()
        self._constants: _Table[Constant] = _Table()
        self._ports: _Table[Port] = _Table()
        self._dispatches: _Table[Dispatch] = _Table()
        self._profiles: list[Profile] = []
        self.data: dict[str, np.ndarray] = {}
        self.refused: dict[str, tuple[Refused, ...]] = {}
        # What was packed already: the same for all variants.
        self._packed: dict[object, Part] = {}
        # What is packed of each constant, and which are bound as they are, too.
        self._parts: dict[str, list[Part]] = {}
        self._plain: set[str] = set()

    @property
    def code(self) -> SizeCode:
        assert self._code is not None
        return self._code

    def add(self, caps: Caps) -> None:
        """Adds the plans for one kind of device."""
        planner = Planner(self._graph, caps)
        if self._code is None:
            self._symbols = symbol_sources(self._graph, planner.ranges)
            self._code = SizeCode(planner.ranges)
        found = cover(planner)
        if caps.is_cpu and not self._has_all(found):
            return
        sizes: dict[tuple[planned.Role, str], int] = {}
        for each in found.variants:
            for buffer in each.plan.buffers:
                name = (buffer.role, buffer.key)
                sizes[name] = max(sizes.get(name, 0), buffer.size)
        profile = Profile(
            caps.name,
            caps.f16,
            caps.subgroups,
            caps.max_storage_buffers,
            caps.max_binding,
            caps.max_buffer,
            caps.max_workgroups,
            caps.max_invocations,
            caps.workgroup_memory,
            caps.offset_align,
            tuple(self._variant(each, sizes) for each in found.variants),
            caps.is_cpu,
        )
        self.refused[caps.name] = found.refused
        same = [p for p in self._profiles if p.variants == profile.variants]
        if caps.is_cpu:
            if len(same) < len(self._profiles):
                self._profiles.insert(0, profile)
            return
        for before in same:
            # What it asks for beyond this one is of no use.
            self._profiles.remove(before)
        self._profiles.append(profile)

    def _has_all(self, found: Cover) -> bool:
        """Whether a file would hold no constant twice because of these variants, and
        they serve all sizes: then, and only then, they are worth having."""
        made = (one for each in found.variants for one in each.plan.constants)
        return not found.refused and all(map(self._has, made))

    def _has(self, made: planned.Constant) -> bool:
        if buffer_bytes(math.prod(made.shape), made.storage) < LEAST:
            return True
        if made.packing or made.view or not is_converted(made.dtype, made.storage):
            return self._what(made) in self._packed
        return made.data_key in self._plain or made.data_key not in self._parts

    def _variant(
        self, each: variant.Variant, sizes: Mapping[tuple[planned.Role, str], int]
    ) -> Variant:
        plan = each.plan
        places = self._absorb(each.code)
        decided = self._absorb(each.decides)

        def register(number: int) -> Register:
            if isinstance(number, TracedInt):
                return places[each.places[number.register]]
            return self.code.number(number)

        buffers = [
            self._buffers.index(Buffer(b.role, sizes[b.role, b.key], b.key))
            if b.role is not planned.Role.PARAMS
            else -1
            for b in plan.buffers
        ]
        for constant in plan.constants:
            self._constants.index(self._constant(constant, buffers))
        ports = _Ports(self._graph, buffers, register)
        inputs = zip(self._graph.inputs, plan.inputs)
        return Variant(
            tuple(
                Guard(decided[at], *span) for at, span in sorted(each.guards.items())
            ),
            self._launched(plan, buffers, register),
            tuple(self._ports.index(ports.input(*pair)) for pair in inputs),
            tuple(self._ports.index(ports.output(port)) for port in plan.outputs),
            buffers[plan.status] if plan.status >= 0 else -1,
        )

    def _absorb(self, code: SizeCode) -> list[Register]:
        """The registers of a variant's code among those of all."""
        places: list[Register] = []
        for each in code.instructions:
            if each.operator:
                left, right = places[each.left], places[each.right]
                each = Instruction(each.operator, left, right)
            places.append(self.code.add(each))
        return places

    def _launched(
        self,
        plan: planned.Plan,
        buffers: Sequence[int],
        register: Callable[[int], Register],
    ) -> tuple[int, ...]:
        kernels = [self._kernels.index(self._kernel(each)) for each in plan.pipelines]
        traced = dict(plan.sizes)
        words = memoryview(plan.params).cast("I")
        made = []
        for step in plan.dispatches:
            first = max(step.params, 0) // 4
            params = range(first, first + max(step.params_size, 0) // 4)
            bound = [buffers[index] for index in step.buffers]
            if params:
                assert bound.pop() == -1
            # Of a buffer that is bound whole, its size.
            ranges = [
                number
                for at, index in enumerate(bound if any(step.ranges) else ())
                for number in step.bound(at, self._buffers.rows[index].size)
            ]
            x, y, z = map(register, step.groups)
            row = Dispatch(
                kernels[step.pipeline],
                tuple(bound),
                tuple(map(register, ranges)),
                tuple(register(traced.get(4 * at, words[at])) for at in params),
                (x, y, z),
                step.label,
                step.call,
            )
            made.append(self._dispatches.index(row))
        return tuple(made)

    def _kernel(self, pipeline: planned.Pipeline) -> Kernel:
        text = pipeline.wgsl.split("\n")
        # In code: comments may speak of them in kernels that do without.
        has_subgroups = any("subgroup" in line.partition("//")[0] for line in text)
        lines = tuple(map(self._lines.index, text))
        return Kernel(pipeline.label, lines, pipeline.access, has_subgroups)

    def _constant(self, made: planned.Constant, buffers: Sequence[int]) -> Constant:
        held: planned.Constant | Part = made
        if made.packing or made.view or not is_converted(made.dtype, made.storage):
            held = self._as_bound(made)
        else:
            self._plain.add(made.data_key)
        content = (held.data_key, held.dtype, made.storage, held.shape)
        return Constant(buffers[made.buffer], *content)

    def _as_bound(self, made: planned.Constant) -> Part:
        """Data that is in the file as its buffer holds it: a player only copies, and
        converts elements."""
        layout = (made.view, made.packing, made.packing_args)
        what = self._what(made)
        if what not in self._packed:
            found = elements(lambda key: memoryview(self._get_data(key)), made)
            data, dtype = as_stored(packed(found, made), made)
            flat = np.ascontiguousarray(data).reshape(-1)
            key = content_key(dtype, flat.shape, [flat.view(np.uint8).data])
            self.data[key] = flat.view(np.uint8)
            self._packed[what] = Part(key, dtype, flat.shape, *layout)
            self._parts.setdefault(made.data_key, []).append(self._packed[what])
        return self._packed[what]

    def _what(self, made: planned.Constant) -> object:
        is_number = is_converted(made.dtype, made.storage)
        layout = (made.view, made.packing, made.packing_args)
        return (made.data_key, *layout, is_number)

    def parts(self) -> dict[str, tuple[Part, ...]]:
        return {
            key: tuple(parts)
            for key, parts in self._parts.items()
            if key not in self._plain
        }

    def plans(self) -> Plans:
        numbered = _Numbered(self.code, len(self._symbols))
        return Plans(
            self._symbols,
            numbered.literals,
            numbered.operations,
            self._lines.rows,
            self._kernels.rows,
            self._buffers.rows,
            self._constants.rows,
            tuple(map(numbered.port, self._ports.rows)),
            tuple(map(numbered.dispatch, self._dispatches.rows)),
            tuple(map(numbered.profile, self._profiles)),
            WRITER,
        )


class _Ports:
    """Arguments of the call, as rows."""

    def __init__(
        self,
        graph: ir.Graph,
        buffers: Sequence[int],
        register: Callable[[int], Register],
    ) -> None:
        self._graph = graph
        self._buffers = buffers
        self._register = register

    def input(self, number: int, port: planned.Port) -> Port:
        value = self._graph.values[number]
        return self._port(port, "" if value.is_int else shape_text(value))

    def output(self, port: planned.Port) -> Port:
        return self._port(port, "")

    def _port(self, port: planned.Port, wanted: str) -> Port:
        register = self._register
        return Port(
            port.name,
            port.kind is planned.PortKind.INT,
            self._buffers[port.buffer] if port.buffer >= 0 else -1,
            port.dtype,
            port.storage,
            tuple(map(register, port.shape)),
            register(port.value),
            tuple(
                Limit(
                    each.label,
                    register(each.add),
                    register(each.count),
                    register(each.length),
                )
                for each in port.limits
            ),
            wanted,
        )


class _Numbered:
    """Registers as a file numbers them: symbols, literals, results of the code."""

    def __init__(self, code: SizeCode, symbols: int) -> None:
        numbers = [
            (register, each.number)
            for register, each in enumerate(code.instructions)
            if each.number is not None
        ]
        self.literals = tuple(number for _, number in numbers)
        self._at = {register: register for register in range(symbols)}
        for place, (register, _) in enumerate(numbers):
            self._at[register] = symbols + place
        operations: list[Operation] = []
        for register, each in enumerate(code.instructions):
            if each.operator:
                left, right = self._at[each.left], self._at[each.right]
                self._at[register] = symbols + len(numbers) + len(operations)
                operations.append((each.operator, left, right))
        self.operations = tuple(operations)

    def port(self, row: Port) -> Port:
        at = self._at
        limits = tuple(
            Limit(each.label, at[each.add], at[each.count], at[each.length])
            for each in row.limits
        )
        shape = tuple(at[each] for each in row.shape)
        return replace(row, shape=shape, value=at[row.value], limits=limits)

    def dispatch(self, row: Dispatch) -> Dispatch:
        at = self._at
        x, y, z = (at[each] for each in row.groups)
        ranges = tuple(at[each] for each in row.ranges)
        params = tuple(at[each] for each in row.params)
        return replace(row, ranges=ranges, params=params, groups=(x, y, z))

    def profile(self, row: Profile) -> Profile:
        return replace(row, variants=tuple(map(self._variant, row.variants)))

    def _variant(self, row: Variant) -> Variant:
        guards = tuple(replace(g, register=self._at[g.register]) for g in row.guards)
        return replace(row, guards=guards)


def symbol_sources(
    graph: ir.Graph, ranges: Mapping[str, tuple[int, int]]
) -> tuple[Symbol, ...]:
    """Where the inputs have each symbol; Unsupported if one is in none, or only inside
    an expression that a player would have to solve."""
    found: dict[str, Symbol] = {}
    for name, (low, high) in ranges.items():
        for number, index in enumerate(graph.inputs):
            value = graph.values[index]
            dims = [(-1, value.symbol)] if value.is_int else [*enumerate(value.shape)]
            for dim, text in dims:
                line = _line(text, name) if isinstance(text, str) else None
                if line is not None:
                    made = Symbol(name, low, high, number, dim, *line)
                    best = found.get(name)
                    if best is None or (best.divisor, best.offset) != (1, 0):
                        found[name] = made
        if name not in found:
            raise Unsupported(
                f"size {name} must be an extent of an input, or one times a number plus"
                " a number, to be found without Python, got neither"
            )
    return tuple(found.values())


def _line(text: str, name: str) -> tuple[int, int] | None:
    """Divisor and offset if an expression is `name * divisor + offset`."""
    if names(text) != {name}:
        return None
    trace = Trace({name: 2}, {name: (1, 1 << 30)}, {name: np.arange(1, 3)})
    size = evaluate(text, trace.env)
    if not isinstance(size, TracedInt) or trace.guards:
        return None
    register, found = size.register, {"*": 1, "+": 0}
    for operator in ("+", "*"):
        each = trace.code.instructions[register]
        number = trace.code.constant(each.right) if each.operator else None
        if each.operator == operator and number is not None:
            found[operator], register = number, each.left
    is_line = trace.code.instructions[register].symbol == name and found["*"] > 0
    return (found["*"], found["+"]) if is_line else None
