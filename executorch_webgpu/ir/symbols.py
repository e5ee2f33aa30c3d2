"""Integer expressions over the symbols of dynamic shapes.

An expression is text such as `(s0 + 1) // 2`, so that it can be read in a dump;
it is parsed with Python's own grammar and only arithmetic is evaluated. Floats
occur inside `trunc`, `floor` and `ceil` (a size times a scale factor).
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InvalidBlob, InvalidInput

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
}


# Of an expression, to find its largest value.
_MOST_TRIES = 4096


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InvalidBlob(f"shape expression must parse, got {text!r}") from error


def _evaluate(node: ast.expr, env: Mapping[str, int]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            if name not in env:
                raise InvalidBlob(f"shape symbol must be declared, got {name!r}")
            return env[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, env)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_evaluate(left, env), _evaluate(right, env))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if (
            type(op) in _COMPARE
        ):
            return _COMPARE[type(op)](_evaluate(left, env), _evaluate(right, env))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate(body if _evaluate(test, env) else orelse, env)
        case ast.Call(func=ast.Name(id=name), args=args) if name in _CALLS:
            return _CALLS[name](*(_evaluate(arg, env) for arg in args))
    raise InvalidBlob(f"shape expression must be arithmetic, got {ast.dump(node)}")


def evaluate(dim: int | str, env: Mapping[str, int]) -> int:
    """The value of an extent; a number is itself."""
    return dim if isinstance(dim, int) else int(_evaluate(_parse(dim), env))


@functools.lru_cache(maxsize=4096)
def names(text: str) -> frozenset[str]:
    """The symbols in an expression."""
    found = {node.id for node in ast.walk(_parse(text)) if isinstance(node, ast.Name)}
    return frozenset(found - set(_CALLS))


def largest(text: str, ranges: Mapping[str, tuple[int, int]]) -> int | None:
    """The greatest value of an expression; None if there are too many to try."""
    spans = tuple((name, *ranges[name]) for name in sorted(names(text)))
    tries = math.prod(high - low + 1 for _, low, high in spans)
    return _largest(text, spans) if tries <= _MOST_TRIES else None


@functools.lru_cache(maxsize=4096)
def _largest(text: str, spans: tuple[tuple[str, int, int], ...]) -> int | None:
    best = None
    for values in itertools.product(*(range(low, high + 1) for _, low, high in spans)):
        env = {name: value for (name, _, _), value in zip(spans, values)}
        try:
            value = evaluate(text, env)
        except ZeroDivisionError:
            continue  # sizes for which the model itself has none
        best = value if best is None else max(best, value)
    return best


def solve(
    equations: Sequence[tuple[int | str, int]],
    ranges: Mapping[str, tuple[int, int]],
) -> dict[str, int]:
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
    while compound:
        known = [(d, v, names(d) - env.keys()) for d, v in compound]
        single = next((free for _, _, free in known if len(free) == 1), None)
        if single is None:
            break
        (symbol,) = single
        tests = [(d, v) for d, v, free in known if free == single]
        low, high = ranges[symbol]
        env[symbol] = next(
            (
                trial
                for trial in range(low, high + 1)
                if all(evaluate(d, {**env, symbol: trial}) == v for d, v in tests)
            ),
            low,
        )
        compound = [(d, v) for d, v, free in known if free and free != single]
    for symbol, (low, high) in ranges.items():
        live = env.setdefault(symbol, low)
        if not low <= live <= high:
            raise InvalidInput(f"size {symbol} must be in [{low}, {high}], got {live}")
    return env
