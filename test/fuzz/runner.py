"""Plays mutants in a process of its own, which a mutant may take down.

The parent sees a crash as the end of the process and a hang as processor time without
a report; both are outcomes of the mutant that was next, and a new process goes on.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from . import oracle, programs
from .mutate import Mutant, mutant
from .oracle import Outcome
from .programs import BUILD

# A mutant, or the seed of one.
Item = Mutant | int

_SPAWN = multiprocessing.get_context("spawn")
# Bytes of address space beyond what a worker has when it is ready.
_ADDRESS_SPACE = 6 << 30
# Seconds by the clock, where a worker waits instead of working; a start imports torch.
_WAIT_LIMIT = 60.0
_START_LIMIT = 300.0
# Mutants of a process on the GPU, whose driver keeps what it has compiled.
_MOST_RUN = 2000
_BATCH = 100


class Workers:
    """One worker at a time, replaced when it ends."""

    def __init__(self, level: str) -> None:
        self._level = level
        self._process: Any = None
        self._played = 0

    def play(self, items: Iterable[Item]) -> Iterator[tuple[Item, Outcome]]:
        """The outcome of each item, in order."""
        source = iter(items)
        while batch := list(itertools.islice(source, _BATCH)):
            yield from self._play_batch(batch)

    def _play_batch(self, batch: list[Item]) -> Iterator[tuple[Item, Outcome]]:
        done = 0
        while done < len(batch):
            self._ensure()
            self._connection.send(batch[done:])
            while done < len(batch):
                outcome = self._next()
                yield batch[done], outcome
                done += 1
                self._played += 1
                if self._process is None:
                    break

    def _ensure(self) -> None:
        if self._level == "run" and self._played > _MOST_RUN:
            self.close()
        if self._process is None:
            self._connection, theirs = _SPAWN.Pipe()
            descriptor, path = tempfile.mkstemp(prefix="log-", dir=BUILD)
            os.close(descriptor)
            self._log = Path(path)
            args = (self._level, theirs, path)
            self._process = _SPAWN.Process(target=_work, args=args, daemon=True)
            self._process.start()
            theirs.close()
            self._played = 0
            if not self._connection.poll(_START_LIMIT):
                raise TimeoutError(f"worker must start, log is {self._log}")
            self._connection.recv()

    def _next(self) -> Outcome:
        """The next report, or what it means that there is none."""
        assert self._process is not None
        limit = oracle.TIME_LIMITS[self._level] * 1.5
        pid = self._process.pid
        began, used = time.monotonic(), _seconds(pid)
        while not self._connection.poll(0.25):
            waited = time.monotonic() - began
            if waited > _WAIT_LIMIT or _seconds(pid) - used > limit:
                # Makes it write where it is.
                os.kill(pid, signal.SIGABRT)
                return self._ended("hang")
        try:
            outcome: Outcome = self._connection.recv()
        except (EOFError, ConnectionResetError):
            return self._ended("crash")
        return outcome

    def _ended(self, kind: str) -> Outcome:
        self._process.join(10)
        code = self._process.exitcode
        log = self._log.read_text(errors="replace")
        dump = log[log.rfind("Fatal Python error") :][:3000]
        lines = [line.strip() for line in dump.splitlines()]
        ours = [line for line in lines if "executorch_webgpu" in line]
        where = ours[0].rpartition("/")[2] if ours else "no frame of ours"
        self.close()
        return Outcome(kind, f"exit {code} in {where}", dump)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._log.unlink()
            self._process = None


@contextlib.contextmanager
def workers(level: str) -> Iterator[Workers]:
    BUILD.mkdir(parents=True, exist_ok=True)
    made = Workers(level)
    try:
        yield made
    finally:
        made.close()


def _seconds(pid: int) -> float:
    """Processor time of all threads of a process that has not been waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _work(level: str, connection: Connection, log: str) -> None:
    """The worker: judges what it is sent, a list at a time, until it is sent None."""
    sys.stdout.flush()
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
    # Read as well as written: the log is part of what is judged.
    descriptor = os.open(log, os.O_RDWR | os.O_APPEND)
    os.dup2(descriptor, 2)
    faulthandler.enable()
    made = programs.honest()
    judge = (oracle.Planning if level == "plan" else oracle.Running)(made).judge
    used = oracle.memory("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # All of that is here to stay.
    gc.collect()
    gc.freeze()
    connection.send("ready")
    while True:
        try:
            items = connection.recv()
        except EOFError:
            return
        for item in items:
            if isinstance(item, int):
                item = mutant_of(made, item, level)
            connection.send(judge(item))


def mutant_of(honest: dict[str, programs.Program], seed: int, level: str) -> Mutant:
    return mutant(program_of(honest, seed), seed, level)


def program_of(honest: dict[str, programs.Program], seed: int) -> programs.Program:
    """Whose mutant a seed is: one program's after the other's."""
    names = sorted(honest.keys() - {"canary"})
    return honest[names[seed % len(names)]]
