"""An engine in a process of its own, so that its memory is its own and a crash ends it
alone.

The parent's side is a Worker, whose `ask` calls a method of the child's Served and
returns what that returns. What the child's libraries print is kept for the message of a
crash, and is on stderr with `--verbose`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NoReturn

from .. import stats
from ..errors import WebGPUError
from .engines import ENGINES, Task
from .loaded import as_numpy

# Seconds until a child that was told to end is killed.
_PATIENCE = 20.0


@dataclass(frozen=True)
class Call:
    """The seconds of a call, and where they went; the rest of `total` is the host's.

    None where the engine, or its player, does not tell.
    """

    total: float
    upload: float | None = None
    gpu: float | None = None
    read: float | None = None


@dataclass(frozen=True)
class Start:
    """What a user waits for first, and the memory that it takes."""

    load_seconds: float | None  # None if there is nothing to load
    first_seconds: float
    outputs: list[Any]  # arrays, of the first call
    adapter: str  # "" if there is no GPU in it
    resident_before: int  # bytes, with all imported and exported


@dataclass(frozen=True)
class Memory:
    """What an engine holds after its runs."""

    gpu_bytes: int
    peak_resident: int  # bytes


class Served:
    """What the parent may ask for."""

    def __init__(self, engine: str, task: Task) -> None:
        self._engine = ENGINES[engine](task)

    def prepare(self) -> None:
        _ = self._engine.flat
        self._engine.prepare()

    def start(self) -> Start:
        before = peak_resident()
        began = time.perf_counter()
        self._engine.load()
        loaded = time.perf_counter()
        outputs = self._engine.call(self._engine.flat)
        called = time.perf_counter()
        return Start(
            load_seconds=loaded - began if self._engine.is_loaded else None,
            first_seconds=called - loaded,
            outputs=[as_numpy(each) for each in outputs],
            adapter=stats().adapter,
            resident_before=before,
        )

    def calls(self, count: int) -> list[Call]:
        return [self._timed([self._engine.flat]) for _ in range(count)]

    def text(self, length: int, at_once: int, seed: int) -> Call:
        """A text from its beginning, in calls of so many tokens, timed as one."""
        decoder = self._engine.task.decoder
        assert decoder is not None
        return self._timed(decoder.text(length, at_once, seed))

    def memory(self) -> Memory:
        return Memory(stats().buffer_bytes, peak_resident())

    def _timed(self, inputs: Sequence[Any]) -> Call:
        before = stats()
        began = time.perf_counter()
        for flat in inputs:
            self._engine.call(flat)
        total = time.perf_counter() - began
        after = stats()
        if after.native_submits == before.native_submits:
            return Call(total)
        return Call(
            total,
            after.native_upload_seconds - before.native_upload_seconds,
            after.native_busy_seconds - before.native_busy_seconds,
            after.native_read_seconds - before.native_read_seconds,
        )


def peak_resident() -> int:
    """Bytes of memory that this process had at most."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
        (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(peak) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes, on macOS


class Worker:
    """A child that runs; a context that ends it."""

    def __init__(self, engine: str, task: Task, is_verbose: bool) -> None:
        self.engine = engine
        self._log = None if is_verbose else task.folder / f"{engine}.log"
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, engine, task, self._log), daemon=True
        )
        self._process.start()
        theirs.close()

    def ask(self, what: str, *args: Any) -> Any:
        self.send(what, *args)
        return self.answer()

    def send(self, what: str, *args: Any) -> None:
        try:
            self._connection.send((what, args))
        except BrokenPipeError:
            self._tell_end()

    def answer(self) -> Any:
        try:
            is_good, answer, trace = self._connection.recv()
        except EOFError:
            self._tell_end()
        if not is_good:
            raise WebGPUError(f"{self.engine}: {answer}") from RemoteTrace(trace)
        return answer

    def close(self) -> None:
        # Its next read tells it to end.
        self._connection.close()
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _tell_end(self) -> NoReturn:
        self._process.join(_PATIENCE)
        said = "" if self._log is None else self._log.read_text(errors="replace")
        last = said.strip().splitlines()[-1:] or ["it said nothing"]
        raise WebGPUError(
            f"{self.engine}: its process ended with code {self._process.exitcode}:"
            f" {last[0][:200]}"
        )


class RemoteTrace(Exception):
    """Where the child's error comes from."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _serve(connection: Connection, engine: str, task: Task, log: Path | None) -> None:
    """The child: answers until the parent closes the connection."""
    # Threads that spin would take the cores from the engine whose turn it is. Torch is
    # not loaded yet, whose library reads this then.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if log is not None:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 2)
        warnings.filterwarnings("ignore")
        logging.disable(logging.WARNING)
    os.dup2(2, 1)
    # Behind what multiprocessing cleans up: drivers may crash when they are torn down.
    Finalize(None, os._exit, args=(0,), exitpriority=-100)
    served: Served | None = None
    while True:
        try:
            what, args = connection.recv()
        except (EOFError, KeyboardInterrupt):
            break
        try:
            if served is None:
                served = Served(engine, task)
            connection.send((True, getattr(served, what)(*args), ""))
        except (BrokenPipeError, KeyboardInterrupt):
            break
        # Models, exporters and peers may fail in any way; the parent says how.
        except Exception as error:
            connection.send((False, _words(error), traceback.format_exc()))


def _words(error: Exception) -> str:
    """An error's first line, behind its type if it is not our own."""
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, WebGPUError):
        return lines[0]
    return f"{type(error).__name__}: {lines[0][:300]}".rstrip(": ")
