"""Prints how long a program takes to load, with its weights verified and without.

    python test/hash_cost.py model.pte [TURNS]

Each turn is a new process that loads the program and, compiling nothing, loads it seven
times again. The medians of all turns are printed, and their ratio.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

_TIMES = 7


def load_times(path: str) -> list[float]:
    from executorch.runtime import Runtime

    from executorch_webgpu.runtime import device

    device.get_device()
    found = []
    for _ in range(1 + _TIMES):
        start = time.perf_counter()
        program = Runtime.get().load_program(path)
        method = program.load_method("forward")
        found.append(time.perf_counter() - start)
        del method, program
    return found


def turn(path: str, is_verified: bool) -> tuple[float, float]:
    """Seconds of the first load, and of the others."""
    done = subprocess.run(
        [sys.executable, __file__, path, "measure"],
        env={**os.environ, "ET_WEBGPU_VERIFY_WEIGHTS": str(int(is_verified))},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    first, *others = json.loads(done.stdout.splitlines()[-1])
    return first, statistics.median(others)


def main(path: str, turns: int) -> None:
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(turns):
        for is_verified, times in found.items():
            times.append(turn(path, is_verified))
    for which, name in enumerate(("first", "again")):
        yes, no = (statistics.median(t[which] for t in found[v]) for v in (True, False))
        print(f"{name}: {yes:.3f} s verified, {no:.3f} s not, {yes / no - 1:+.1%}")


if __name__ == "__main__":
    if sys.argv[2:] == ["measure"]:
        print(json.dumps(load_times(sys.argv[1])))
    else:
        main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6)
