"""Prints the errors of sums of float16, which docs/usage.md has: ours, and NumPy's.

    python test/f16_sums.py

Our kernels for GPUs are played on the adapter that is there, with and without
`f16_accumulate`. All is compared with float64, for operands drawn from a normal
distribution: root of mean squares, relative to the result.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent / "ops"))

from gpu_plans import GPU
from test_dawn import contents, play_wgpu
from test_tint import Builder, filled, half, real

from executorch_webgpu.plan.planner import Planner

SIZE = 128  # of the results: SIZE x SIZE
TERMS = (64, 256, 1024, 4096)
RUNS = (2, 4, 8, 16, 32)


def operands(terms: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b transposed, and their product in float64."""
    random = np.random.default_rng(terms)
    a, b = (random.standard_normal((SIZE, terms)).astype(np.float16) for _ in "ab")
    return a, b, a.astype(np.float64) @ b.astype(np.float64).T


def error(result: np.ndarray, wanted: np.ndarray) -> float:
    gap = result.astype(np.float64) - wanted
    return float(np.sqrt((gap**2).mean() / (wanted**2).mean()))


def ours(op: str, terms: int, f16_accumulate: bool) -> float:
    a, b, wanted = operands(terms)
    second = b if op == "aten.linear.default" else b.T
    given = filled(op, half([real(*a.shape), real(*second.shape)]))
    graph = Builder(op, given).graph
    plan = Planner(graph, replace(GPU, f16_accumulate=f16_accumulate)).upper_bound()
    _, constants = contents(graph, plan)
    inputs = [a.reshape(-1), np.ascontiguousarray(second).reshape(-1)]
    (made,), *_ = play_wgpu(plan, inputs, constants)
    result = np.frombuffer(made, np.float16)[: wanted.size]
    return error(result.reshape(wanted.shape), wanted)


def in_runs(terms: int, run: int) -> float:
    """Fused in float16 for `run` terms at a time, and the runs added in float32."""
    a, b, wanted = operands(terms)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros(wanted.shape, np.float32)
    for first in range(0, terms, run):
        part = np.zeros(wanted.shape, np.float16)
        for k in range(first, min(first + run, terms)):
            # float64 holds a product and its sum with a float16 exactly enough.
            term = np.outer(wide_a[:, k], wide_b[:, k])
            part = (term + part.astype(np.float64)).astype(np.float16)
        total += part.astype(np.float32)
    return error(total.astype(np.float16), wanted)


def main() -> None:
    matmul, linear = "aten.mm.default", "aten.linear.default"
    print("terms | float32 | matmul | linear | float16 throughout")
    for terms in TERMS:
        found = [ours(matmul, terms, False), ours(matmul, terms, True)]
        found += [ours(linear, terms, True), in_runs(terms, terms)]
        print(terms, *(f"{each:.2g}" for each in found), sep=" | ")
    shown = ", ".join(f"{run}: {in_runs(TERMS[-1], run):.2g}" for run in RUNS)
    print(f"runs, of {TERMS[-1]} terms: {shown}")


if __name__ == "__main__":
    main()
