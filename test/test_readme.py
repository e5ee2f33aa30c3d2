"""What README and docs/usage.md say of the code. README's example runs where the wheel
is installed, in test_package.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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
