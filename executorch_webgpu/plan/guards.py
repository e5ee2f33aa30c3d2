"""Comparisons that a plan depends on -> intervals that registers must be in.

A comparison with a number says of one register where it lies; so do all comparisons of
one register together. What is computed from another register by an operation that
grows with it, such as `n * 12` or `ceil(n / 64)`, says of that one where it lies. What
is left is little, and can be read: `65 <= n <= 128`.
"""

from __future__ import annotations

from collections.abc import Mapping

from .size_code import Instruction, SizeCode

Between = tuple[int, int]

# Beyond what a size can be, and within what every player computes with.
_ANY: Between = (-(1 << 53), 1 << 53)


def intervals(
    code: SizeCode, guards: Mapping[int, bool], ranges: Mapping[str, Between]
) -> dict[int, Between]:
    """The interval of each register that has one; `guards` are registers of comparisons
    with their outcome, `ranges` what the symbols can be."""
    bounds = code.bounds(ranges)
    found: dict[int, Between] = {}
    for register, outcome in guards.items():
        at, span = _compared(code, register, outcome, bounds)
        at, span = _inverted(code, at, span)
        low, high = found.get(at, _ANY)
        found[at] = max(low, span[0]), min(high, span[1])
    return {
        register: (low, high)
        for register, (low, high) in found.items()
        if low > bounds[register][0] or high < bounds[register][1]
    }


def text(code: SizeCode, register: int, span: Between) -> str:
    """A guard as a person writes it."""
    each, (low, high) = code.instructions[register], span
    if each.operator in ("<", "==") and low == high:
        return code.text(register) if low else f"not {code.text(register)}"
    name = code.text(register)
    if low == high:
        return f"{name} == {low}"
    at_least = f"{low} <= " if low > _ANY[0] else ""
    at_most = f" <= {high}" if high < _ANY[1] else ""
    return f"{at_least}{name}{at_most}"


def _compared(
    code: SizeCode, register: int, outcome: bool, bounds: list[tuple[float, float]]
) -> tuple[int, Between]:
    """What the outcome of a comparison says, of an operand if it is of one alone."""
    each = code.instructions[register]
    left, right = code.constant(each.left), code.constant(each.right)
    low, high = _ANY
    if each.operator == "<" and right is not None:
        return each.left, (low, right - 1) if outcome else (right, high)
    if each.operator == "<" and left is not None:
        return each.right, (left + 1, high) if outcome else (low, left)
    if each.operator == "==" and right is not None:
        if outcome:
            return each.left, (right, right)
        if right <= bounds[each.left][0]:
            return each.left, (right + 1, high)
        if right >= bounds[each.left][1]:
            return each.left, (low, right - 1)
    return register, (int(outcome), int(outcome))


def _inverted(code: SizeCode, register: int, span: Between) -> tuple[int, Between]:
    """The same, said of what the register is computed from, as far as that goes."""
    while True:
        each = code.instructions[register]
        n = code.constant(each.right) if each.operator else None
        if n is None:
            return register, span
        low, high = _before(each, n, span)
        if (low, high) == _ANY:
            return register, span
        register, span = each.left, (low, high)


def _before(each: Instruction, n: int, span: Between) -> Between:
    """Where x lies if `x operator n` is in the interval; anywhere if that is no
    interval."""
    low, high = span
    match each.operator:
        case "+":
            made = low - n, high - n
        case "*" if n > 0:
            made = -(-low // n), high // n
        case "//" if n > 0:
            made = low * n, high * n + n - 1
        case "ceil" if n > 0:
            made = (low - 1) * n + 1, high * n
        case _:
            return _ANY
    return (
        made[0] if low > _ANY[0] else low,
        made[1] if high < _ANY[1] else high,
    )
