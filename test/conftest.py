"""Every test outside test/aot needs an adapter: without one it fails, none skips."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Torch's threads spin, which two cores that also run the driver cannot afford.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# llvmpipe compiles for four lanes in less than half the time that it takes for eight,
# and most tests wait for that. Commands outside pytest have its own default, and must
# not find such kernels in Mesa's cache, which does not tell them apart.
os.environ.setdefault("LP_NATIVE_VECTOR_WIDTH", "128")
os.environ.setdefault(
    "MESA_SHADER_CACHE_DIR",
    str(Path(__file__).parents[1] / "build" / "test-cache" / "mesa"),
)

import drivers
import fast_export
import pytest
import torch
from xdist.scheduler import LoadScopeScheduling

from executorch_webgpu.runtime import delegate

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


def pytest_sessionstart(session: pytest.Session) -> None:
    torch.set_num_threads(1)
    fast_export.start()


def pytest_collection_finish(session: pytest.Session) -> None:
    fast_export.imported()


def pytest_report_header() -> str:
    return f"op tests on: {' and '.join(drivers.wanted())}"


class _Scheduling(LoadScopeScheduling):
    """Gives the processes of pytest-xdist single tests, or files of `_TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in _TOGETHER else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    return _Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def _adapter() -> None:
    drivers.start()


@pytest.fixture(scope="module", autouse=True)
def _young_heap() -> None:
    """What other files have left is not searched for garbage: at the end of a run that
    takes seconds, and many tests collect garbage to see that nothing is left."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def nothing_leaks() -> Iterator[None]:
    """The test leaves as many delegates and GPU objects as it found."""
    gc.collect()
    before = delegate.stats()
    yield
    gc.collect()
    after = delegate.stats()
    for name in ("delegates", "buffers", "bind_groups"):
        assert getattr(after, name) == getattr(before, name), name


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
