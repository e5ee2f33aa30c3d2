"""Loads, runs and unloads small programs from eight threads, and watches what stays.

    python test/soak.py [--scale 0.01]

A cycle loads one of the programs, calls it 34 times and unloads it. Every result must
have the bits of the first for the same input, and that one must be near eager's.
Resident memory is read, as Linux tells it, between rounds of cycles, when nothing is
loaded. In the second half it may grow by less than 1 kB per cycle.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import executorch_webgpu
from executorch_webgpu import WebGPUPartitioner, _shim

CYCLES = 3000
CALLS = 34  # of each cycle: 102,000 in all
SHAPES = 7  # of each cycle with a dynamic program: 5,250 in all
THREADS = 8
ROUNDS = 100
MOST_GROWTH = 1024  # bytes per cycle


class State(torch.nn.Module):
    """What it counts is the same again after four calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phase", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.phase.copy_((self.phase + 1) % 4)
        return x * self.phase


class Weighted(torch.nn.Module):
    """A function of x and of a weight."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], object]):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16, 16))
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x, self.weight)


def _conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x.reshape(1, 1, 8, 16), w[:, :9].reshape(16, 1, 3, 3), padding=1)


# x is a matrix of 16 columns: of 2 to 32 rows for these, a dimension that is dynamic,
_DYNAMIC: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "linear": lambda x, w: F.gelu(x @ w),
    "softmax": lambda x, w: torch.softmax(x * w[0], -1),
    "norm": lambda x, w: F.layer_norm(x, (16,), w[0], w[1]),
    "reduce": lambda x, w: (x.sum(0), (x * w[0]).amax(0)),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], x[None], x[None]),
}
# and of 8 rows for these.
_STATIC: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add": lambda x, w: x + w[:8],
    "sigmoid": lambda x, w: torch.sigmoid(x) * w[0],
    "conv": _conv,
    "pool": lambda x, w: F.max_pool2d((x + w[0]).reshape(1, 1, 8, 16), 2),
    "embedding": lambda x, w: F.embedding((x * 4).to(torch.int64).abs() % 16, w),
    "gather": lambda x, w: torch.gather(w[:8], 1, x.argsort(1)),
    "sort": lambda x, w: torch.sort(x * w[0], dim=1)[0],
    "topk": lambda x, w: tuple(torch.topk(x + w[0], 3)),
    "cumsum": lambda x, w: torch.cumsum(x * w[:8], 1),
    "cat": lambda x, w: torch.cat([x, w, x * 2]),
    "half": lambda x, w: (x.half() * w[:8].half()).float(),
    "integers": lambda x, w: (x * 100).to(torch.int32) // 7 + w[:8].to(torch.int32),
    "where": lambda x, w: torch.where(x > 0, x, w[:8]),
    "transpose": lambda x, w: torch.flip(x.T, (0,)) @ w[:8],
}


@dataclass
class Program:
    """An exported program, and the bits of its results by the number of the input."""

    name: str
    model: torch.nn.Module
    is_dynamic: bool
    buffer: bytes = b""
    known: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = {0: torch.export.Dim("rows", min=2, max=32)} if self.is_dynamic else None
        exported = torch.export.export(
            self.model, (self.input(8),), dynamic_shapes={"x": rows}
        )
        partitioner = WebGPUPartitioner()
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        assert partitioner.report.complete, f"{self.name}: {partitioner.report}"
        self.buffer = bytes(edge.to_executorch().buffer)

    def number(self, cycle: int, call: int) -> int:
        """Of a call's input: its rows, or one of four that take turns."""
        if self.is_dynamic:
            return 2 + (cycle * SHAPES + call % SHAPES) % 31
        return call % 4

    def input(self, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(number)
        return torch.randn(number if self.is_dynamic else 8, 16, generator=generator)

    def cycle(self, cycle: int) -> int:
        """Loads, calls and unloads it; returns how many results were wrong."""
        method = Runtime.get().load_program(self.buffer).load_method("forward")
        assert method is not None, executorch_webgpu.last_error()
        wrong = 0
        for call in range(CALLS):
            number = self.number(cycle, call)
            results = method.execute([self.input(number)])
            bits = b"".join(result.numpy().tobytes() for result in results)
            if number not in self.known and self._is_near(number, results):
                self.known.setdefault(number, bits)
            wrong += bits != self.known.get(number)
        return wrong

    def _is_near(self, number: int, results: list[torch.Tensor]) -> bool:
        model = copy.deepcopy(self.model)
        # A state has seen the inputs before this one.
        for earlier in () if self.is_dynamic else range(number):
            model(self.input(earlier))
        expected = pytree.tree_leaves(model(self.input(number)))
        return all(
            torch.allclose(result, wanted, rtol=1e-3, atol=1e-4)
            for result, wanted in zip(results, expected, strict=True)
        )


def programs() -> list[Program]:
    torch.manual_seed(0)
    made = [Program(name, Weighted(f), True) for name, f in _DYNAMIC.items()]
    made += [Program(name, Weighted(f), False) for name, f in _STATIC.items()]
    return [*made, Program("state", State(), False)]


def _resident() -> int:
    """Bytes, after what is free has gone back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _live() -> dict[str, int]:
    gc.collect()
    stats = executorch_webgpu.stats()
    names = ("delegates", "buffers", "buffer_bytes", "bind_groups")
    return {name: getattr(stats, name) for name in names}


@dataclass
class Found:
    """What a soak has found. `before` and `after` are the GPU objects alive."""

    before: dict[str, int]
    after: dict[str, int]
    wrong: int
    shapes: int  # plans made for live shapes
    resident: list[int]  # bytes, after each round
    growth: float  # bytes per cycle, in the second half


def soak(given: Sequence[Program], cycles: int) -> Found:
    def run(cycle: int) -> int:
        with torch.no_grad():
            return given[cycle % len(given)].cycle(cycle)

    before, plans = _live(), executorch_webgpu.stats().plans
    ends = np.linspace(0, cycles, min(ROUNDS, cycles) + 1).astype(int)
    wrong, resident = 0, []
    with ThreadPoolExecutor(THREADS) as pool:
        for first, last in itertools.pairwise(ends):
            wrong += sum(pool.map(run, range(first, last)))
            resident.append(_resident())
    half = len(resident) // 2
    growth = np.polyfit(ends[1:][half:], resident[half:], 1)[0]
    shapes = executorch_webgpu.stats().plans - plans - cycles
    return Found(before, _live(), wrong, shapes, resident, float(growth))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of all 3,000 cycles")
    cycles = max(4, int(CYCLES * parser.parse_args().scale))
    # Each thread has methods of its own, so they may run side by side.
    _shim.set_option("release_gil", True)
    given = programs()
    begin = time.monotonic()
    found = soak(given, cycles)
    half = found.resident[len(found.resident) // 2]
    print(
        f"{len(given)} programs, {THREADS} threads, {cycles} cycles,"
        f" {cycles * CALLS} calls, {found.shapes} plans for live shapes,"
        f" {time.monotonic() - begin:.0f} seconds\n"
        f"wrong results: {found.wrong}\n"
        f"resident: {half >> 20} MB at half time, {found.resident[-1] >> 20} MB at the"
        f" end: {found.growth:.0f} bytes per cycle\n"
        f"alive: {found.before} before, {found.after} after;"
        f" {executorch_webgpu.stats().pipelines} pipelines kept"
    )
    if found.wrong or found.after != found.before or found.growth >= MOST_GROWTH:
        sys.exit(
            "soak: no result must be wrong, nothing left alive, and resident memory"
            f" must grow by less than {MOST_GROWTH} bytes per cycle"
        )


if __name__ == "__main__":
    main()
