"""The version: that of the newest git tag, in one place, with an entry in the log."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_package import with_node

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str, folder: Path) -> str:
    me = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    command = ["git", *me, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fallback() -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (found,) = re.findall(r'^fallback_version = "(.+)"$', text, re.MULTILINE)
    return str(found)


def derived(folder: Path) -> str:
    """What setuptools-scm makes of a folder, as a build in it does."""
    # pytest's own environment may say otherwise.
    env = {name: text for name, text in os.environ.items() if "SCM" not in name}
    command = [sys.executable, "-m", "setuptools_scm"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the version depends on, without git."""
    (tmp_path / "web").mkdir()
    for name in ("pyproject.toml", "web/version.mjs", "web/package.json"):
        shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


def stamped(tree: Path) -> str:
    """The version of the npm package, once it is to be published."""
    node = shutil.which("node", path=with_node()["PATH"])
    assert node is not None, "Node must be there: scripts/setup.sh test"
    subprocess.run([node, "version.mjs"], cwd=tree / "web", check=True)
    return str(json.loads((tree / "web" / "package.json").read_text())["version"])


def test_without_git_it_is_the_newest_release(tree: Path) -> None:
    assert derived(tree) == fallback() == stamped(tree)


def test_it_is_that_of_the_tag(tree: Path) -> None:
    git("init", "-q", folder=tree)
    git("add", ".", folder=tree)
    git("commit", "-qm", "one", folder=tree)
    git("tag", "v7.8.9", folder=tree)
    assert derived(tree) == "7.8.9"
    git("commit", "-qm", "two", "--allow-empty", folder=tree)
    assert derived(tree).startswith("7.8.10.dev1+g")
    assert stamped(tree) == "7.8.9"


def test_every_release_has_an_entry() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert heads[0] == ("Unreleased", "")
    releases = dict(heads[1:])
    assert all(releases.values()), "a release has a date"
    # Before the first release, what it will be.
    assert fallback() == next(iter(releases), "0.1.0")
    if (ROOT / ".git").exists():
        tags = git("tag", "--list", "v[0-9]*", folder=ROOT).split()
        assert [tag for tag in tags if tag.removeprefix("v") not in releases] == []


def test_nothing_else_says_a_version() -> None:
    """What is built and published asks for it."""
    assert json.loads((ROOT / "web" / "package.json").read_text())["version"] == "0.0.0"
    for name in ("CMakeLists.txt", "setup.py", "executorch_webgpu/__init__.py"):
        assert f'"{fallback()}"' not in (ROOT / name).read_text(encoding="utf-8")
