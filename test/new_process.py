"""Runs code in an interpreter of its own, which executes programs and exports none."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

_QUICK = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import runtime_alone
sys.path.pop(0)
"""


def run(
    code: str, *args: object, cwd: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """`code` finds `args` in sys.argv; if the process crashes, Python says where."""
    return subprocess.run(
        [sys.executable, "-u", "-c", _QUICK + textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **env},
    )
