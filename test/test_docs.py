"""What the documentation says of ops and conformance is what the code says."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import accuracy
import op_coverage
import pytest
from conformance.exceptions import EXCEPTIONS, SKIPPED

ROOT = Path(__file__).parent.parent
# One process plans all ops, once.
pytestmark = pytest.mark.xdist_group("docs")


@functools.cache
def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look
    spec.loader.exec_module(module)
    return module


def test_the_table_of_ops_is_up_to_date() -> None:
    op_table = _script("op_table")
    written = op_table.PATH.read_text(encoding="utf-8").splitlines()
    made = op_table.table().splitlines()
    missing = [line for line in made if line not in written]
    stale = [line for line in written if line not in made]
    assert not missing + stale, "run scripts/op_table.py\n" + "\n".join(missing + stale)


def test_every_absent_core_op_has_a_reason() -> None:
    op_table = _script("op_table")
    core = list(op_table.core_overloads())
    reasons = {name for names in op_table.ABSENT.values() for name in names}
    absent = {name for name in core if not op_table.is_supported(name)}
    assert absent - reasons == set()
    assert reasons & set(core) - absent == set(), "these have a kernel"
    assert len(core) - len(absent) >= 165


def test_every_op_plans_for_some_type() -> None:
    """Otherwise the table's sample arguments are wrong, or the op is useless."""
    op_table = _script("op_table")
    assert [
        name for name in op_table.listed() if not op_table.support(name).types
    ] == []


def test_every_op_is_judged_and_every_limit_used() -> None:
    """Each op has a limit and a test, and what is listed of ops is of real ones."""
    names = op_coverage.public_ops()
    assert {accuracy.of(name) for name in names} == set(accuracy.LIMITS)
    for name in names:
        assert (ROOT / "test" / "ops" / f"{op_coverage.test_of(name)}.py").exists()
    bases = {name.split(".", 2)[1] for name in names}
    whole = {name.split(".", 1)[1] for name in names}
    assert op_coverage.listed() <= bases | whole


def test_every_exception_to_conformance_is_documented() -> None:
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    for left, reason in EXCEPTIONS.items():
        op, _, _ = left.partition(":")
        assert f"| `{op}` | {reason} |" in text
    rows = [line for line in text.splitlines() if line.startswith("| `test_")]
    for test, reason in SKIPPED.items():
        assert any(f"`{test}`" in row and reason in row for row in rows), test
