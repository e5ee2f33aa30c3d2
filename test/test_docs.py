"""What the documentation says of ops, conformance and files is what the code says."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import accuracy
import op_coverage
import pytest
from conformance.exceptions import EXCEPTIONS, SKIPPED

from executorch_webgpu.ir import expressions, intervals, serialize, symbols, verify
from executorch_webgpu.options import Options
from executorch_webgpu.plan import launches
from executorch_webgpu.runtime import device

ROOT = Path(__file__).parent.parent


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


PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
)


@functools.cache
def _files() -> list[str]:
    """Everything of the project, each behind a slash."""
    tops = [p for p in ROOT.iterdir() if p.name[0] != "." and p.name != "build"]
    paths = [path for top in tops for path in (top, *top.rglob("*"))]
    return [f"/{path.relative_to(ROOT).as_posix()}" for path in paths]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    """Files in backticks, by the end of their path, and the targets of links."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`([\w./-]+\.(?:py|wgsl|cpp|h|md|fbs|sh|toml))`", text)
    assert [n for n in named if not any(f.endswith(f"/{n}") for f in _files())] == []
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    folder = (ROOT / page).parent
    assert [link for link in linked if not (folder / link).exists()] == []


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    pages = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    assert [page for page in pages if page not in index] == []


# By the begin of a row of docs/security.md; those without a number of ours are absent.
LIMITS = {
    "bytes of a delegate": [serialize.MAX_BYTES],
    "values, calls, symbols": [
        verify.MAX_VALUES,
        verify.MAX_CALLS,
        verify.MAX_SYMBOLS,
    ],
    "dispatches": [launches.MOST_DISPATCHES],
    "rank": [verify.MAX_RANK],
    "elements of a value": [verify.MAX_ELEMENTS],
    "bytes of all values": [verify.MAX_TOTAL_BYTES],
    "outputs of a call": [verify.MAX_OUTPUTS],
    "arguments of a call": [verify.MAX_ARGS],
    "items in the lists": [verify.MAX_ITEMS, serialize.MAX_NESTING],
    "steps": [verify.MAX_STEPS],
    "characters of a name": [verify.MAX_NAME],
    "a size's expression": [
        expressions.MAX_TEXT,
        expressions.MAX_NODES,
        expressions.MAX_DEPTH,
    ],
    "an exponent": [expressions.MAX_EXPONENT, intervals.MAX_NUMBER],
    "nodes visited": [symbols.MAX_VISITS],
    "plans that a method keeps": [Options().plan_cache],
    "compiled kernels kept": [device.KEPT_PIPELINES],
    "seconds that a call waits": [Options().timeout],
}


@pytest.mark.parametrize("row", LIMITS)
def test_limits_are_those_of_the_code(row: str) -> None:
    lines = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {row}")]
    cell = re.sub(r"\(.*\)", "", line.split("|")[2])
    number = r"(\d+(?:,\d{3})*)(?:\^(\d+))?(?: - (\d+))?"
    found = [
        int(base.replace(",", "")) ** int(power or 1) - int(less or 0)
        for base, power, less in re.findall(number, cell)
    ]
    assert found == LIMITS[row], line
