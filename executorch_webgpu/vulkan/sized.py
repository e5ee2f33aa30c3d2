"""A call as rules for sizes have it, and the rules by the op's name.

A rule makes the extents of a call's results from those of its operands. Where it cannot
tell them it raises Undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .sizes import Dim, Undecided

Shape: TypeAlias = tuple[Dim, ...]
# Makes two sizes one, and returns it.
Equal: TypeAlias = Callable[[Dim, Dim], Dim]


@dataclass(frozen=True)
class Sized:
    """A call: tensors among its arguments are shapes, integers sizes."""

    args: Sequence[Any]
    most: Sequence[Shape]  # of its results, as the file has them
    equal: Equal
    fix: Callable[[Dim], None]  # makes a size the largest that it can be

    def shape(self, position: int) -> Shape:
        found = self.args[position]
        if not isinstance(found, tuple):
            raise Undecided(f"argument {position} must be a tensor")
        return found

    def ints(self, position: int, count: int, otherwise: int = 0) -> list[int]:
        """As many numbers, of a list that may have one for all."""
        found = self.args[position]
        if not isinstance(found, list) or not all(type(i) is int for i in found):
            raise Undecided(f"argument {position} must be numbers")
        found = found or [otherwise]
        if len(found) not in (1, count):
            raise Undecided(f"argument {position} must have {count} numbers")
        return found * (count if len(found) == 1 else 1)

    def dim(self, position: int, rank: int) -> int:
        found = self.args[position]
        if type(found) is not int or not -rank <= found < rank:
            raise Undecided(f"argument {position} must be a dimension")
        return found % rank

    def dims(self, position: int, rank: int) -> list[int]:
        """A list of dimensions; all, if there is none."""
        found = self.args[position]
        if found is None or found == []:
            return list(range(rank))
        given = found if isinstance(found, list) else [found]
        if not all(type(i) is int and -rank <= i < rank for i in given):
            raise Undecided(f"argument {position} must be dimensions")
        return [i % rank for i in given]

    def tensors(self) -> Iterator[Shape]:
        for arg in self.args:
            for each in arg if isinstance(arg, list) else [arg]:
                if isinstance(each, tuple):
                    yield each


Rule: TypeAlias = Callable[[Sized], Sequence[Shape]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def decorate(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return decorate
