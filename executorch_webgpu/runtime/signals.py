"""Ctrl-C while GPU objects are made and freed.

wgpu-py runs Python in callbacks and finalizers, where an exception is printed and lost,
and a call that is left in the middle leaks what it was making. So where `held` is in
force SIGINT waits for the next `check`, which raises where any other failure may come
up. Planning makes no GPU objects, and is interrupted wherever it is.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_Handler = Callable[[int, FrameType | None], object]


class _Held:
    """SIGINT, held from its handler."""

    def __init__(self, handler: _Handler) -> None:
        self._handler = handler
        self._has_arrived = False

    def arrive(self, number: int, frame: FrameType | None) -> None:
        self._has_arrived = True

    def handle(self) -> None:
        if self._has_arrived:
            self._has_arrived = False
            self._handler(signal.SIGINT, inspect.currentframe())


_held: _Held | None = None


@contextmanager
def held() -> Iterator[None]:
    """Holds SIGINT in the main thread, the only one that Python interrupts."""
    global _held
    handler = signal.getsignal(signal.SIGINT)
    if not _is_main_thread() or _held is not None or not callable(handler):
        yield
        return
    holding = _held = _Held(handler)
    try:
        signal.signal(signal.SIGINT, holding.arrive)
        yield
    finally:
        _held = None
        signal.signal(signal.SIGINT, handler)
        holding.handle()


def check() -> None:
    """Handles a SIGINT that was held."""
    if _held is not None and _is_main_thread():
        _held.handle()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
