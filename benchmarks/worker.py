"""One peer on one case in a process of its own: python -m benchmarks.worker PEER FOLDER

Reads commands from standard input, answers with a line of JSON each: `setup`
(imports), `load` (load, compile, first run), then `run` (one round of as many runs
as `load` found worth timing). Times are in seconds; `cpu` counts all threads, the
driver's too, and `busy`, which only ours tells, from a run's first submit to its
results. A peer that fails ends the process; the last line that it wrote to standard
error is the reason.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import peers

# Seconds that a round takes about, so that a clock's resolution does not matter.
ROUND_SECONDS = 0.1
WARM_UP_RUNS = 3  # tinygrad records its kernels in the second run


class Timer:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self, runs: int = 1) -> dict[str, float]:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return {"wall": wall / runs, "cpu": cpu / runs}


class Worker:
    """The loaded case."""

    def __init__(self, peer: peers.Peer, folder: Path) -> None:
        self.peer, self.folder = peer, folder
        with np.load(folder / "inputs.npz") as stored:
            self.inputs = [stored[name] for name in stored.files]
        with np.load(folder / "expected.npz") as stored:
            self.expected = [stored[name] for name in stored.files]
        self.repeats = 1

    def setup(self) -> dict[str, Any]:
        self.modules = self.peer.setup()
        return {}

    def load(self) -> dict[str, Any]:
        timer = Timer()
        self.run_once = self.peer.load(self.modules, self.folder, self.inputs)
        results = self.run_once()
        answer: dict[str, Any] = {"first": timer.read()}
        answer["error"] = distance(results, self.expected)
        del results
        for _ in range(WARM_UP_RUNS):
            timer = Timer()
            self.run_once()
            once = timer.read()["wall"]
        self.repeats = max(1, min(200, int(ROUND_SECONDS / max(once, 1e-6))))
        if self.peer.name == peers.OURS:
            import executorch_webgpu

            found = executorch_webgpu.stats()
            answer |= {"gpu_bytes": found.buffer_bytes, "adapter": found.adapter}
        return answer

    def run(self) -> dict[str, Any]:
        busy = self.busy()
        timer = Timer()
        for _ in range(self.repeats):
            self.run_once()
        times = timer.read(self.repeats)
        return {**times, "busy": (self.busy() - busy) / self.repeats}

    def busy(self) -> float:
        if self.peer.name != peers.OURS:
            return 0.0
        import executorch_webgpu

        return executorch_webgpu.stats().native_busy_seconds


def distance(results: peers.Arrays, expected: peers.Arrays) -> float:
    """The largest difference, relative to the largest value expected."""
    if len(results) != len(expected):
        raise RuntimeError(f"outputs must be {len(expected)}, got {len(results)}")
    worst = 0.0
    for result, wanted in zip(results, expected):
        if result.shape != wanted.shape:
            raise RuntimeError(f"shape must be {wanted.shape}, got {result.shape}")
        scale = float(np.abs(wanted).max(initial=0)) or 1.0
        difference = np.abs(result.astype(np.float64) - wanted).max(initial=0)
        worst = max(worst, float(difference) / scale)
    return worst


def main(name: str, folder: Path) -> None:
    # Libraries print to standard output, which is for answers only.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(peers.find(name), folder)
    commands = {"setup": worker.setup, "load": worker.load, "run": worker.run}
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), file=answers, flush=True)
    os._exit(0)  # drivers may crash when they are torn down; all is said


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
