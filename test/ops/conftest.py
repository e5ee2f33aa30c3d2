"""Op tests run on two drivers, where the second is installed."""

from __future__ import annotations

import drivers
import harness
import pytest


@pytest.fixture(autouse=True)
def _two_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        harness, "adapters", (drivers.second,) if drivers.second else ()
    )
