"""Integers that do not fit 32 bits, as far as constants tell.

Enters an exported program. Leaves the nodes whose int64 results the GPU, which
holds 32 bits, could not hold: constants, what is computed from constants alone,
what a number beyond int32 is written into, and what int64 is made from these.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .builder import constant_tensors, wide_element

_log = logging.getLogger("executorch_webgpu")

_LOW, _HIGH = -(2**31), 2**31 - 1
# Elements up to which a constant expression is evaluated, of integers and others.
_FEW_INTEGERS, _FEW = 1 << 22, 1 << 16


def integers(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The integer constants, by placeholder, whose values are at hand."""
    found = {}
    for name, tensor in constant_tensors(program).items():
        value = tensor.constant if isinstance(tensor, FakeTensor) else tensor
        if value is not None and not value.is_floating_point():
            found[name] = value
    return found


def beyond_int32(
    graph: Graph,
    constants: dict[str, torch.Tensor],
    is_refused: Callable[[Node], bool],
) -> dict[Node, int]:
    """A value that does not fit, by node.

    `constants` are those of the graph's inputs whose values are known. `is_refused`
    is asked about nodes with a number beyond int32 among their arguments: some, such
    as a clamp, can do with the nearest that fits.
    """
    # While ExecuTorch traces, torch computes no values.
    with unset_fake_temporarily():
        return _find(graph, constants, is_refused)


def _find(
    graph: Graph,
    constants: dict[str, torch.Tensor],
    is_refused: Callable[[Node], bool],
) -> dict[Node, int]:
    known: dict[Node, Any] = {}
    found: dict[Node, int] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in constants:
            known[node] = constants[node.name]
        elif node.op == "call_function":
            _evaluate(node, known)
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
    parts = value if isinstance(value, (tuple, list)) else [value]
    for part in parts:
        wide = wide_element(part) if isinstance(part, torch.Tensor) else None
        if wide is not None:
            return wide
    return None


def _has_int64(value: Any) -> bool:
    parts = value if isinstance(value, (tuple, list)) else [value]
    return any(isinstance(p, torch.Tensor) and p.dtype is torch.int64 for p in parts)


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


def _evaluate(node: Node, known: dict[Node, Any]) -> None:
    """Computes a small node that depends on known ones alone."""
    sources = node.all_input_nodes
    tags = getattr(node.target, "tags", ())
    if not all(source in known for source in sources) or not callable(node.target):
        return
    if torch.Tag.nondeterministic_seeded in tags or not _is_small(node):
        return
    args = map_arg(node.args, known.__getitem__)
    kwargs = map_arg(node.kwargs, known.__getitem__)
    try:
        known[node] = node.target(*args, **kwargs)
    except (RuntimeError, NotImplementedError, IndexError) as error:
        # Torch has no kernel for it on the CPU: no value is known, as of an input.
        _log.debug("%s is not evaluated: %s", node.name, error)


def _is_small(node: Node) -> bool:
    for item in (node, *node.all_input_nodes):
        value = item.meta.get("val")
        parts = value if isinstance(value, (tuple, list)) else [value]
        for part in parts:
            if not isinstance(part, torch.Tensor):
                return False
            if not all(isinstance(size, int) for size in part.shape):
                return False
            is_real = part.is_floating_point() or part.is_complex()
            if part.numel() > (_FEW if is_real else _FEW_INTEGERS):
                return False
    return True
