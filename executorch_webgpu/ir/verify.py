"""What a graph from a file must be before anything uses it.

`serialize.py` made plain data of bytes that anybody may have written. Behind `verify`
every id is in range and defined before it is used, every size is within its bound, and
everything is of a limited number. What an op demands of its arguments is checked by
`plan/load_graph.py`, which knows the ops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import InvalidBlob, InvalidInput
from . import symbols
from .dtypes import DType
from .expressions import cut
from .graph import Arg, Call, Dim, Expr, Graph, Leaf, Local, Ref, Value, leaves

MAX_VALUES = 1 << 18
MAX_CALLS = 1 << 17
MAX_SYMBOLS = 1 << 10
MAX_RANK = 64  # torch's own
MAX_ELEMENTS = 1 << 30  # of one value: an index and a loop's step add up to an i32
MAX_TOTAL_BYTES = 1 << 42  # of all values, each counted as if it had a buffer
MAX_ARGS = 64
# Compilers take time with the square of it: llvmpipe 4 s for 64 checked int64 steps.
MAX_STEPS = 64
MAX_OUTPUTS = 1 << 12  # of one call
MAX_ITEMS = 1 << 16  # of all lists in the arguments of one call
MAX_NAME = 1000  # characters


def verify(graph: Graph) -> None:
    """Raises InvalidBlob, which says what is wrong, unless a graph can be trusted."""
    for what, number, limit in (
        ("values", len(graph.values), MAX_VALUES),
        ("calls", len(graph.calls), MAX_CALLS),
        ("symbols", len(graph.symbols), MAX_SYMBOLS),
        ("inputs", len(graph.inputs), MAX_VALUES),
        ("outputs", len(graph.outputs), MAX_VALUES),
    ):
        _require(number <= limit, "graph", f"must have at most {limit} {what}", number)
    for name, (low, high) in graph.symbols.items():
        _check_name("symbol", name)
        _require(name.isidentifier(), f"symbol {name!r}", "must be an identifier", name)
        met = -(2**31) <= low <= high < 2**31
        _require(met, f"symbol {name}", "must have a range within int32", (low, high))
    _check_values(graph)
    _check_calls(graph, _given(graph))


def _require(met: bool, who: str, requirement: str, got: object) -> None:
    if not met:
        raise InvalidBlob(f"{who}: {requirement}, got {cut(str(got))}")


def _check_name(who: str, name: str) -> None:
    """Names come up in logs: no control character may."""
    met = len(name) <= MAX_NAME and name.isprintable()
    if not met:
        raise InvalidBlob(
            f"{who}: a name must have at most {MAX_NAME} characters, all printable,"
            f" got {cut(name)!r} ({len(name)})"
        )


# -- values ------------------------------------------------------------------------


def _check_values(graph: Graph) -> None:
    total = 0
    sizes = _Sizes(graph)
    states: set[str] = set()
    for index, value in enumerate(graph.values):
        for name in (value.name, value.data_key, value.state):
            _check_name(f"value {index}", name)
        who = f"value {index} ({value.name})"
        _check_layout(who, value)
        if value.is_int:
            _check_integer(graph, who, value)
            continue
        _require(not value.symbol, who, "a tensor must have no symbol", value.symbol)
        for dim, bound in zip(value.shape, value.bound):
            sizes.check(who, dim, bound)
        if value.data_key or value.state:
            fixed = all(isinstance(dim, int) for dim in value.shape)
            _require(fixed, who, "a constant must have sizes in numbers", value.shape)
        if value.state:
            met = value.state not in states
            _require(met, who, "a state must be declared once", value.state)
            states.add(value.state)
        total += math.prod(value.bound) * value.dtype.size
    met = total <= MAX_TOTAL_BYTES
    _require(met, "graph", f"values must have at most {MAX_TOTAL_BYTES} bytes", total)


def _check_layout(who: str, value: Value) -> None:
    rank = len(value.shape)
    _require(rank <= MAX_RANK, who, f"must have at most {MAX_RANK} dimensions", rank)
    met = len(value.bound) == rank
    _require(met, who, f"must have {rank} upper bounds", value.bound)
    met = not value.dim_order or sorted(value.dim_order) == list(range(rank))
    _require(met, who, f"must have an order of {rank} dimensions", value.dim_order)
    met = all(bound >= 0 for bound in value.bound)
    _require(met, who, "must have upper bounds >= 0", value.bound)
    numel = math.prod(max(bound, 1) for bound in value.bound)
    _require(numel <= MAX_ELEMENTS, who, f"must have <= {MAX_ELEMENTS} elements", numel)


def _check_integer(graph: Graph, who: str, value: Value) -> None:
    _require(not value.shape, who, "an integer must have no dimension", value.shape)
    met = value.dtype is DType.INT64
    _require(met, who, "an integer must be of int64", value.dtype.label)
    held = value.data_key or value.state
    _require(not held, who, "an integer must be no constant and no state", held)
    _check_symbols(graph, who, value.symbol)


class _Sizes:
    """The sizes of a graph, each of which is checked once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._largest = {name: high for name, (_, high) in graph.symbols.items()}
        self._visits = symbols.Visits()
        self._checked: set[tuple[str, int]] = set()

    def check(self, who: str, dim: Dim, bound: int) -> None:
        """An extent must be between 0 and its bound.

        Where the largest value of an expression is too expensive to find, the sizes of
        each call are compared as it is planned (`plan/lower_calls.py`).
        """
        if isinstance(dim, int):
            _require(0 <= dim <= bound, who, f"a size must be in [0, {bound}]", dim)
            return
        if (dim, bound) in self._checked:
            return
        _check_symbols(self._graph, who, dim)
        try:
            found = symbols.excess(dim, self._graph.symbols, bound, self._visits)
            if found is None and symbols.evaluate(dim, self._largest) < 0:
                found = self._largest
        except (InvalidBlob, InvalidInput) as error:
            raise InvalidBlob(f"{who}: {error}") from None
        got = "" if found is None else f"{symbols.evaluate(dim, found)} for {found}"
        _require(not got, who, f"size {cut(dim)} must be in [0, {bound}]", got)
        self._checked.add((dim, bound))


def _check_symbols(graph: Graph, who: str, text: str) -> None:
    """An expression must parse, and its symbols be declared."""
    try:
        unknown = symbols.names(text) - graph.symbols.keys()
    except InvalidBlob as error:
        raise InvalidBlob(f"{who}: {error}") from None
    _require(not unknown, who, "symbols must be declared", sorted(unknown))


# -- definitions and uses ----------------------------------------------------------


def _given(graph: Graph) -> set[int]:
    """The values that are there before the first call."""
    held = {i for i, value in enumerate(graph.values) if value.data_key or value.state}
    given = set(held)
    for index in graph.inputs:
        _check_id(graph, "graph", "an input", index)
        _require(index not in given, "graph", "an input must be defined once", index)
        given.add(index)
    return given


def _check_calls(graph: Graph, defined: set[int]) -> None:
    for number, call in enumerate(graph.calls):
        _check_name(f"call {number}", call.op)
        who = f"call {number} ({call.op})"
        count = len(call.outputs)
        met = 1 <= count <= MAX_OUTPUTS
        _require(met, who, f"must have 1 to {MAX_OUTPUTS} outputs", count)
        check = _Arguments(graph, who, defined)
        check.all(call.args, None)
        check.steps(call)
        for index in call.outputs:
            _check_id(graph, who, "an output", index)
            met = index not in defined and not graph.values[index].is_int
            _require(met, who, "an output must be a tensor defined once", index)
            defined.add(index)
        if call.post:
            wanted, last = graph.values[call.outputs[0]].dtype, call.post[-1].dtype
            met = last is wanted
            _require(met, who, f"the last step must make {wanted.label}", last.label)
    for index in graph.outputs:
        _check_id(graph, "graph", "an output", index)
        met = index in defined or graph.values[index].is_int
        _require(met, "graph", "an output must be defined", index)
    for state, index in graph.mutations.items():
        _check_mutation(graph, state, index, defined)


def _check_mutation(graph: Graph, state: int, index: int, defined: set[int]) -> None:
    _check_id(graph, "graph", "a mutated state", state)
    old = graph.values[state]
    _require(bool(old.state), "graph", "a mutated value must be a state", state)
    _require(index in defined, old.state, "a state's content must be defined", index)
    new = graph.values[index]
    met = (new.shape, new.dtype, new.is_int) == (old.shape, old.dtype, False)
    wanted = f"a state's content must be {old.dtype.label} of {list(old.shape)}"
    _require(met, old.state, wanted, f"{new.dtype.label} of {list(new.shape)}")


def _check_id(graph: Graph, who: str, what: str, index: int) -> None:
    met = 0 <= index < len(graph.values)
    _require(met, who, f"{what} must be one of {len(graph.values)} values", index)


class _Arguments:
    """The arguments of one call."""

    def __init__(self, graph: Graph, who: str, defined: set[int]) -> None:
        self._graph = graph
        self._who = who
        self._defined = defined

    def all(self, args: Sequence[Arg], step: int | None) -> None:
        """Arguments of the call, or of a step of its elementwise program."""
        met = len(args) <= MAX_ARGS
        _require(met, self._who, f"must have at most {MAX_ARGS} arguments", len(args))
        items = 0
        for arg in args:
            for leaf in leaves(arg):
                items += 1
                self._leaf(leaf, step)
        _require(items <= MAX_ITEMS, self._who, f"items must be <= {MAX_ITEMS}", items)

    def _leaf(self, leaf: Leaf, step: int | None) -> None:
        match leaf:
            case Ref(id=index):
                met = index in self._defined and not self._graph.values[index].is_int
                _require(met, self._who, "a tensor must be defined before", index)
            case Local(step=index):
                met = step is not None and -2 <= index < step
                _require(met, self._who, "a step must read an earlier one", index)
            case Expr(text=text):
                _check_symbols(self._graph, self._who, text)
            case str():
                _check_name(self._who, leaf)

    def steps(self, call: Call) -> None:
        """The elementwise program after a call, whose result has the call's type."""
        count = len(call.post)
        met = count <= MAX_STEPS
        _require(met, self._who, f"must have at most {MAX_STEPS} steps", count)
        if (call.result is None) != (not call.post):
            got = "none" if call.result is None else call.result.label
            _require(False, self._who, "steps must follow a result with a type", got)
        for number, step in enumerate(call.post):
            _check_name(self._who, step.op)
            self.all(step.args, number)
