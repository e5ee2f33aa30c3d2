"""No function is longer than a screen or two: ruff counts statements, not lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 80


def functions(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(), str(path))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def lines(function: ast.FunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


@pytest.mark.parametrize("folder", ["executorch_webgpu", "benchmarks", "examples"])
def test_no_function_is_too_long(folder: str) -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{each.lineno} {each.name}": lines(each)
        for path in (ROOT / folder).rglob("*.py")
        if "_schema" not in path.parts
        for each in functions(path)
    }
    assert lengths
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}
