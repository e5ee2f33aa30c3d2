"""Sizes that are polynomials over symbols, so that equal ones are written alike.

A file has the largest extents only. `infer.py` finds what the others are from symbols
for those of the inputs; whether two of them are the same has to be seen there. What is
no polynomial, such as a division with a remainder, is a symbol of a kind: an atom,
whose name is its text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..ir import symbols

# Sizes beyond these are not worth following.
MAX_TERMS = 32
MAX_DEGREE = 16
MAX_ATOM = 400  # characters
MAX_FACTOR = 1 << 62


class Undecided(Exception):
    """What a size is cannot be told; the caller then takes the largest."""


@dataclass(frozen=True)
class Size:
    """A sum of products of atoms, each with a factor; never a plain number."""

    terms: tuple[tuple[tuple[str, ...], int], ...]

    def __str__(self) -> str:
        texts = []
        for atoms, factor in self.terms:
            parts = [str(factor)] if factor != 1 or not atoms else []
            texts.append(" * ".join([*parts, *atoms]))
        return texts[0] if len(texts) == 1 else f"({' + '.join(texts)})"

    @property
    def names(self) -> frozenset[str]:
        """The symbols in it, those within atoms too."""
        return symbols.names(str(self))

    @property
    def symbol(self) -> str | None:
        """Its name, if it is a symbol alone."""
        if len(self.terms) == 1:
            ((atoms, factor),) = self.terms
            if factor == 1 and len(atoms) == 1 and atoms[0].isidentifier():
                return atoms[0]
        return None


Dim: TypeAlias = "int | Size"


def symbol(name: str) -> Size:
    return Size((((name,), 1),))


def add(a: Dim, b: Dim) -> Dim:
    terms = dict(_terms(a))
    for atoms, factor in _terms(b):
        terms[atoms] = terms.get(atoms, 0) + factor
    return _made(terms)


def sub(a: Dim, b: Dim) -> Dim:
    return add(a, mul(b, -1))


def mul(*factors: Dim) -> Dim:
    made: Dim = 1
    for factor in factors:
        terms: dict[tuple[str, ...], int] = {}
        for left, a in _terms(made):
            for right, b in _terms(factor):
                atoms = tuple(sorted((*left, *right)))
                terms[atoms] = terms.get(atoms, 0) + a * b
        made = _made(terms)
    return made


def floordiv(a: Dim, b: Dim) -> Dim:
    exact = quotient(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and b <= 0:
        raise Undecided(f"a divisor must be positive, got {b}")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return atom(f"({a} // {b})")


def atom(text: str) -> Size:
    """An expression that is no polynomial."""
    if len(text) > MAX_ATOM:
        raise Undecided(f"a size must have at most {MAX_ATOM} characters")
    return symbol(text)


def least(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else atom(f"min({a}, {b})")


def quotient(a: Dim, b: Dim) -> Dim | None:
    """a / b, if b is one product and divides every term of a; else None."""
    divisor = _terms(b)
    if len(divisor) != 1 or divisor[0][1] == 0:
        return None
    ((below, by),) = divisor
    terms = {}
    for atoms, factor in _terms(a):
        left = list(atoms)
        for atom in below:
            if atom not in left:
                return None
            left.remove(atom)
        if factor % by:
            return None
        terms[tuple(left)] = factor // by
    return _made(terms)


def at(size: Dim, env: Mapping[str, int]) -> int:
    """The value of a size for values of its symbols."""
    return size if isinstance(size, int) else symbols.evaluate(str(size), env)


def substitute(size: Dim, found: Mapping[str, Dim]) -> Dim:
    """The size with symbols replaced; Undecided if one of them is within an atom."""
    if isinstance(size, int) or not size.names & found.keys():
        return size
    made: Dim = 0
    for atoms, factor in size.terms:
        parts: list[Dim] = [factor]
        for atom in atoms:
            if atom not in found and symbols.names(atom) & found.keys():
                raise Undecided(f"{atom} must not be replaced in")
            parts.append(found.get(atom, symbol(atom)))
        made = add(made, mul(*parts))
    return made


def solved(
    difference: Dim, may_replace: Callable[[str], bool]
) -> tuple[str, Dim] | None:
    """A symbol and what it is if a difference is 0; None if there is no such symbol.

    A whole equation may have a common factor, as 8 * a - 8 * b has.
    """
    terms = _terms(difference)
    common = math.gcd(*(factor for _, factor in terms))
    for atoms, factor in terms:
        if len(atoms) != 1 or abs(factor) != common or not may_replace(atoms[0]):
            continue
        (name,) = atoms
        rest = sub(difference, mul(factor, symbol(name)))
        value = quotient(mul(rest, -1), factor)
        if value is not None and (isinstance(value, int) or name not in value.names):
            return name, value
    return None


def _terms(size: Dim) -> tuple[tuple[tuple[str, ...], int], ...]:
    if isinstance(size, Size):
        return size.terms
    if type(size) is not int:  # a file may have anything among sizes
        raise Undecided("a size must be an integer")
    return (((), size),)


def _made(terms: Mapping[tuple[str, ...], int]) -> Dim:
    kept = {atoms: factor for atoms, factor in terms.items() if factor}
    if not kept:
        return 0
    if (
        len(kept) > MAX_TERMS
        or max(map(len, kept)) > MAX_DEGREE
        or max(map(abs, kept.values())) > MAX_FACTOR
    ):
        raise Undecided(f"a size must have at most {MAX_TERMS} small terms")
    if kept.keys() == {()}:
        return kept[()]
    return Size(tuple(sorted(kept.items())))
