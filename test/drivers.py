"""The drivers that ops are tested on: the machine's own and, beside it, SwiftShader.

Both are adapters of one process, so that a program is exported once and run on
both. `scripts/install-swiftshader.sh` puts the second one into the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from executorch_webgpu import options
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.runtime import device

_MANIFEST = Path(sys.prefix) / "swiftshader" / "vk_swiftshader_icd.json"
# Read by Vulkan's loader when wgpu first looks for adapters.
_MORE_DRIVERS = "VK_ADD_DRIVER_FILES"
_ONLY_DRIVERS = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")

# Whether kernels for GPUs are played on the first driver, too slow for `make test`.
ON_FIRST = os.environ.get("TEST_ON_FIRST_DRIVER") == "1"

second = ""  # the second adapter's name for the option `adapter`


def _has_second() -> bool:
    return _MANIFEST.exists() and not any(map(os.environ.get, _ONLY_DRIVERS))


def wanted() -> list[str]:
    """The drivers that `start` will ask for."""
    return ["the machine's own driver", *(["SwiftShader"] if _has_second() else [])]


@contextmanager
def both_found() -> Iterator[None]:
    """Who looks for adapters inside finds the second one, too."""
    os.environ[_MORE_DRIVERS] = str(_MANIFEST)
    try:
        yield
    finally:
        os.environ.pop(_MORE_DRIVERS, None)


def start() -> None:
    """Makes the devices. Whoever chose one driver by the environment gets that."""
    global second
    adding = _has_second()
    with both_found() if adding else nullcontext():
        first = device.get_device()
    if adding and "swiftshader" not in first.caps.name.lower():
        # Installed and not found is a failure: ops would be tested on one driver.
        device.get_device("swiftshader")
        second = "swiftshader"


def for_gpu_kernels(needs_f16: bool) -> str:
    """Where kernels for GPUs are played: on SwiftShader, which compiles them in a
    tenth of the time that LLVM takes for them, but has no f16."""
    return "" if needs_f16 or ON_FIRST else second


def needs_f16(plan: Plan) -> bool:
    return any("enable f16;" in pipeline.wgsl for pipeline in plan.pipelines)


@contextmanager
def chosen(adapter: str) -> Iterator[None]:
    """What is loaded inside runs on that adapter."""
    before = options.current().adapter
    options.override({"adapter": adapter})
    try:
        yield
    finally:
        options.override({"adapter": before})
