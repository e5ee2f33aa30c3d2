"""ExecuTorch's backend suite against us: `python test/conformance`.

    python test/conformance [--flow NAME]... [--suite operators|models] [--sample]
        [pytest options]

Without `--suite` it is that of operators, or both where some of every flow are enough.
The exit status is 0 if no test failed, at least 95% of the subtests that passed left
nothing on the CPU, and what was left or skipped is in exceptions.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import pytest

FLOWS = ("webgpu", "webgpu_fp16", "webgpu_static_int8")
# What is run beside the operators in float32 where time is short: each op in
# float16, those that the quantizer changes in int8, and small whole models.
_QUANTIZED = (
    "test_linear or test_conv2d or test_conv1d_dtype or test_convtranspose2d_dtype"
    " or test_cat or test_add or test_multiply or test_adaptive_avgpool2d"
)
SAMPLES = {
    "operators": f"(fp16 and dtype and not lstm) or (int8 and ({_QUANTIZED}))",
    "models": "squeezenet1_1 or (wav2letter and not fp16 and not int8)",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python test/conformance")
    parser.add_argument("--flow", choices=FLOWS, action="append", default=[])
    parser.add_argument("--suite", choices=tuple(SAMPLES))
    parser.add_argument("--sample", action="store_true", help="some of every flow")
    options, rest = parser.parse_known_args()
    flows = tuple(options.flow) or (FLOWS if options.sample else FLOWS[:1])
    # So that `conformance` is a package, in the workers of pytest-xdist too.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    spec = importlib.util.find_spec("executorch.backends.test.suite")
    assert spec is not None
    assert spec.origin is not None
    suite = Path(spec.origin).parent
    every = tuple(SAMPLES) if options.sample else ("operators",)
    parts = (options.suite,) if options.suite else every
    # The suite is another project's: none of our own pytest settings apply.
    settings = ["-c", "/dev/null", "--rootdir", str(suite), "-p", "no:cacheprovider"]
    output = ["-q", "--tb=short", "--show-capture=no", "-W", "ignore"]
    chosen = " or ".join(f"flow_{flow}" for flow in flows)
    ours = ["-p", "conformance.plugin", "-m", chosen]
    if "models" in parts:
        ours += ["-p", "conformance.domains"]
    if options.sample:
        ours += ["-k", " or ".join(f"{part} and ({SAMPLES[part]})" for part in parts)]
    elif flows == FLOWS[:1] and parts == ("operators",) and "-k" not in rest:
        # All of what `make test` runs: docs/conformance.md must say what came out.
        ours += ["--documented-as", "operators, float32"]
    folders = [str(suite / part) for part in parts]
    return pytest.main([*settings, *output, *ours, *rest, *folders])


sys.exit(main())
