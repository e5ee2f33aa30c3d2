"""README's example runs as it stands, each half in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pages

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def test_the_example_runs(tmp_path: Path):
    check_example(Path(sys.executable), tmp_path)


def check_example(python: Path, folder: Path) -> None:
    """README's two halves, run by an interpreter in a folder."""
    _, run = (b.text for b in pages.blocks(README) if b.language == "python")
    assert "executorch_webgpu" not in run
    said = pages.run(README, python, folder)
    (summary,) = re.findall(
        r"`(\d+ of \d+ ops on WebGPU[^`]*)`", README.read_text("utf-8")
    )
    assert " ".join(summary.split()) == said[0].splitlines()[-1]
    assert "tensor(" in said[1]
    assert (folder / "model.pte").exists()


def test_every_environment_variable_is_an_option():
    from executorch_webgpu.options import NAMES

    text = (ROOT / "docs" / "usage.md").read_text()
    named = set(re.findall(r"^\| `ET_WEBGPU_(\w+)`", text, re.MULTILINE))
    assert named == {name.upper() for name in NAMES} | {"AUTOLOAD"}


def test_the_generated_sections_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "readme_tables.py", "--check"], check=False
    )
    assert done.returncode == 0, "run scripts/readme_tables.py"
