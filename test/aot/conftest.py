"""What happens before a program is loaded needs no adapter: asking for one fails."""

from __future__ import annotations

import pytest

from executorch_webgpu.runtime import device


@pytest.fixture(autouse=True)
def _adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the fixture that starts the drivers for all other tests."""

    def refuse(asked: str | None = None) -> device.Device:
        raise AssertionError(
            "test/aot: a test must need no adapter, got one that asks for a device;"
            " programs are run by the tests of test/lowered"
        )

    monkeypatch.setattr(device, "get_device", refuse)
