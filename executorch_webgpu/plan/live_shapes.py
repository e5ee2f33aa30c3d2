"""Live shapes -> the values of a graph's symbols, checked against what was exported.

A symbol that decides a shape, or an argument that must be known to plan, is a shape
symbol. An integer input with another symbol is data: kernels read it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import ir
from ..errors import InvalidInput
from ..ir import symbols
from . import registry

Live = tuple[int, ...] | int  # a tensor's shape or an integer's value


class LiveShapes:
    """The symbols of one graph."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self.shape_symbols = _shape_symbols(graph)

    def bind(self, inputs: Sequence[Live]) -> dict[str, int]:
        """The symbols' values; InvalidInput if a shape was not exported."""
        values = [self._graph.values[index] for index in self._graph.inputs]
        if len(inputs) != len(values):
            raise InvalidInput(f"inputs must be {len(values)}, got {len(inputs)}")
        equations: list[tuple[ir.Dim, int]] = []
        for value, live in zip(values, inputs):
            if isinstance(live, int):
                if self.is_data(value):
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
            _check_shape(value, live, env)
        return env

    def accepted(self) -> dict[str, tuple[int, int]]:
        """The lower and upper bound of each symbol's live value.

        torch.export specializes sizes of 0 and 1, and so gives a lower bound of 2
        where 1 was asked for. Support is checked from 2 on, because an op may take the
        second of n elements; to most kernels 1 is as good as any.
        """
        return {
            name: (1 if low == 2 and high > 1 else low, high)
            for name, (low, high) in self._graph.symbols.items()
        }

    def is_data(self, value: ir.Value) -> bool:
        """Whether an integer input is data for kernels, and decides no shape."""
        return value.is_int and not symbols.names(value.symbol) <= self.shape_symbols


def _check_shape(value: ir.Value, live: Live, env: dict[str, int]) -> None:
    if isinstance(live, int):
        return
    expected = tuple(symbols.evaluate(dim, env) for dim in value.shape)
    if expected != live:
        raise InvalidInput(
            f"input {value.name} must have shape {shape_text(value)}, got {list(live)}"
        )


def shape_text(value: ir.Value) -> str:
    """The shape of an input, for messages."""
    return f"{list(value.shape)} (up to {list(value.bound)})"


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
