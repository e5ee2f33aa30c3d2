"""Arithmetic as text -> a tree that is evaluated, for numbers or for intervals.

The text may be anybody's. Its length, its tree and every number that comes up are
limited, so that no expression costs more than its size.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidBlob
from . import intervals
from .intervals import MAX_NUMBER, Interval, NoValue, Number

MAX_TEXT = 4000  # characters
MAX_NODES = 500  # numbers, symbols and operators
MAX_DEPTH = 100
MAX_EXPONENT = 16  # MAX_NUMBER to that power is still a float

_ALPHABET = re.compile(r"[\w+\-*/%(),.<>=! ]+", re.ASCII)


@dataclass(frozen=True)
class Operator:
    """An operator on numbers, and on intervals."""

    compute: Callable[..., Any]
    between: Callable[..., Interval]


_BINARY: dict[type[ast.operator], Operator] = {
    ast.Add: Operator(operator.add, intervals.add),
    ast.Sub: Operator(operator.sub, intervals.subtract),
    ast.Mult: Operator(operator.mul, intervals.multiply),
    ast.Div: Operator(operator.truediv, intervals.divide),
    ast.FloorDiv: Operator(operator.floordiv, intervals.divide_floor),
    ast.Mod: Operator(operator.mod, intervals.modulo),
    ast.Pow: Operator(operator.pow, intervals.power),
}
_COMPARE: dict[type[ast.cmpop], Operator] = {
    ast.Lt: Operator(operator.lt, intervals.less),
    ast.LtE: Operator(operator.le, intervals.less_or_equal),
    ast.Gt: Operator(operator.gt, intervals.greater),
    ast.GtE: Operator(operator.ge, intervals.greater_or_equal),
    ast.Eq: Operator(operator.eq, intervals.equal),
    ast.NotEq: Operator(operator.ne, intervals.unequal),
}
_OF_ONE = {
    "abs": Operator(abs, intervals.absolute),
    "trunc": Operator(math.trunc, intervals.truncate),
    "floor": Operator(math.floor, intervals.round_down),
    "ceil": Operator(math.ceil, intervals.round_up),
}
_OF_SEVERAL = {
    "min": Operator(min, intervals.least),
    "max": Operator(max, intervals.greatest),
}
_NEGATE = Operator(operator.neg, intervals.negate)


@dataclass(frozen=True, slots=True)
class Node:
    """A number, a symbol, or an operator with operands; without one, a choice: the
    second operand if the first is not 0, else the third."""

    operator: Operator | None = None
    operands: tuple[Node, ...] = ()
    number: Number = 0
    symbol: str = ""

    def walk(self) -> Iterator[Node]:
        yield self
        for operand in self.operands:
            yield from operand.walk()

    def value(self, env: Mapping[str, int]) -> Number:
        """For these values of the symbols; raises ZeroDivisionError."""
        if self.symbol:
            if self.symbol not in env:
                raise InvalidBlob(f"shape symbol must be declared, got {self.symbol!r}")
            return env[self.symbol]
        if not self.operands:
            return self.number
        if self.operator is None:
            test, yes, no = self.operands
            return yes.value(env) if test.value(env) else no.value(env)
        made = self.operator.compute(*[each.value(env) for each in self.operands])
        if not -MAX_NUMBER <= made <= MAX_NUMBER:
            raise InvalidBlob(
                f"a number in a shape expression must be within {MAX_NUMBER:.0e},"
                f" got one of {math.log10(abs(made)):.0f} digits"
            )
        result: Number = made
        return result

    def between(self, box: Mapping[str, Interval]) -> Interval:
        """Bounds of the values for symbols in these ranges; raises NoValue."""
        if self.symbol:
            return box[self.symbol]
        if not self.operands:
            return self.number, self.number
        if self.operator is None:
            return self._chosen(box)
        parts = [each.between(box) for each in self.operands]
        return intervals.limited(*self.operator.between(*parts))

    def _chosen(self, box: Mapping[str, Interval]) -> Interval:
        test, yes, no = self.operands
        low, high = test.between(box)
        reached = [yes] if (low, high) != (0, 0) else []
        reached += [no] if low <= 0 <= high else []
        parts = []
        for each in reached:
            try:
                parts.append(each.between(box))
            except NoValue:
                continue
        if not parts:
            raise NoValue
        return intervals.hull(*parts)


@functools.lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """The tree of an expression; InvalidBlob if it is none, or too large."""
    if len(text) > MAX_TEXT:
        raise InvalidBlob(
            f"shape expression must have at most {MAX_TEXT} characters, got {len(text)}"
        )
    if not _ALPHABET.fullmatch(text):
        raise InvalidBlob(f"shape expression must be arithmetic, got {cut(text)!r}")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InvalidBlob(f"shape expression must parse, got {cut(text)!r}") from error
    nodes = sum(isinstance(node, ast.expr) for node in ast.walk(tree))
    if nodes > MAX_NODES:
        raise InvalidBlob(
            f"shape expression must have at most {MAX_NODES} numbers, symbols and"
            f" operators, got {nodes}"
        )
    return _node(tree, text, 0)


def _node(tree: ast.expr, text: str, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise InvalidBlob(
            f"shape expression must be nested at most {MAX_DEPTH} deep,"
            f" got {cut(text)!r}"
        )

    def made(operator: Operator | None, *operands: ast.expr) -> Node:
        return Node(operator, tuple(_node(each, text, depth + 1) for each in operands))

    match tree:
        case ast.Constant(value=int() | float() as number) if (
            not isinstance(number, bool) and number <= MAX_NUMBER
        ):
            return Node(number=number)
        case ast.Name(id=name):
            return Node(symbol=name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return made(_NEGATE, operand)
        case ast.BinOp(op=ast.Pow(), right=right) if not _is_exponent(right):
            raise InvalidBlob(
                f"an exponent must be a number up to {MAX_EXPONENT}, got {cut(text)!r}"
            )
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return made(_BINARY[type(op)], left, right)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if (
            type(op) in _COMPARE
        ):
            return made(_COMPARE[type(op)], left, right)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return made(None, test, body, orelse)
        case ast.Call(func=ast.Name(id=name), args=[arg], keywords=[]) if (
            name in _OF_ONE
        ):
            return made(_OF_ONE[name], arg)
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as args, keywords=[]) if (
            name in _OF_SEVERAL
        ):
            return made(_OF_SEVERAL[name], *args)
    raise InvalidBlob(f"shape expression must be arithmetic, got {cut(text)!r}")


def _is_exponent(tree: ast.expr) -> bool:
    match tree:
        case ast.Constant(value=int() as number):
            return 0 <= number <= MAX_EXPONENT
    return False


def cut(text: str) -> str:
    """A text as a message can have it."""
    return text if len(text) <= 80 else f"{text[:77]}..."
