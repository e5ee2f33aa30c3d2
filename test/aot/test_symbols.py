"""Expressions over shape symbols: evaluated, refused, bounded."""

from __future__ import annotations

import contextlib

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
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


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("9**9**9", "an exponent must be a number up to 16"),
        ("s0 ** s0", "an exponent must be a number up to 16"),
        ("(9 ** 16) ** 16", "a number in a shape expression must be within"),
        ("9" * 30, "shape expression must be arithmetic"),
        ("1e400", "shape expression must be arithmetic"),
        ("s0 + " * 1000 + "1", "shape expression must have at most 4000 characters"),
        ("s0+" * 600 + "1", "at most 500 numbers, symbols and operators, got 1201"),
        ("s0+" * 200 + "1", "shape expression must be nested at most 100 deep"),
        ("-" * 3000 + "1", "shape expression must parse"),
        ("min(s0)", "shape expression must be arithmetic"),
        ("min(s0, key=s0)", "shape expression must be arithmetic"),
        ("s0\n", r"shape expression must be arithmetic, got 's0\\n'"),
    ],
)
def test_the_work_that_a_text_asks_for_is_limited(text, requirement):
    with pytest.raises(InvalidBlob, match=requirement):
        symbols.evaluate(text, {"s0": 7})


def test_a_size_that_divides_by_zero_is_an_error():
    with pytest.raises(InvalidInput, match=r"size 4 // \(s0 - 7\) must not divide by"):
        symbols.evaluate("4 // (s0 - 7)", {"s0": 7})


_VALUES = st.integers(-9, 9)
_LEAVES = st.sampled_from(["s0", "s1", "0", "1", "2", "7", "0.5", "2.75"])
_FORMS = st.sampled_from(
    [
        *(f"({{0}} {operator} {{1}})" for operator in ("+", "-", "*", "/", "//", "%")),
        *(f"({{0}} {test} {{1}})" for test in ("<", "<=", ">", ">=", "==", "!=")),
        *(f"{name}({{0}})" for name in ("abs", "trunc", "floor", "ceil", "-")),
        *("min({0}, {1})", "max({0}, {1})", "({0} ** 2)", "({0} ** 3)"),
        "({0} if {1} else {2})",
    ]
)
_EXPRESSIONS = st.recursive(
    _LEAVES,
    lambda inner: st.builds(str.format, _FORMS, inner, inner, inner),
    max_leaves=12,
)


@given(_EXPRESSIONS, _VALUES, st.integers(0, 9), _VALUES)
@settings(max_examples=150, deadline=None)
def test_bounds_and_solutions_are_those_of_trying(text, low, more, other):
    """Against all values of s0 in its range, with s1 known or of its own."""
    values = {}
    for s0 in range(low, low + more + 1):
        with contextlib.suppress(InvalidInput):
            values[s0] = symbols.evaluate(text, {"s0": s0, "s1": other})
    ranges = {"s0": (low, low + more), "s1": (other, other)}
    for value in set(values.values()):
        found = symbols.solve([("s1", other), (f"({text}) + 0 * s0", value)], ranges)
        assert found["s0"] == next(s0 for s0 in values if values[s0] == value)
    most = max(values.values(), default=0)
    assert symbols.excess(text, ranges, most, symbols.Visits()) is None
    if values:
        beyond = symbols.excess(text, ranges, most - 1, symbols.Visits())
        ends = {name: low for name, (low, _) in ranges.items()}
        assert symbols.evaluate(text, {**ends, **beyond}) == most


@pytest.mark.parametrize(
    ("text", "value", "found"),
    [
        ("(s0 - 1) // 2 + 1", 1_000_000, 1_999_999),
        (
            "s0 * 2",
            4_000_001,
            1,
        ),  # no size: what does not match is refused by the caller
        ("trunc(s0 * 1.5)", 3_000_001, 2_000_001),
        ("3000001 - s0", 5, 2_999_996),
        ("s0 % 4096 + s0 * 0", 4095, 4095),
    ],
)
def test_a_symbol_of_a_wide_range_is_found_in_few_steps(
    monkeypatch, text, value, found
):
    monkeypatch.setattr(symbols, "MAX_VISITS", 1000)
    assert symbols.solve([(text, value)], {"s0": (1, 3_000_000)}) == {"s0": found}


def test_the_search_for_a_symbol_ends(monkeypatch):
    monkeypatch.setattr(symbols, "MAX_VISITS", 1000)
    ranges = {"s0": (1, 2**31)}
    assert symbols.solve([("s0 * s0 % 7", 5)], ranges) == {"s0": 1}
    assert symbols.excess("s0 * s0 % 7", ranges, 5, symbols.Visits()) is None


def test_a_size_that_shrinks_as_its_symbol_grows_exceeds_its_bound_at_the_low_end():
    ranges = {"s0": (2, 1_000_000)}
    assert symbols.excess("1000002 - s0", ranges, 2, symbols.Visits()) == {"s0": 2}
    assert symbols.excess("1000002 - s0", ranges, 1_000_000, symbols.Visits()) is None
