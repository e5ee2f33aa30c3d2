"""What is installed is what `make lock` has locked, by version and hash."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "requirements"


def _pins(name: str) -> set[tuple[str, str]]:
    """(package, version) of the lines of a file that begin with one."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return set(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["run", "test", "site"])
def test_what_is_asked_for_is_locked(name: str) -> None:
    assert _pins(f"{name}.in") - _pins(f"{name}.txt") == set(), "run `make lock`"


@pytest.mark.parametrize("name", ["run.txt", "test.txt", "site.txt"])
def test_every_package_has_hashes_and_no_source(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert entries
    assert [e for e in entries if "--hash=sha256:" not in e] == []
    assert "://" not in text
    assert "index" not in text


def test_all_files_lock_one_version() -> None:
    locked = [_pins(f"{name}.txt") for name in ("run", "test", "site")]
    for one, other in itertools.combinations(locked, 2):
        shared = {package for package, _ in one} & {package for package, _ in other}
        assert shared
        assert {p for p in one if p[0] in shared} == {
            p for p in other if p[0] in shared
        }
