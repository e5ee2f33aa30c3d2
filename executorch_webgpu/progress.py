"""What takes long, as a line on a terminal: its title, stage, share and seconds.

Nothing is written before two seconds have passed, nor where stderr is no terminal; the
line is gone in the end. A thread redraws it, so a stage that tells nothing still shows
that time passes.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

_PATIENCE = 2.0  # seconds without a line
_EVERY = 0.2  # seconds
_BAR = 20  # characters


class Progress:
    """Used as a context; `total` is of steps, if they can be counted."""

    drawn = 0  # lines on terminals now, or in the seconds before they are shown

    def __init__(
        self, title: str, total: int | None = None, stream: TextIO | None = None
    ) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self._stage = ""
        self._stream = sys.stderr if stream is None else stream
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = 0.0

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if self._stream.isatty():
            Progress.drawn += 1
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def stage(self, name: str) -> None:
        """What is being done from now on."""
        self._stage = name

    def step(self, count: int = 1) -> None:
        self.done += count

    def line(self) -> str:
        parts = [self.title]
        if self.total:
            filled = min(_BAR, _BAR * self.done // self.total)
            bar = "#" * filled + "-" * (_BAR - filled)
            parts.append(f"[{bar}] {self.done}/{self.total}")
        if self._stage:
            parts.append(self._stage)
        parts.append(f"{time.monotonic() - self._began:.0f} s")
        return " ".join(parts)

    def _draw(self) -> None:
        shown = False
        wait = _PATIENCE
        while not self._ended.wait(wait):
            line = self.line()
            if self._ended.is_set():
                break
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{line[:width]}")
            self._stream.flush()
            shown, wait = True, _EVERY
        if shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        Progress.drawn -= 1
