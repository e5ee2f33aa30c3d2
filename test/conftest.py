"""Every test outside test/aot needs an adapter: without one it fails, none skips."""

from __future__ import annotations

import os

# Torch's threads spin, which two cores that also run the driver cannot afford.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import drivers
import fast_export
import pytest
import torch


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


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
