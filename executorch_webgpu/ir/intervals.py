"""Interval arithmetic: between which values an operator's result lies.

Enters: the least and the greatest value of each operand, as floats if the operand may
be a fraction. Leaves: bounds of the result, which are reached if the operands vary
independently of each other. Numbers beyond `MAX_NUMBER` do not exist here: whoever
computes one is refused (`expressions.py`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

MAX_NUMBER = 2**63

Number = int | float
Interval = tuple[Number, Number]


class NoValue(ArithmeticError):
    """The operator has no result, whatever the operands are."""


def limited(low: Number, high: Number) -> Interval:
    """The part of an interval that is within the limit."""
    if not (low <= MAX_NUMBER and high >= -MAX_NUMBER):
        raise NoValue
    most = float(MAX_NUMBER) if _is_fraction((low, high)) else MAX_NUMBER
    return max(low, -most), min(high, most)


def hull(*parts: Interval) -> Interval:
    """The least interval that has all parts in it."""
    ends = [end for part in parts for end in part]
    if any(isinstance(end, float) for end in ends):
        return float(min(ends)), float(max(ends))
    return min(ends), max(ends)


def add(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def subtract(a: Interval, b: Interval) -> Interval:
    return a[0] - b[1], a[1] - b[0]


def negate(a: Interval) -> Interval:
    return -a[1], -a[0]


def multiply(a: Interval, b: Interval) -> Interval:
    return _corners(operator.mul, a, b)


def divide(a: Interval, b: Interval) -> Interval:
    return _by_sign(lambda part: _corners(operator.truediv, a, part), b)


def divide_floor(a: Interval, b: Interval) -> Interval:
    return _by_sign(lambda part: _corners(operator.floordiv, a, part), b)


def modulo(a: Interval, b: Interval) -> Interval:
    """Between 0 and the divisor, of which it has the sign."""
    fraction = _is_fraction(a) or _is_fraction(b)
    zero, gap = (0.0, 0) if fraction else (0, 1)

    def part(b: Interval) -> Interval:
        if b[1] < 0:
            return zero + b[0] + gap, zero
        if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
            return a[0] % b[0], a[1] % b[0]
        high = b[1] - gap
        return zero, zero + (min(high, a[1]) if a[0] >= 0 else high)

    return _by_sign(part, b)


def power(a: Interval, b: Interval) -> Interval:
    """For an exponent that is one number, and not negative."""
    ends = a[0] ** b[0], a[1] ** b[0]
    if b[0] % 2 or a[0] >= 0:
        return ends
    return (min(ends), max(ends)) if a[1] < 0 else (0 * ends[0], max(ends))


def absolute(a: Interval) -> Interval:
    if a[0] <= 0 <= a[1]:
        return 0 * a[0], max(-a[0], a[1])
    return min(abs(a[0]), abs(a[1])), max(abs(a[0]), abs(a[1]))


def least(*parts: Interval) -> Interval:
    return _each(min, parts)


def greatest(*parts: Interval) -> Interval:
    return _each(max, parts)


def truncate(a: Interval) -> Interval:
    return math.trunc(a[0]), math.trunc(a[1])


def round_down(a: Interval) -> Interval:
    return math.floor(a[0]), math.floor(a[1])


def round_up(a: Interval) -> Interval:
    return math.ceil(a[0]), math.ceil(a[1])


# Of a comparison: whether it always holds, and whether it ever does.


def less(a: Interval, b: Interval) -> Interval:
    return int(a[1] < b[0]), int(a[0] < b[1])


def less_or_equal(a: Interval, b: Interval) -> Interval:
    return int(a[1] <= b[0]), int(a[0] <= b[1])


def greater(a: Interval, b: Interval) -> Interval:
    return less(b, a)


def greater_or_equal(a: Interval, b: Interval) -> Interval:
    return less_or_equal(b, a)


def equal(a: Interval, b: Interval) -> Interval:
    always = a[0] == a[1] == b[0] == b[1]
    return int(always), int(a[0] <= b[1] and b[0] <= a[1])


def unequal(a: Interval, b: Interval) -> Interval:
    always, ever = equal(a, b)
    return 1 - ever, 1 - always


def _is_fraction(a: Interval) -> bool:
    return isinstance(a[0], float) or isinstance(a[1], float)


def _corners(
    function: Callable[[Number, Number], Number], a: Interval, b: Interval
) -> Interval:
    """For a function that is monotone in each operand."""
    values = [function(x, y) for x in a for y in b]
    return min(values), max(values)


def _each(
    pick: Callable[[list[Number]], Number], parts: tuple[Interval, ...]
) -> Interval:
    low = pick([part[0] for part in parts])
    high = pick([part[1] for part in parts])
    return (float(low), float(high)) if any(map(_is_fraction, parts)) else (low, high)


def _by_sign(function: Callable[[Interval], Interval], b: Interval) -> Interval:
    """A quotient for the divisors below 0 and for those above: 0 has none."""
    if b[0] > 0 or b[1] < 0:
        return function(b)
    if _is_fraction(b):
        if b == (0.0, 0.0):
            raise NoValue
        return -math.inf, math.inf
    parts: list[Interval] = [(b[0], -1)] if b[0] < 0 else []
    parts += [(1, b[1])] if b[1] > 0 else []
    if not parts:
        raise NoValue
    return hull(*map(function, parts))
