"""The delegated subgraph as plain data: values and op calls over them.

`fx_to_ir.py` makes it from an FX graph, `passes/` rewrite it, `serialize.py` turns
it into bytes and back, `plan/planner.py` plans it. Nothing here knows any op, torch
or the GPU. Sizes may be expressions over named symbols (`symbols.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar, overload

from .dtypes import DType

T = TypeVar("T")

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
    """The result of an earlier step of the same elementwise program."""

    step: int


# Lists nest; what an op receives is what ATen's schema says.
Leaf: TypeAlias = bool | int | float | str | DType | Ref | Expr | Local | None
Arg: TypeAlias = "Leaf | list[Arg]"


@dataclass(frozen=True)
class Step:
    """One op of an elementwise program; its operands are refs, locals, scalars."""

    op: str
    args: list[Arg]
    dtype: DType

    def map_args(self, function: Callable[[Leaf], Arg]) -> Step:
        """The step with `function` applied to each argument and item of a list."""
        return replace(self, args=map_arg(self.args, function))


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
    # The epilogue: steps applied to the first output before it is stored. Local(-1) is
    # the op's own result, which has the type `result`; Local(-2) is its second one, of
    # the same type, where an op has two for each element.
    post: list[Step] = field(default_factory=list)
    result: DType | None = None

    def map_args(self, function: Callable[[Leaf], Arg]) -> Call:
        """The call with `function` applied to each argument, those of its steps too."""
        post = [step.map_args(function) for step in self.post]
        return replace(self, args=map_arg(self.args, function), post=post)


@dataclass
class Graph:
    """One partition; `inputs` and `outputs` are in the order of the delegate call."""

    values: list[Value] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    # State value -> the value that is its content after the call.
    mutations: dict[int, int] = field(default_factory=dict)
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    # At export: values that a pass found to equal others, which took their place.
    renamed: dict[int, int] = field(default_factory=dict, compare=False)
    # From a file, which anybody may have written.
    is_loaded: bool = field(default=False, compare=False)

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1


@overload
def map_arg(arg: list[Arg], function: Callable[[Leaf], T]) -> list[Any]: ...
@overload
def map_arg(arg: Arg, function: Callable[[Leaf], T]) -> T | list[Any]: ...
def map_arg(arg: Arg, function: Callable[[Leaf], T]) -> T | list[Any]:
    """The argument with `function` applied to it or, in lists, to every item."""
    if isinstance(arg, list):
        return [map_arg(item, function) for item in arg]
    return function(arg)


def leaves(arg: Arg) -> Iterator[Leaf]:
    """The argument itself or, of nested lists, every item that is no list."""
    if isinstance(arg, list):
        for item in arg:
            yield from leaves(item)
    else:
        yield arg


def refs(arg: Arg) -> Iterator[int]:
    """The ids of all values that an argument refers to."""
    return (leaf.id for leaf in leaves(arg) if isinstance(leaf, Ref))


def step_inputs(steps: Iterable[Step]) -> Iterator[int]:
    """The ids of all values that fused steps read."""
    for step in steps:
        yield from refs(step.args)


def call_inputs(call: Call) -> Iterator[int]:
    """The ids of all values that a call reads, those of its epilogue too."""
    yield from refs(call.args)
    yield from step_inputs(call.post)


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
