"""What the host does in a call, in C++ and in Python, the driver's work aside.

A program of many tiny dispatches is played by ExecuTorch's Module in a C++ process, by
its Method in a Python one, by the native replay in that process, and there by bare.c,
which does the same on the same handles with nothing around it: that is the driver's
work. All take turns, and all play the same plan, that of the file.

    python -m benchmarks.host_cost <program>      the Python process: answers lines
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHAPE = (4, 8)
# Dispatches of the program: what a call costs, and what it costs for each.
DISPATCHES = (1, 256)
CALLS = 200  # of which the median is taken, each turn
TURNS = 9

PLAYERS = ("bare", "replay", "method")


@dataclass(frozen=True)
class Host:
    """Microseconds of a call of a program with so many dispatches, by who plays it."""

    dispatches: int
    bare: float
    replay: float
    method: float
    cpp: float


def chain(count: int) -> Any:
    """A model of so many dispatches, none of which can be part of another."""
    import torch

    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = torch.softmax(x, -1)
            return x

    return Chain(), (torch.randn(SHAPE),), None


def measure(
    programs: dict[int, Path],
    python: Callable[[Path], Any],
    cpp: Callable[[Path], Any],
) -> list[Host]:
    """Of each the best turn's median, since all else on a machine only adds. `python`
    and `cpp` start processes with a program loaded, whose `ask` takes the commands of
    this file and of module_driver.cpp."""
    found = []
    for count, program in programs.items():
        process, app = python(program), cpp(program)
        shape = "x".join(map(str, SHAPE))
        (app.folder / "x").write_bytes(bytes(4 * SHAPE[0] * SHAPE[1]))
        times: dict[str, list[float]] = {}
        for turn in range(TURNS + 1):
            line = f"time {CALLS} out t6:{shape}:0x1:x"
            answers = {each: process.ask(f"{each} {CALLS}") for each in PLAYERS}
            answers["cpp"] = app.ask(line).removeprefix("ok")
            for name, answer in answers.items():
                if turn:  # the first has the driver compile
                    times.setdefault(name, []).append(float(answer))
        process.close()
        app.close()
        found.append(Host(count, **{name: min(each) for name, each in times.items()}))
    return found


# -- the Python process ----------------------------------------------------------------


def _players(program: Path, place: Path) -> dict[str, Callable[[], object]]:
    """Who can play the program, by name."""
    import ctypes

    import numpy as np
    import torch
    from executorch.runtime import Runtime

    from executorch_webgpu.cli import delegates
    from executorch_webgpu.portable import serialize
    from executorch_webgpu.portable.at_sizes import FilePlanner, fitting_profile
    from executorch_webgpu.runtime import device
    from executorch_webgpu.runtime.executor import WgpuExecutor

    from .replay import bare_work, build_bare

    method = Runtime.get().load_program(program).load_method("forward")
    assert method is not None
    ((_, blob),) = delegates(program.read_bytes())
    section = serialize.section(blob)
    assert section is not None
    plans = serialize.read(section)
    gpu = device.get_device()
    planner = FilePlanner(plans, fitting_profile(plans, gpu.caps))
    executor = WgpuExecutor(gpu, "bench", lambda key: None, is_checked=True)
    prepared = executor.prepare(planner.upper_bound())
    replay = prepared.native_replay(executor.session)
    x = np.zeros(SHAPE, np.float32)
    y, given = np.zeros_like(x), [torch.zeros(SHAPE)]
    replay.run(gpu.lock, [x], [y])  # which writes the parameters
    bare = build_bare(place)
    work, kept = bare_work(prepared)
    kept.append(prepared)  # and with it what the handles are of

    def bare_run() -> None:
        executor.session.close_inputs()
        status = bare.bare_run(
            ctypes.byref(work),
            x.ctypes.data_as(ctypes.c_void_p),
            y.ctypes.data_as(ctypes.c_void_p),
        )
        assert status == 1, kept

    def replay_run() -> None:
        bare.bare_close(ctypes.byref(work))
        replay.run(gpu.lock, [x], [y])

    return {
        "bare": bare_run,
        "replay": replay_run,
        "method": lambda: method.execute(given),
    }


def _serve(program: Path) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        players = _players(program, Path(folder))
        for line in sys.stdin:
            name, count = line.split()
            times = []
            for _ in range(int(count)):
                begin = time.perf_counter()
                players[name]()
                times.append(time.perf_counter() - begin)
            print(1e6 * statistics.median(times), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
