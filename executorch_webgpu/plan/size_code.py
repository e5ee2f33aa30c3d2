"""Straight-line integer code over the sizes of a graph: how plans depend on shapes.

One instruction makes one register from two others; the first registers are the symbols.
Equal expressions are one register. It is simplified as it is made, so that a person can
read it, and runs on ints or, for many sizes at once, on numpy arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir import intervals
from ..ir.intervals import Interval, NoValue


@dataclass(frozen=True)
class Operator:
    """An operator on ints or arrays of them, and on intervals."""

    compute: Callable[[Any, Any], Any]
    between: Callable[[Interval, Interval], Interval]


def _divide(a: Any, b: Any) -> Any:
    """Rounded down; 0 if the divisor is: what no guard lets through may divide by 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _remainder(a: Any, b: Any) -> Any:
    return a - _divide(a, b) * b


def _divide_up(a: Any, b: Any) -> Any:
    return -_divide(-a, b)


OPERATORS: Mapping[str, Operator] = {
    "+": Operator(operator.add, intervals.add),
    "-": Operator(operator.sub, intervals.subtract),
    "*": Operator(operator.mul, intervals.multiply),
    "//": Operator(_divide, intervals.divide_floor),
    "%": Operator(_remainder, intervals.modulo),
    "ceil": Operator(
        _divide_up,
        lambda a, b: intervals.negate(intervals.divide_floor(intervals.negate(a), b)),
    ),
    "<": Operator(operator.lt, intervals.less),
    "==": Operator(operator.eq, intervals.equal),
}

Operand = int  # a register


@dataclass(frozen=True)
class Instruction:
    """A symbol, a number, or an operator on two registers."""

    operator: str = ""
    left: Operand = 0
    right: Operand = 0
    symbol: str = ""
    number: int | None = None


class SizeCode:
    """The instructions made so far."""

    def __init__(self, symbols: Iterable[str]) -> None:
        self.instructions: list[Instruction] = []
        self._registers: dict[Instruction, int] = {}
        self.symbols = {name: self.add(Instruction(symbol=name)) for name in symbols}

    def number(self, value: int) -> int:
        return self.add(Instruction(number=value))

    def apply(self, name: str, left: int, right: int) -> int:
        """The register of an operator's result, which may be there already."""
        a, b = self.constant(left), self.constant(right)
        if a is not None and b is not None:
            return self.number(int(OPERATORS[name].compute(a, b)))
        if name in ("+", "*") and a is not None:
            left, right, a, b = right, left, b, a
        if b is not None:
            simpler = self._with_number(name, left, b)
            if simpler is not None:
                return simpler
        if name in ("-", "%", "//") and left == right:
            # A size that is divided by itself is not 0: the value was computed.
            return self.number(1 if name == "//" else 0)
        simpler = self._with_operand(name, left, right)
        return self.add(Instruction(name, left, right)) if simpler is None else simpler

    def _with_operand(self, name: str, left: int, right: int) -> int | None:
        """The same with fewer instructions, if one operand is computed from the other.
        A divisor is not 0, as above."""
        inner, other = self.instructions[left], self.instructions[right]
        if name in ("%", "//") and inner.operator == "*":
            factors = [inner.left, inner.right]
            if right in factors:
                factors.remove(right)
                return self.number(0) if name == "%" else factors[0]
        if name == "<" and inner.operator == "+" and inner.left == right:
            added = self.constant(inner.right)
            return None if added is None else self.number(int(added < 0))
        if name == "<" and other.operator == "+" and other.left == left:
            added = self.constant(other.right)
            return None if added is None else self.number(int(added > 0))
        return None

    def _with_number(self, name: str, left: int, n: int) -> int | None:
        """The same with fewer instructions, if the right operand is the number n."""
        inner = self.instructions[left]
        m = self.constant(inner.right) if inner.operator else None
        match name:
            case "-":
                return self.apply("+", left, self.number(-n))
            case "+" if n == 0:
                return left
            case "+" if inner.operator == "+" and m is not None:
                return self.apply("+", inner.left, self.number(m + n))
            case "*" | "//" | "ceil" if n == 1:
                return left
            case "*" if n == 0:
                return self.number(0)
            case "*" if inner.operator == "*" and m is not None:
                return self.apply("*", inner.left, self.number(m * n))
            case "*" if n < 0 and inner.operator == "//":
                return self._divided_up(inner, n)
            case "//" | "ceil" if inner.operator == "*" and m and n and m % n == 0:
                return self.apply("*", inner.left, self.number(m // n))
            case "//" if inner.operator == "//" and m and m > 0 and n > 0:
                return self.apply("//", inner.left, self.number(m * n))
            case "%" if n == 1 or (inner.operator == "*" and m and n and m % n == 0):
                return self.number(0)
        return None

    def _divided_up(self, quotient: Instruction, n: int) -> int | None:
        """n * (-x // y) for a negative n is -n * ceil(x / y)."""
        dividend = self.instructions[quotient.left]
        factor = self.constant(dividend.right) if dividend.operator == "*" else None
        if factor is None or factor >= 0:
            return None
        positive = self.apply("*", dividend.left, self.number(-factor))
        up = self.apply("ceil", positive, quotient.right)
        return self.apply("*", up, self.number(-n))

    def constant(self, register: int) -> int | None:
        return self.instructions[register].number

    def add(self, instruction: Instruction) -> int:
        register = self._registers.setdefault(instruction, len(self.instructions))
        if register == len(self.instructions):
            self.instructions.append(instruction)
        return register

    # -- what it computes ----------------------------------------------------------

    def run(self, env: Mapping[str, Any]) -> list[Any]:
        """The value of every register for these values of the symbols."""
        values: list[Any] = []
        for each in self.instructions:
            if each.operator:
                compute = OPERATORS[each.operator].compute
                values.append(compute(values[each.left], values[each.right]))
            else:
                values.append(env[each.symbol] if each.symbol else each.number)
        return values

    def bounds(self, ranges: Mapping[str, tuple[int, int]]) -> list[Interval]:
        """Between which values every register is for symbols in these ranges."""
        found: list[Interval] = []
        self.extend_bounds(found, ranges)
        return found

    def extend_bounds(
        self, found: list[Interval], ranges: Mapping[str, tuple[int, int]]
    ) -> None:
        """Adds the bounds of the registers that were made since `found` was."""
        for each in self.instructions[len(found) :]:
            if each.symbol:
                found.append(ranges[each.symbol])
            elif each.number is not None:
                found.append((each.number, each.number))
            else:
                found.append(_between(each, found))

    def text(self, register: int) -> str:
        """An expression as a person writes it."""
        each = self.instructions[register]
        if each.symbol or each.number is not None:
            return each.symbol or str(each.number)
        left, right = self.text(each.left), self.text(each.right)
        if each.operator == "ceil":
            return f"ceil({left} / {right})"
        return f"({left} {each.operator} {right})"

    def needed(self, registers: Iterable[int]) -> tuple[SizeCode, dict[int, int]]:
        """Code that computes these registers alone, and where each is in it."""
        wanted = set(registers)
        for register in range(len(self.instructions) - 1, -1, -1):
            each = self.instructions[register]
            if register in wanted and each.operator:
                wanted |= {each.left, each.right}
        made = SizeCode(self.symbols)
        places = dict(zip(self.symbols.values(), made.symbols.values()))
        for register in sorted(wanted - places.keys()):
            each = self.instructions[register]
            if each.operator:
                each = Instruction(each.operator, places[each.left], places[each.right])
            places[register] = made.add(each)
        return made, places


def _between(each: Instruction, found: Sequence[Interval]) -> Interval:
    operation = OPERATORS[each.operator]
    try:
        return operation.between(found[each.left], found[each.right])
    except NoValue:
        return -intervals.MAX_NUMBER, intervals.MAX_NUMBER
