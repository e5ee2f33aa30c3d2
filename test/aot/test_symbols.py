"""Expressions over shape symbols: evaluated, refused, bounded."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from executorch_webgpu.errors import InvalidBlob, InvalidInput
from executorch_webgpu.export.fx_to_ir import expression_text
from executorch_webgpu.ir import symbols


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("s0", 7),
        ("(s0 + 1) // 2", 4),
        ("max(s0, s1) * -2", -18),
        ("s0 % 4", 3),
        ("s0 if s0 > 5 else s1", 7),
        ("s0 ** 2", 49),
    ],
)
def test_expressions_are_integer_arithmetic(text, value):
    assert symbols.evaluate(text, {"s0": 7, "s1": 9}) == value


@pytest.mark.parametrize("text", ["__import__('os')", "s0.real", "1 +", "[s0]", "s9"])
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidBlob, match="shape"):
        symbols.evaluate(text, {"s0": 7})


def test_sympy_expressions_survive_the_way_through_text():
    s0, s1 = sympy.symbols("s0 s1", integer=True, positive=True)
    for expression in (
        2 * s0 + s1 - 3,
        FloorDiv(s0 - 1, 2) + 1,
        Mod(s0, 4) * s1,
        sympy.Rational(1, 2) * s0 * (s0 + 1),
        sympy.Max(s0, s1) - sympy.Min(s0, s1),
    ):
        for env in ({"s0": 8, "s1": 3}, {"s0": 5, "s1": 11}):
            wanted = int(expression.subs({s0: env["s0"], s1: env["s1"]}))
            assert symbols.evaluate(expression_text(expression), env) == wanted


def test_a_symbol_is_found_alone_or_inside_an_expression():
    ranges = {"s0": (1, 512), "s1": (1, 8)}
    assert symbols.solve([("s0", 17), (3, 3), ("s1", 2)], ranges) == {
        "s0": 17,
        "s1": 2,
    }
    found = symbols.solve([("(s0 - 1) // 2 + 1", 100), ("s1 * s0", 398)], ranges)
    assert (found["s0"] - 1) // 2 + 1 == 100
    assert found["s0"] * found["s1"] == 398


def test_a_size_outside_the_exported_range_is_an_error():
    with pytest.raises(InvalidInput, match=r"s0 must be in \[2, 64\], got 65"):
        symbols.solve([("s0", 65)], {"s0": (2, 64)})


def test_the_largest_value_is_exact():
    ranges = {"s0": (8, 40), "s1": (1, 3)}
    # By intervals, 40 // (8 // 8).
    assert symbols.largest("s0 // (s0 // 8)", ranges) == 15
    assert symbols.largest("s0 % 7 + s1", ranges) == 9
    # Sizes for which there is no value do not count.
    assert symbols.largest("12 // (s1 - 1)", ranges) == 12
    assert symbols.largest("s0 * s2 % 5", {**ranges, "s2": (1, 10**6)}) is None
