"""What every process of the tests does, and the fixtures of all tests.

Every test outside test/aot needs an adapter: without one it fails, none skips.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import drivers
import fast_export
import pytest
import torch

from executorch_webgpu.runtime import delegate


def pytest_sessionstart(session: pytest.Session) -> None:
    torch.set_num_threads(1)
    fast_export.start()


def pytest_collection_finish(session: pytest.Session) -> None:
    fast_export.imported()


def pytest_report_header() -> str:
    return f"op tests on: {' and '.join(drivers.wanted())}"


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
