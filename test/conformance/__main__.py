"""ExecuTorch's backend suite against us: `python test/conformance`.

    python test/conformance [--flow NAME] [--suite operators|models] [pytest options]

The exit status is 0 if no test failed and at least 95% of the subtests that
passed left nothing on the CPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import pytest

FLOWS = ("webgpu", "webgpu_fp16", "webgpu_static_int8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python test/conformance")
    parser.add_argument("--flow", choices=FLOWS, default="webgpu")
    parser.add_argument("--suite", choices=("operators", "models"), default="operators")
    options, rest = parser.parse_known_args()
    # So that `conformance` is a package, in the workers of pytest-xdist too.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    spec = importlib.util.find_spec("executorch.backends.test.suite")
    assert spec is not None
    assert spec.origin is not None
    suite = Path(spec.origin).parent / options.suite
    # The suite is another project's: none of our own pytest settings apply.
    settings = ["-c", "/dev/null", "--rootdir", str(suite), "-p", "no:cacheprovider"]
    output = ["-q", "--tb=short", "--show-capture=no", "-W", "ignore"]
    ours = ["-p", "conformance.plugin", "-m", f"flow_{options.flow}"]
    return pytest.main([*settings, *output, *ours, *rest, str(suite)])


sys.exit(main())
