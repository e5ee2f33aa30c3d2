"""How tests are given to processes; what each process does is in each_process.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Torch's threads spin, which two cores that also run the driver cannot afford.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# llvmpipe compiles for four lanes in less than half the time that it takes for eight,
# and without optimising in four fifths of that; most tests wait for it. Commands
# outside pytest have its own defaults, and must not find such kernels in Mesa's cache,
# which does not tell them apart.
os.environ.setdefault("LP_NATIVE_VECTOR_WIDTH", "128")
os.environ.setdefault("GALLIVM_PERF", "nopt")
os.environ.setdefault(
    "MESA_SHADER_CACHE_DIR",
    str(Path(__file__).parents[1] / "build" / "test-cache" / "mesa"),
)

# Files whose tests share what takes long to make: one process runs all of a file.
_TOGETHER = frozenset(
    {
        "test/models/test_chat.py",
        "test/models/test_llm.py",
        "test/models/test_llm_state.py",
        "test/models/test_stories.py",
        "test/test_docs.py",
        "test/test_install.py",
        "test/test_package.py",
        "test/test_tint.py",
        "test/test_tutorials.py",
    }
)


def pytest_configure(config: pytest.Config) -> None:
    """The process that only hands tests to others imports nothing that they test."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("each_process")


class _Scheduling(LoadScopeScheduling):
    """Gives the processes of pytest-xdist single tests, or files of `_TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in _TOGETHER else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    return _Scheduling(config, log)
