"""README's example runs as it stands, each half in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_example_runs(tmp_path: Path):
    readme = (ROOT / "README.md").read_text()
    export, run = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[:2]
    assert "executorch_webgpu" not in run
    said = []
    for part in (export, run):
        done = subprocess.run(
            [sys.executable, "-c", part],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    (summary,) = re.findall(r"`(\d+ of \d+ ops on WebGPU[^`]*)`", readme)
    assert " ".join(summary.split()) == said[0].splitlines()[-1]
    assert "tensor(" in said[1]
    assert (tmp_path / "model.pte").exists()


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
