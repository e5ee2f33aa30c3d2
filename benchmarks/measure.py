"""Runs the peers on a case, round by round, so that noise hits all alike.

Enters: a case and the peers' names. Leaves: a Row with every peer's times, or the
reason it has none. Every peer runs in a process of its own, and in several of
them one after the other: a software driver's speed differs between processes.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import peers
from .cases import Case

TIMEOUT_SECONDS = 600


@dataclass
class Cell:
    """One peer on one case: seconds, one per round (`first`: one per process)."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)  # from first submit to results
    first: list[float] = field(default_factory=list)
    first_cpu: list[float] = field(default_factory=list)
    error: float = 0.0  # the largest, relative to eager's largest value
    failed: str = ""


@dataclass
class Row:
    """One case: its cells by peer, and what our program is made of."""

    name: str
    title: str
    cells: dict[str, Cell] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(stored: dict[str, Any]) -> Row:
        cells = {name: Cell(**cell) for name, cell in stored["cells"].items()}
        return Row(stored["name"], stored["title"], cells, stored["facts"])


class Failed(Exception):
    """A peer could not do what it was asked to; the message says why."""


def python_of(root: Path) -> str:
    """The interpreter of a checkout; that of this one is whichever runs."""
    return sys.executable if root == peers.ROOT else str(root / ".venv/bin/python")


class Process:
    """A worker of a checkout that is running; `ask` waits for its answer."""

    def __init__(self, peer: str, folder: Path, root: Path = peers.ROOT) -> None:
        self._log = (folder / f"{peer}.log").open("w")
        self._cache = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [python_of(root), "-m", "benchmarks.worker", peer, str(folder.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=root,
            env=environment(self._cache.name),
            text=True,
            bufsize=1,
        )

    def ask(self, command: str) -> dict[str, Any]:
        self.send(command)
        return self.answer()

    def send(self, command: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._end()) from None

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(TIMEOUT_SECONDS):
                raise Failed(f"no answer within {TIMEOUT_SECONDS} s")
        line = self._process.stdout.readline()
        if not line:
            raise Failed(self._end())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._cache.cleanup()

    def _end(self) -> str:
        code = self._process.wait(10)
        lines = Path(self._log.name).read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"ended with code {code}: {last[:200]}"


def environment(cache: str) -> dict[str, str]:
    """For workers: an empty shader cache, and threads that do not spin.

    The cache is not turned off, because a peer may compile again in every run.
    """
    return {
        **os.environ,
        "MESA_SHADER_CACHE_DIR": cache,
        "CACHEDB": f"{cache}/tinygrad.db",
        "OMP_WAIT_POLICY": "passive",
        "PYTHONWARNINGS": "ignore",
        "TRANSFORMERS_VERBOSITY": "error",
    }


def prepare(
    case: Case,
    names: Sequence[str],
    folder: Path,
    reuse: bool,
    root: Path = peers.ROOT,
) -> dict[str, Any]:
    """Exports in another process: its memory is freed, and a crash ends it alone."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "prepare.log").open("w") as log,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache,
    ):
        command = [python_of(root), "-m", "benchmarks.prepare"]
        where = str(folder.resolve())
        done = subprocess.run(
            [*command, *["--reuse"][: int(reuse)], case.name, where, *names],
            cwd=root,
            env=environment(cache),
            stdout=log,
            stderr=log,
            check=False,
        )
    if done.returncode:
        raise Failed(f"preparing ended with code {done.returncode}, see {log.name}")
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    return facts


def measure(
    case: Case,
    names: Sequence[str],
    rounds: int,
    processes: int,
    folder: Path,
    reuse: bool = False,
) -> Row:
    row = Row(case.name, case.title, {name: Cell() for name in names})
    try:
        row.facts = prepare(case, names, folder, reuse)
    except Failed as error:
        for cell in row.cells.values():
            cell.failed = str(error)
        return row
    for name, cell in row.cells.items():
        export = "onnx" if name.startswith("ort") or name == "tinygrad" else name
        cell.failed = row.facts["failed"].get(export, "")
    for _ in range(processes):
        _one_process_each(row, rounds, folder)
    return row


def _one_process_each(row: Row, rounds: int, folder: Path) -> None:
    names = [name for name, cell in row.cells.items() if not cell.failed]
    running = {name: Process(name, folder) for name in names}

    def all_do(action: Callable[[Cell, Process], object]) -> None:
        for name, process in running.items():
            cell = row.cells[name]
            if not cell.failed:
                try:
                    action(cell, process)
                except Failed as error:
                    cell.failed = str(error)

    try:
        # Imports at the same time, everything that is measured one by one.
        all_do(lambda cell, process: process.send("setup"))
        all_do(lambda cell, process: process.answer())
        all_do(lambda cell, process: _load(row, cell, process))
        for _ in range(rounds):
            all_do(_round)
    finally:
        for process in running.values():
            process.close()


def _round(cell: Cell, process: Process) -> None:
    times = process.ask("run")
    cell.wall.append(times["wall"])
    cell.cpu.append(times["cpu"])
    cell.busy.append(times["busy"])


def _load(row: Row, cell: Cell, process: Process) -> None:
    answer = process.ask("load")
    cell.first.append(answer["first"]["wall"])
    cell.first_cpu.append(answer["first"]["cpu"])
    cell.error = max(cell.error, answer["error"])
    for fact in ("gpu_bytes", "adapter"):
        if fact in answer:
            row.facts[fact] = answer[fact]
    # Approximate functions are fair, a wrong result is not a result.
    if not answer["error"] < 1e-2:
        raise Failed(f"off from eager by {answer['error']:.1e} of the largest value")
