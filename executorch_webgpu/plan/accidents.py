"""Accidents in planning, such as an index out of range, as errors of the file.

Op functions are written for graphs that export makes, whose shapes fit each other. In a
graph from a file they need not, and then an op function may fail in any way that Python
can. At export such an accident is a bug, and stays one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from .. import ir
from ..errors import InvalidBlob

_ACCIDENTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
    struct.error,
)


@contextmanager
def accidents_in(graph: ir.Graph, call: int | None = None) -> Iterator[None]:
    """Makes an accident, within a call or between them, an InvalidBlob if the graph is
    from a file."""
    try:
        yield
    except _ACCIDENTS as error:
        if not graph.is_loaded:
            raise
        got = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise InvalidBlob(
            f"{_described(graph, call)} must be as export makes it, got {got[:200]}"
        ) from error


def _described(graph: ir.Graph, number: int | None) -> str:
    """A call with the types and shapes of what it reads and makes."""
    if number is None:
        return f"a graph of {len(graph.calls)} calls"
    call = graph.calls[number]

    def listed(indices: list[int]) -> str:
        values = [graph.values[index] for index in indices[:8]]
        texts = [f"{value.dtype.label}{list(value.shape)}" for value in values]
        return ", ".join(texts + ["..."] * (len(indices) > 8))

    return (
        f"call {number} ({call.op}: {listed(list(ir.call_inputs(call)))}"
        f" -> {listed(call.outputs)})"
    )
