"""torch.histc as a search in the sorted elements.

A bin counts the elements from its own edge up to the next: those below the next edge
minus those below its own. Elements outside the range, and NaN, which sorts behind all
numbers, are in none.
"""

from __future__ import annotations

import operator

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from . import program_constants
from .rewriting import arguments, call_before

_aten = torch.ops.aten


def rewrite(program: ExportedProgram, node: Node) -> None:
    """Leaves a call alone whose range would come from the data."""
    given = arguments(node)
    x, bins, low, high = (given[name] for name in ("self", "bins", "min", "max"))
    dtype = x.meta["val"].dtype
    fixed = all(isinstance(value, (int, float)) for value in (bins, low, high))
    if not fixed or low >= high or not dtype.is_floating_point:
        return
    if node.graph is not program.graph:
        return  # a body of control flow has no constants
    edges = program_constants.add(
        program, f"edges_of_{node.name}", first_numbers(bins, low, high, dtype)
    )
    flat = call_before(node, _aten.reshape.default, x, [-1])
    ordered = call_before(node, _aten.sort.default, flat)
    values = call_before(node, operator.getitem, ordered, 0)
    less = call_before(node, _aten.searchsorted.Tensor, values, edges)
    upper = call_before(node, _aten.slice.Tensor, less, 0, 1)
    lower = call_before(node, _aten.slice.Tensor, less, 0, 0, bins)
    counts = call_before(node, _aten.sub.Tensor, upper, lower)
    node.target, node.args = _aten._to_copy.default, (counts,)
    node.kwargs = {"dtype": dtype}


def first_numbers(
    bins: int, low: float, high: float, dtype: torch.dtype
) -> torch.Tensor:
    """The least number of every bin and, last, the least beyond the range.

    Torch finds an element's bin by arithmetic in its type: its rounding decides.
    """
    start, end = torch.tensor(low, dtype=dtype), torch.tensor(high, dtype=dtype)
    numbers = torch.arange(bins)

    def bin_of(x: torch.Tensor) -> torch.Tensor:
        return ((x - start) * bins / (end - start)).long().clamp(max=bins - 1)

    # What is too small and what is not, halving the gap until they are neighbours.
    below, least = start.repeat(bins), end.repeat(bins)
    while (apart := _after(below) < least).any():
        middle = ((below.double() + least.double()) / 2).to(dtype)
        reaches = bin_of(middle) >= numbers
        least = torch.where(apart & reaches, middle, least)
        below = torch.where(apart & ~reaches, middle, below)
    least[0] = start
    return torch.cat([least, _after(end).reshape(1)])


def _after(x: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(x, torch.full_like(x, float("inf")))
