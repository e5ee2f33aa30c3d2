"""Integers that record what is done to them: how one plan serves many live shapes.

A `TracedInt` has a value, as any int, and a register of `SizeCode` that computes it
from the symbols. Arithmetic makes registers; what depends on the value alone, a
comparison or a use as float, records a guard and goes on with the value. So the
planner runs on them as on ints, and what it made holds wherever the guards do.

C code reads the value of an int past all of this: `range`, `struct.pack`, an index.
Whoever gives such code a size takes `int(size)`, which records a guard. As text a size
is its expression in brackets, which no kernel can contain (`launches.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from .size_code import OPERATORS, SizeCode

# Around a size that is used as text.
OPEN, CLOSE = "\u27e8", "\u27e9"

T = TypeVar("T")


class Trace:
    """What was recorded while one plan was made.

    `sizes`, an array for each symbol, are those that the plan may have to serve.
    """

    def __init__(
        self, symbols: Mapping[str, int], sizes: Mapping[str, np.ndarray]
    ) -> None:
        self.code = SizeCode(symbols)
        self._sizes = sizes
        # Registers of comparisons, with their outcome.
        self.guards: dict[int, bool] = {}
        self.env = {
            name: TracedInt.of(value, self.code.symbols[name], self)
            for name, value in symbols.items()
        }

    def register(self, value: int) -> int:
        if isinstance(value, TracedInt):
            return value.register
        return self.code.number(value)

    def compared(self, name: str, left: int, right: int) -> bool:
        outcome = bool(OPERATORS[name].compute(plain(left), plain(right)))
        a, b = self.register(left), self.register(right)
        made = self.code.apply(name, a, b) if a != b else a
        if a != b and self.code.instructions[made].operator:
            self.guards.setdefault(made, outcome)
        return outcome

    def most(self, count: TracedInt) -> int:
        """The largest that a count can be, which a guard makes sure of."""
        code, places = self.code.needed([count.register])
        most = int(np.max(code.run(self._sizes)[places[count.register]]))
        assert count <= most
        return most


class TracedInt(int):
    """An int that knows where it comes from."""

    register: int
    trace: Trace

    @staticmethod
    def of(value: int, register: int, trace: Trace) -> int:
        """A traced int, or, where the code says that it is a number, that number."""
        number = trace.code.instructions[register].number
        if number is not None:
            return number
        made = TracedInt(value)
        made.register, made.trace = register, trace
        return made

    def __int__(self) -> int:
        """The value, on the condition that it is this one."""
        self.trace.compared("==", self, plain(self))
        return plain(self)

    __index__ = __trunc__ = __floor__ = __ceil__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        return hash((TracedInt, self.register))

    def __repr__(self) -> str:
        return f"{OPEN}{self.trace.code.text(self.register)}{CLOSE}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __neg__(self) -> int:
        return self * -1

    def __pos__(self) -> int:
        return self

    def __abs__(self) -> int:
        return self if self >= 0 else -self

    def bit_length(self) -> int:
        return int(self).bit_length()


def plain(value: int) -> int:
    """The value of any int, without a guard: for what does not become part of a plan,
    or has been made sure of otherwise."""
    return int.__int__(value)


def largest(count: int) -> int:
    """A count, or the largest that it can be if it is traced."""
    return count.trace.most(count) if isinstance(count, TracedInt) else count


def starts(length: int, step: int) -> Iterator[int]:
    """As range(0, length, step), which does not see where a size comes from."""
    start = 0
    while start < length:
        yield start
        start += step


def power_of_two(count: int, most: int) -> int:
    """The smallest that is not less than `count`; at most `most`, a power of two."""
    power = 1
    while power < most and power < count:
        power *= 2
    return power


def ranked(items: Iterable[T], cost: Callable[[T], Any]) -> list[T]:
    """Sorted by an integer cost, or a tuple of them; guards are recorded for the first
    alone, since no plan depends on the order of the others."""
    others = list(items)
    first = min(others, key=cost)
    others.remove(first)

    def value(item: T) -> Any:
        found = cost(item)
        return tuple(map(plain, found)) if isinstance(found, tuple) else plain(found)

    return [first, *sorted(others, key=value)]


def _arithmetic(name: str, is_swapped: bool) -> Callable[[TracedInt, Any], Any]:
    compute = OPERATORS[name].compute

    def operate(self: TracedInt, other: Any) -> Any:
        if not isinstance(other, int):
            return (
                compute(other, int(self)) if is_swapped else compute(int(self), other)
            )
        left, right = (other, self) if is_swapped else (self, other)
        trace = self.trace
        if name in ("//", "%") and right == 0:
            raise ZeroDivisionError(f"{left} {name} 0")
        value = compute(plain(left), plain(right))
        made = trace.code.apply(name, trace.register(left), trace.register(right))
        return TracedInt.of(value, made, trace)

    return operate


def _comparison(
    compute: Callable[[Any, Any], Any], name: str, is_swapped: bool, outcome: bool
) -> Callable[[TracedInt, Any], Any]:
    def compare(self: TracedInt, other: Any) -> Any:
        if not isinstance(other, int):
            return compute(int(self), other)
        left, right = (other, self) if is_swapped else (self, other)
        return self.trace.compared(name, left, right) == outcome

    return compare


def _of_value(compute: Callable[[Any, Any], Any]) -> Callable[[TracedInt, Any], Any]:
    """An operator that has no instruction: it is computed with the value."""

    def operate(self: TracedInt, other: Any) -> Any:
        return compute(int(self), int(other) if isinstance(other, int) else other)

    return operate


def _swapped(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: compute(b, a)


_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}
for _name, _operator in _ARITHMETIC.items():
    setattr(TracedInt, f"__{_name}__", _arithmetic(_operator, False))
    setattr(TracedInt, f"__r{_name}__", _arithmetic(_operator, True))

# By which comparison each is computed, with operands swapped or not, and its outcome.
_COMPARISONS = {
    operator.lt: ("<", False, True),
    operator.gt: ("<", True, True),
    operator.ge: ("<", False, False),
    operator.le: ("<", True, False),
    operator.eq: ("==", False, True),
    operator.ne: ("==", False, False),
}
for _compute, _by in _COMPARISONS.items():
    setattr(TracedInt, f"__{_compute.__name__}__", _comparison(_compute, *_by))

for _compute in (
    *(operator.truediv, operator.pow, operator.lshift, operator.rshift),
    *(operator.and_, operator.or_, operator.xor),
):
    _name = _compute.__name__.strip("_")
    setattr(TracedInt, f"__{_name}__", _of_value(_compute))
    setattr(TracedInt, f"__r{_name}__", _of_value(_swapped(_compute)))
