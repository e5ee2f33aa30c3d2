"""The delegated subgraph as plain data: values and op calls over them.

`fx_to_ir.py` makes it from an FX graph, `passes/` rewrite it, `serialize.py` turns
it into bytes and back, `recorder.py` runs it. Nothing here knows any op, torch or
the GPU. Sizes may be expressions over named symbols (`symbols.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from .dtypes import DType

# An extent is a number, or an expression over the graph's symbols.
Dim: TypeAlias = "int | str"


@dataclass(frozen=True)
class Ref:
    """An argument that is a value of the graph."""

    id: int


@dataclass(frozen=True)
class Expr:
    """An integer argument computed from symbols, such as `s0 * 2`."""

    text: str


@dataclass(frozen=True)
class Local:
    """The result of an earlier step of the same fused program."""

    step: int


# Lists nest; what an op receives is what ATen's schema says.
Arg: TypeAlias = (
    "bool | int | float | str | DType | Ref | Expr | Local | list[Arg] | None"
)


@dataclass(frozen=True)
class Step:
    """One pointwise op of a fused program; its operands are refs, locals, scalars."""

    op: str
    args: list[Arg]
    dtype: DType


@dataclass
class Value:
    """A tensor, or an integer that is an input or, as a size, an output."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    bound: tuple[int, ...]  # the largest extents
    dim_order: tuple[int, ...] = ()  # empty: row-major
    is_int: bool = False
    symbol: str = ""  # is_int: the expression that the integer is
    # Where the content comes from; both empty for what a call computes.
    data_key: str = ""  # a constant, or the initial content of a state
    state: str = ""  # the name of a buffer that lives across calls

    @property
    def is_constant(self) -> bool:
        return bool(self.data_key) and not self.state


@dataclass
class Call:
    """One op: its arguments in schema order and the values it defines."""

    op: str
    args: list[Arg]
    outputs: list[int]
    # Pointwise steps applied to the first output as it is stored. Local(-1) is
    # the op's own result, which has the type `result`; Local(-2) is its second
    # one, of the same type, where an op has two for each element.
    post: list[Step] = field(default_factory=list)
    result: DType | None = None


@dataclass
class Graph:
    """All of it; `inputs` and `outputs` are in the order of the delegate call."""

    values: list[Value] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    # state value -> value that replaces its content when the call is over
    mutations: dict[int, int] = field(default_factory=dict)
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1


def refs(arg: Arg) -> Iterator[int]:
    """The ids of all values that an argument refers to."""
    if isinstance(arg, Ref):
        yield arg.id
    elif isinstance(arg, list):
        for item in arg:
            yield from refs(item)


def call_inputs(call: Call) -> Iterator[int]:
    """The ids of all values that a call reads, those of its fused steps too."""
    for arg in call.args:
        yield from refs(arg)
    for step in call.post:
        for arg in step.args:
            yield from refs(arg)


def uses(graph: Graph) -> dict[int, int]:
    """How often each value is read, by calls, as an output or as a new state."""
    count: dict[int, int] = dict.fromkeys(range(len(graph.values)), 0)
    for call in graph.calls:
        for value in call_inputs(call):
            count[value] += 1
    for value in graph.outputs:
        count[value] += 1
    for value in graph.mutations.values():
        count[value] += 1
    return count
