"""Which nodes have int64 results that do not fit 32 bits, as far as constants show.

Enters a program's graph. Leaves the nodes whose int64 results do not fit the 32 bits
that the GPU holds: constants, results of constants alone, results of ops that take a
number beyond int32, and all int64 that is computed from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from .constants import wide_element
from .fx import program_constants

_LOW, _HIGH = -(2**31), 2**31 - 1
# Elements up to which a constant expression is evaluated, of integers and others.
_FEW_INTEGERS, _FEW = 1 << 22, 1 << 16


def integers(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The integer constants, by placeholder, whose values are at hand."""
    return {
        name: value
        for name, value in program_constants.at_hand(program).items()
        if not value.is_floating_point()
    }


def beyond_int32(
    graph: Graph,
    given: dict[str, torch.Tensor],
    is_refused: Callable[[Node], bool],
) -> dict[Node, int]:
    """A value that does not fit, by node.

    `given` are those of the graph's inputs whose values are known. `is_refused` is
    asked about nodes with a number beyond int32 among their arguments: some, such as a
    clamp, can use the nearest that fits.
    """
    known = program_constants.evaluate(graph, given, _FEW_INTEGERS, _FEW)
    # While ExecuTorch traces, torch computes no values.
    with unset_fake_temporarily():
        return _find(graph, known, is_refused)


def _find(
    graph: Graph,
    known: dict[Node, Any],
    is_refused: Callable[[Node], bool],
) -> dict[Node, int]:
    found: dict[Node, int] = {}
    for node in graph.nodes:
        if not _has_int64(node.meta.get("val")):
            continue
        value = _extreme(known.get(node))
        if value is None:
            value = next((found[n] for n in node.all_input_nodes if n in found), None)
        if value is None:
            value = _large_number(node)
            value = value if value is not None and is_refused(node) else None
        if value is not None:
            found[node] = value
    return found


def _extreme(value: Any) -> int | None:
    for result in program_constants.results(value):
        wide = wide_element(result) if isinstance(result, torch.Tensor) else None
        if wide is not None:
            return wide
    return None


def _has_int64(value: Any) -> bool:
    return any(
        isinstance(result, torch.Tensor) and result.dtype is torch.int64
        for result in program_constants.results(value)
    )


def _large_number(node: Node) -> int | None:
    """An integer beyond int32 that an op takes as a value, not as a size."""
    schema = getattr(node.target, "_schema", None)
    for position, formal in enumerate(schema.arguments if schema else ()):
        is_positional = position < len(node.args)
        given = node.args[position] if is_positional else node.kwargs.get(formal.name)
        # A number may also stand for a tensor, which only sizes never do.
        kinds = ("number", "Optional[number]", "Tensor")
        if not isinstance(given, (int, float)) or str(formal.type) not in kinds:
            continue
        if math.isfinite(given) and not _LOW <= given <= _HIGH:
            return int(given)
    return None
