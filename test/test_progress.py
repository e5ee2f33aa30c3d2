"""The line on a terminal that shows what takes long."""

from __future__ import annotations

import io
import time

import pytest

from executorch_webgpu import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0.05)
    monkeypatch.setattr(progress, "_EVERY", 0.01)


def test_a_terminal_sees_stage_and_steps_and_then_nothing():
    screen = Terminal()
    with progress.Progress("exporting", 4, screen) as bar:
        bar.stage("lowering")
        bar.step()
        limit = time.monotonic() + 10
        while not screen.getvalue() and time.monotonic() < limit:
            time.sleep(0.01)
    lines = screen.getvalue().split("\r\x1b[K")
    assert lines[1] == "exporting [#####---------------] 1/4 lowering 0 s"
    assert lines[-1] == ""


def test_a_file_gets_nothing():
    log = io.StringIO()
    with progress.Progress("exporting", stream=log):
        time.sleep(0.1)
    assert log.getvalue() == ""


def test_what_is_quick_shows_nothing(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 60)
    screen = Terminal()
    with progress.Progress("exporting", stream=screen):
        pass
    assert screen.getvalue() == ""


def test_an_error_passes():
    screen = Terminal()
    with pytest.raises(ValueError, match="no"), progress.Progress("x", stream=screen):
        raise ValueError("no")
