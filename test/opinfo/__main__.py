"""PyTorch's own samples of every op against us: `python test/opinfo`.

    python test/opinfo [--dtype float32|...|errors]... [--samples N]
        [--record FILE] [--write] [pytest options]

The exit status is 0 if no result is wrong, nothing that was delegated failed, whatever
was left on the CPU has a reason, and, if all of it ran, the docs say what came out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def main() -> int:
    # So that `opinfo` is a package, in the workers of pytest-xdist too.
    sys.path.insert(0, str(HERE.parent))
    output = ["-q", "--tb=line", "--show-capture=no", "-r", "N", "-W", "ignore"]
    # In a process of its own, which a kernel may take down.
    workers = [] if "-n" in sys.argv else ["-n", "1"]
    ours = ["-p", "opinfo.plugin", str(HERE / "cases.py")]
    return pytest.main([*output, *workers, *ours, *sys.argv[1:]])


sys.exit(main())
