"""Sizes that are expressions over the symbols of dynamic shapes.

An expression is text such as `(s0 + 1) // 2`, so that it can be read in a dump
(`expressions.py`). Floats occur inside `trunc`, `floor` and `ceil` (a size times a
scale factor).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

from ..errors import InvalidInput
from .expressions import Node, cut, parse
from .intervals import Interval, NoValue

# Values of an expression that are computed to find its largest.
MAX_TRIES = 4096
# Nodes of expressions that are visited to find the symbols of one call, or where the
# sizes of a graph exceed their bounds: tenths of a second.
MAX_VISITS = 1 << 17

Ranges = Mapping[str, tuple[int, int]]


def evaluate(dim: int | str, env: Mapping[str, int]) -> int:
    """The value of an extent; a number is itself."""
    if isinstance(dim, int):
        return dim
    try:
        value = parse(dim).value(env)
        # A size that is traced (plan/traced_int.py) stays what it is.
        return int(value) if isinstance(value, (bool, float)) else value
    except ZeroDivisionError:
        used = {name: env[name] for name in names(dim)}
        raise InvalidInput(
            f"size {cut(dim)} must not divide by 0, got {cut(str(used))}"
        ) from None


@functools.lru_cache(maxsize=1024)
def names(text: str) -> frozenset[str]:
    """The symbols in an expression."""
    return frozenset(node.symbol for node in parse(text).walk() if node.symbol)


def largest(text: str, ranges: Ranges) -> int | None:
    """The greatest value of an expression; None if there are too many to try."""
    spans = tuple((name, *ranges[name]) for name in sorted(names(text)))
    tries = math.prod(high - low + 1 for _, low, high in spans)
    return _largest(text, spans) if tries <= MAX_TRIES else None


@functools.lru_cache(maxsize=4096)
def _largest(text: str, spans: tuple[tuple[str, int, int], ...]) -> int | None:
    best = None
    node = parse(text)
    for values in itertools.product(*(range(low, high + 1) for _, low, high in spans)):
        env = {name: value for (name, _, _), value in zip(spans, values)}
        try:
            value = int(node.value(env))
        except ZeroDivisionError:
            continue  # sizes for which the model itself has none
        best = value if best is None else max(best, value)
    return best


class Visits:
    """How many nodes of expressions may still be visited."""

    def __init__(self) -> None:
        self._left = MAX_VISITS

    def take(self, nodes: int) -> bool:
        """Whether as many are left."""
        self._left -= nodes
        return self._left >= 0


def excess(
    text: str, ranges: Ranges, bound: int, visits: Visits
) -> dict[str, int] | None:
    """Values of the symbols for which an expression exceeds `bound`; None if there are
    none, or if interval arithmetic on bisected ranges found none in so many visits."""
    node, size = parse(text), _size(text)
    boxes = [{name: ranges[name] for name in names(text)}]
    while boxes:
        box = boxes.pop()
        if not _may_exceed(node, box, bound):
            continue
        for end in (1, 0):
            env = {name: span[end] for name, span in box.items()}
            if _exceeds(node, env, bound):
                return env
        widest = max(box, key=lambda name: box[name][1] - box[name][0], default="")
        if not visits.take(3 * size):
            return None
        boxes += [{**box, widest: half} for half in _halves(*box.get(widest, (0, 0)))]
    return None


def _may_exceed(node: Node, box: Mapping[str, Interval], bound: int) -> bool:
    try:
        return int(node.between(box)[1]) > bound
    except NoValue:
        return False


def _exceeds(node: Node, env: Mapping[str, int], bound: int) -> bool:
    try:
        return int(node.value(env)) > bound
    except ZeroDivisionError:
        return False


def _halves(low: int, high: int) -> list[tuple[int, int]]:
    """The second half and the first one; none of a single number."""
    middle = (low + high) // 2
    return [(middle + 1, high), (low, middle)] if low < high else []


@functools.lru_cache(maxsize=1024)
def _size(text: str) -> int:
    return sum(1 for _ in parse(text).walk())


def solve(equations: Sequence[tuple[int | str, int]], ranges: Ranges) -> dict[str, int]:
    """Values of the symbols for which every expression has its live value.

    A symbol that stands alone somewhere is read off; one that only occurs inside
    a larger expression is searched for in its range, smallest first. The caller
    checks all equations afterwards, so an inconsistent input is never accepted.
    """
    env: dict[str, int] = {}
    for dim, live in equations:
        if isinstance(dim, str) and dim in ranges:
            env.setdefault(dim, live)
    compound = [(d, v) for d, v in equations if isinstance(d, str) and d not in ranges]
    visits = Visits()
    while compound:
        known = [(d, v, names(d) - env.keys()) for d, v in compound]
        single = next((free for _, _, free in known if len(free) == 1), None)
        if single is None:
            break
        (symbol,) = single
        tests = [(d, v) for d, v, free in known if free == single]
        found = _smallest(symbol, ranges[symbol], tests, env, visits)
        env[symbol] = ranges[symbol][0] if found is None else found
        compound = [(d, v) for d, v, free in known if free and free != single]
    for symbol, (low, high) in ranges.items():
        live = env.setdefault(symbol, low)
        if not low <= live <= high:
            raise InvalidInput(f"size {symbol} must be in [{low}, {high}], got {live}")
    return env


def _smallest(
    symbol: str,
    span: tuple[int, int],
    tests: Sequence[tuple[str, int]],
    env: Mapping[str, int],
    visits: Visits,
) -> int | None:
    """The smallest value in a range with which every expression has its value.

    Halves in which interval arithmetic excludes a value are left out. Of an expression
    that is monotone, as nearly all sizes are, one way down remains. None if there are
    not as many visits left.
    """
    nodes = [(parse(text), value) for text, value in tests]
    size = sum(_size(text) for text, _ in tests)
    box: dict[str, Interval] = {name: (value, value) for name, value in env.items()}
    spans = [span]
    while spans and visits.take(size):
        low, high = box[symbol] = spans.pop()
        if not all(_may_be(node, box, value) for node, value in nodes):
            continue
        if low == high:
            trial = {**env, symbol: low}
            if all(_is(node, trial, value) for node, value in nodes):
                return low
        spans += _halves(low, high)
    return None


def _may_be(node: Node, box: Mapping[str, Interval], value: int) -> bool:
    try:
        low, high = node.between(box)
    except NoValue:
        return False
    return int(low) <= value <= int(high)


def _is(node: Node, env: Mapping[str, int], value: int) -> bool:
    try:
        return int(node.value(env)) == value
    except ZeroDivisionError:
        return False
