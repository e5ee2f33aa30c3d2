"""Where a program's time goes: python -m benchmarks profile CASE|FILE.pte [--plan]

Runs every dispatch of the plan by itself, several times in one command buffer, and
prints them by kernel and shape, the costliest first. Times are CPU time on software
adapters, wall time elsewhere. Weights are zeros: only speed is measured.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from executorch_webgpu.cli import delegates
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import device
from executorch_webgpu.runtime.device import Device
from executorch_webgpu.runtime.executor import Program, WgpuExecutor

SECONDS = 0.05  # of measuring one dispatch


def load(gpu: Device, plan: Plan) -> Program:
    sizes = {
        constant.data_key: (constant.dtype.numpy, constant.shape)
        for constant in plan.constants
    }

    def zeros(key: str) -> memoryview:
        kind, shape = sizes[key]
        return memoryview(np.zeros(shape, kind).reshape(-1).view(np.uint8))

    program = WgpuExecutor(gpu, "profile", zeros).prepare(plan)
    params = program.params_buffer
    if params is not None:
        gpu.queue.write_buffer(params.raw, 0, plan.params)
    return program


def seconds(gpu: Device, program: Program, index: int) -> float:
    """Seconds of one dispatch, the best of three measurements after a warm-up."""
    dispatch, pipeline, group = program.steps()[index]
    clock = time.process_time if gpu.caps.is_cpu else time.perf_counter

    def once(times: int) -> float:
        start = clock()
        encoder = gpu.raw.create_command_encoder()
        encoding = encoder.begin_compute_pass()
        encoding.set_pipeline(pipeline.raw)
        encoding.set_bind_group(0, group.raw)
        for _ in range(times):
            encoding.dispatch_workgroups(*dispatch.groups)
        encoding.end()
        gpu.queue.submit([encoder.finish()])
        gpu.finish()
        return (clock() - start) / times

    once(1)
    times = max(1, min(100, int(SECONDS / max(once(1), 1e-5))))
    return min(once(times) for _ in range(3))


def describe(plan: Plan, index: int) -> str:
    dispatch = plan.dispatches[index]
    groups = "x".join(map(str, dispatch.groups))
    kernel = plan.pipelines[dispatch.pipeline].label
    return f"{kernel} [{groups}] {dispatch.label}"


def profile(program: bytes, show_plan: bool = False) -> None:
    gpu = device.get_device()
    for method, blob in delegates(program):
        plan = Planner(serialize.read(blob), gpu.caps).upper_bound()
        if show_plan:
            print(plan)
        loaded = load(gpu, plan)
        found: dict[str, list[float]] = defaultdict(list)
        kept = [i for i, one in enumerate(plan.dispatches) if 0 not in one.groups]
        for number, index in enumerate(kept):
            found[describe(plan, index)].append(seconds(gpu, loaded, number))
        total = sum(map(sum, found.values()))
        print(f"{method}: {len(kept)} dispatches, {1000 * total:.2f} ms")
        for name, times in sorted(found.items(), key=lambda item: -sum(item[1])):
            share = sum(times) / total
            print(f"{1000 * sum(times):9.3f} ms {share:5.1%} {len(times):4} x {name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks profile", description=__doc__)
    parser.add_argument("program", help="a case's name or a .pte file")
    parser.add_argument("--plan", action="store_true", help="print the plan too")
    options = parser.parse_args()
    path = Path(options.program)
    if not path.exists():
        path = Path("build/benchmarks") / options.program / "webgpu.pte"
    if not path.exists():
        raise SystemExit(f"benchmarks: {path} must exist; run the case first")
    profile(path.read_bytes(), options.plan)


if __name__ == "__main__":
    main()
