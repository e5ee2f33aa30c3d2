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

from ..ir.intervals import Interval
from .size_code import OPERATORS, SizeCode

# Around a size that is used as text.
OPEN, CLOSE = "\u27e8", "\u27e9"

T = TypeVar("T")


class Trace:
    """What was recorded while one plan was made.

    `ranges` are what the symbols can be; `sizes`, an array for each, are some of it.
    """

    def __init__(
        self,
        symbols: Mapping[str, int],
        ranges: Mapping[str, tuple[int, int]],
        sizes: Mapping[str, np.ndarray],
    ) -> None:
        self.code = SizeCode(symbols)
        self.ranges = ranges
        self._bounds: list[Interval] = []  # of the registers so far
        self._sizes = {name: np.append(sizes[name], symbols[name]) for name in symbols}
        # Of what was computed before: planning repeats itself, layer after layer.
        self.results: dict[tuple[Any, ...], Any] = {}
        # Registers of comparisons, with their outcome, where sizes decide.
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
        if a != b and self.code.instructions[made].operator and made not in self.guards:
            low, high = self.between(made)
            if low != high:
                self.guards[made] = outcome
        return outcome

    def between(self, register: int) -> Interval:
        """Between which values a register is, whatever the sizes."""
        self.code.extend_bounds(self._bounds, self.ranges)
        return self._bounds[register]

    def most(self, count: TracedInt) -> int:
        """The largest that a count can be where the guards hold, which another guard
        makes sure of."""
        if plain(count) == self.between(count.register)[1]:
            return plain(count)
        code, places = self.code.needed([count.register, *self.guards])
        values = code.run(self._sizes)
        counts = np.array(values[places[count.register]])
        for register, outcome in self.guards.items():
            counts[values[places[register]] != outcome] = 0
        most = int(counts.max())
        assert count <= most
        return most

    @property
    def rung(self) -> int:
        """The factor between sizes that are chosen by: see `rung`."""
        return 2 if len(self.ranges) == 1 else 4


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


def is_traced(*sizes: int) -> bool:
    """Whether one of them varies."""
    return any(isinstance(size, TracedInt) for size in sizes)


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


def rung(size: int) -> int:
    """A size to choose a form by: itself, or, if it is traced, the next power of 2.

    A choice by the size itself would have its own threshold for every product of a
    model, and every combination of them would be a plan. Where several sizes are
    traced, whose rungs multiply, it is the next power of 4.
    """
    if not isinstance(size, TracedInt):
        return size
    low, high = 0, 1
    while high < plain(size):
        low, high = high, high * size.trace.rung
    is_between = (low < size or low == 0) and size <= high
    assert is_between
    return high


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


def _key(name: str, self: TracedInt, other: Any) -> tuple[Any, ...] | None:
    """By what a result is remembered; None for other numbers than ints."""
    if type(other) is int:
        return name, self.register, other
    if type(other) is TracedInt:
        return name, self.register, other.register, "register"
    return None


def _arithmetic(name: str, is_swapped: bool) -> Callable[[TracedInt, Any], Any]:
    compute = OPERATORS[name].compute
    remembered = f"swapped {name}" if is_swapped else name

    def operate(self: TracedInt, other: Any) -> Any:
        trace = self.trace
        key = _key(remembered, self, other)
        if key is None:
            if isinstance(other, int):
                return operate(self, int(other))
            return (
                compute(other, int(self)) if is_swapped else compute(int(self), other)
            )
        if key in trace.results:
            return trace.results[key]
        left, right = (other, self) if is_swapped else (self, other)
        if name in ("//", "%") and right == 0:
            raise ZeroDivisionError(f"{left} {name} 0")
        value = compute(plain(left), plain(right))
        made = trace.code.apply(name, trace.register(left), trace.register(right))
        trace.results[key] = result = TracedInt.of(value, made, trace)
        return result

    return operate


def _comparison(
    compute: Callable[[Any, Any], Any], name: str, is_swapped: bool, outcome: bool
) -> Callable[[TracedInt, Any], Any]:
    remembered = compute.__name__

    def compare(self: TracedInt, other: Any) -> Any:
        key = _key(remembered, self, other)
        if key is None:
            if isinstance(other, int):
                return compare(self, int(other))
            return compute(int(self), other)
        results = self.trace.results
        if key not in results:
            left, right = (other, self) if is_swapped else (self, other)
            results[key] = self.trace.compared(name, left, right) == outcome
        return results[key]

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
