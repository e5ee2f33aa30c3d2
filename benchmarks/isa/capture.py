"""Kernels and dispatches of both sides, captured in processes of their own.

A capture is a folder: what the layer writes (layer.c) and dispatches.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from . import tools
from .kernel import Kernel, Statistics, parse, read_statistics
from .play import play
from .spirv import Interface, interface
from .targets import Target
from .wave import Launch


@dataclass(frozen=True)
class Dispatch:
    """One launch of a kernel; bindings are bytes, and the content of small ones."""

    case: str
    label: str
    kernel: int
    groups: tuple[int, int, int]
    bindings: tuple[tuple[int, bytes], ...]


def write(folder: Path, dispatches: Sequence[Dispatch]) -> None:
    rows = [
        {
            "case": one.case,
            "label": one.label,
            "kernel": one.kernel,
            "groups": one.groups,
            "bindings": [(size, content.hex()) for size, content in one.bindings],
        }
        for one in dispatches
    ]
    (folder / "dispatches.json").write_text(json.dumps(rows, indent=1))


def read(folder: Path) -> list[Dispatch]:
    return [
        Dispatch(
            row["case"],
            row["label"],
            row["kernel"],
            tuple(row["groups"]),
            tuple((size, bytes.fromhex(text)) for size, text in row["bindings"]),
        )
        for row in json.loads((folder / "dispatches.json").read_text())
    ]


def _log(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "log.txt").read_text().splitlines()]


def count_pipelines(folder: Path) -> int:
    """How many kernels the layer has seen: the number of the next."""
    return sum(words[0] == "pipeline" for words in _log(folder))


def dispatches_in_log(folder: Path) -> list[Dispatch]:
    """Without case and label, which the layer does not know."""
    made = []
    for words in _log(folder):
        if words[0] == "dispatch":
            kernel, x, y, z = map(int, words[1:5])
            bound = [word.split(":") for word in words[5:]]
            bindings = tuple((int(size), bytes.fromhex(text)) for size, text in bound)
            made.append(Dispatch("", "", kernel, (x, y, z), bindings))
    return made


@dataclass(frozen=True)
class Compiled:
    """One kernel on one target."""

    kernel: Kernel
    statistics: Statistics
    interface: Interface


class Capture:
    """A captured folder, read as it is asked for."""

    def __init__(self, folder: Path, target: Target) -> None:
        self.folder, self.target = folder, target
        self._compiled: dict[int, Compiled] = {}

    @cached_property
    def dispatches(self) -> list[Dispatch]:
        return read(self.folder)

    def compiled(self, number: int) -> Compiled:
        if number not in self._compiled:
            path = self.folder / f"{number:04d}"
            self._compiled[number] = Compiled(
                parse(path.with_suffix(".asm").read_text()),
                read_statistics(path.with_suffix(".stats"), self.target.is_rdna),
                interface(path.with_suffix(".spv").read_bytes()),
            )
        return self._compiled[number]

    def trace(self, dispatch: Dispatch) -> list[int]:
        """The blocks that the dispatch's first wave runs; Uncountable if not known."""
        made = self.compiled(dispatch.kernel)
        launch = Launch(
            threads=made.interface.threads,
            groups=dispatch.groups,
            bindings=dispatch.bindings,
            uses_grid=made.interface.uses_grid,
            wave=made.statistics.wave,
            packs_ids=self.target.packs_ids,
            loads_grid=self.target.loads_grid,
        )
        return play(made.kernel, launch)


def run(
    module: str, arguments: Sequence[str], target: Target, layer: Path, output: Path
) -> str:
    """Runs a module on a target's null device; returns what it printed."""
    output.mkdir(parents=True, exist_ok=True)
    for old in output.iterdir():
        old.unlink()
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=tools.environment(target.name, layer, output),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode or not (output / "dispatches.json").exists():
        lines = done.stdout.strip().splitlines() or ["nothing printed"]
        raise tools.Missing(
            f"isa: {module} must run on RADV's null device of {target.name}, got code"
            f" {done.returncode}: {lines[-1]}; another Mesa may have none"
        )
    return done.stdout
