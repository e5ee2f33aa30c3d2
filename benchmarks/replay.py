"""What the host does per dispatch and per call, beside a bare C loop.

python -m benchmarks replay prints, for a plan of 1,000 dispatches, the time to
record one dispatch and to play the plan with the native replay, with wgpu-py,
and with benchmarks/bare.c on the same handles; and the same for x + 1 on 4x8
through the standard runtime. All contenders take turns in one process; numbers
are medians, and only their ratios mean anything. Needs a C compiler.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import wgpu

from executorch_webgpu.ir.dtypes import DType, Storage
from executorch_webgpu.plan.plan import (
    Buffer,
    Dispatch,
    Pipeline,
    Plan,
    Port,
    PortKind,
    Role,
)
from executorch_webgpu.runtime import delegate, device
from executorch_webgpu.runtime.executor import Program, WgpuExecutor

DISPATCHES = 1000
ELEMENTS = 32
GOAL = 1.5

KERNEL = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) i: u32) {{ y[i] = x[i] + {add}; }}
"""


class Work(ctypes.Structure):
    """`Work` of bare.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("device", "queue")),
        *((name, ctypes.c_void_p) for name in ("input", "output", "staging")),
        ("bytes", ctypes.c_size_t),
        ("count", ctypes.c_size_t),
        ("pipelines", ctypes.POINTER(ctypes.c_void_p)),
        ("groups", ctypes.POINTER(ctypes.c_void_p)),
        ("is_shared", ctypes.c_int),
        ("is_open", ctypes.c_int),
    ]


def make_plan(dispatches: int) -> Plan:
    """Two kernels in turn, so that every dispatch sets everything."""
    size = 4 * ELEMENTS
    roles = ((Role.INPUT, "in0"), (Role.OUTPUT, "out0"), (Role.SCRATCH, "s0"))
    kernels = [
        Pipeline(f"add{add}", KERNEL.format(add=f"{add}.0"), ("read", "write"))
        for add in (1, 2)
    ]
    steps = [
        Dispatch(i % 2, (0, 1 + i % 2), -1, 0, (1, 1, 1), "add", i)
        for i in range(dispatches)
    ]
    port = Port("x", PortKind.TENSOR, 0, DType.FLOAT32, Storage.F32, (ELEMENTS,))
    out = Port("y", PortKind.TENSOR, 1, DType.FLOAT32, Storage.F32, (ELEMENTS,))
    buffers = tuple(Buffer(role, size, key) for role, key in roles)
    return Plan(buffers, (), tuple(kernels), tuple(steps), b"", (port,), (out,))


def build_bare(place: Path) -> ctypes.CDLL:
    """bare.c, linked to the very library that wgpu-py has loaded."""
    library = Path(device.native_library())
    target = place / "bare.so"
    source = Path(__file__).with_name("bare.c")
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", f"-I{library.parent}", source, library]
        + [f"-Wl,-rpath,{library.parent}", "-o", target],
        check=True,
    )
    return ctypes.CDLL(str(target))


def bare_work(program: Program) -> tuple[Work, list[Any]]:
    """The handles of a program with one input and one output of its size for bare.c,
    and what must be kept alive for it."""
    steps = program.steps()
    pipelines = (ctypes.c_void_p * len(steps))(*(p.handle for _, p, _ in steps))
    groups = (ctypes.c_void_p * len(steps))(*(g.handle for _, _, g in steps))
    gpu = program.executor.device
    (source,), (result,) = program.plan.inputs, program.plan.outputs
    assert source.nbytes == result.nbytes
    usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
    staging = gpu.buffer("bare", source.nbytes, usage)
    work = Work(
        *gpu.handles,
        program.buffers[source.buffer].handle,
        program.buffers[result.buffer].handle,
        staging.handle,
        source.nbytes,
        len(steps),
        ctypes.cast(pipelines, ctypes.POINTER(ctypes.c_void_p)),
        ctypes.cast(groups, ctypes.POINTER(ctypes.c_void_p)),
        gpu.is_shared,
    )
    return work, [pipelines, groups, staging]


def in_turns(
    contenders: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, float]:
    """Median microseconds of each, all of them once per round."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 3):
        for name, function in contenders.items():
            start = time.perf_counter()
            function()
            if number >= 3:
                times[name].append(time.perf_counter() - start)
    return {name: 1e6 * statistics.median(t) for name, t in times.items()}


def show(title: str, times: Mapping[str, float], unit: float, floor: str) -> float:
    print(f"\n{title}")
    for name, value in times.items():
        ratio = value / times[floor]
        print(f"  {name:<34}{value / unit:>10.3f} us{ratio:>8.2f}x")
    return times["native replay"] / times[floor]


def contenders(
    program: Program, bare: ctypes.CDLL
) -> tuple[dict[str, Callable[[], object]], dict[str, Callable[[], object]]]:
    """Who records, and who plays, one and the same program."""
    executor = program.executor
    gpu = executor.device
    replay = program.native_replay(executor.session)
    work, kept = bare_work(program)
    x = np.arange(ELEMENTS, dtype=np.float32)
    y = np.zeros_like(x)
    views = [memoryview(x).cast("B")], [memoryview(y).cast("B")]

    def bare_run() -> None:
        # The native replay leaves its inputs mapped, as the bare loop does.
        executor.session.close_inputs()
        assert (
            bare.bare_run(
                ctypes.byref(work),
                x.ctypes.data_as(ctypes.c_void_p),
                y.ctypes.data_as(ctypes.c_void_p),
            )
            == 1
        ), kept
        bare.bare_close(ctypes.byref(work))

    record = {
        "bare C loop": lambda: bare.bare_record(ctypes.byref(work)),
        "native replay": replay.record,
        "wgpu-py executor": lambda: executor._encode(program),
    }
    play = {
        "bare C loop": bare_run,
        "native replay": lambda: replay.run(gpu.lock, [x], [y]),
        "wgpu-py executor": lambda: program.play(*views),
    }
    return record, play


def through_the_runtime(place: Path) -> Callable[[], object]:
    """x + 1 on 4x8, loaded with the standard runtime."""
    import torch
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    from executorch_webgpu import WebGPUPartitioner

    class AddOne(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    x = torch.zeros(4, 8)
    edge = to_edge_transform_and_lower(
        torch.export.export(AddOne(), (x,)), partitioner=[WebGPUPartitioner()]
    )
    path = place / "add_one.pte"
    path.write_bytes(edge.to_executorch().buffer)
    method = Runtime.get().load_program(path).load_method("forward")
    assert method is not None
    return lambda: method.execute([x])


def main() -> None:
    gpu = device.get_device()
    assert delegate._is_native_possible()
    print(f"adapter: {gpu.caps.name}")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        bare = build_bare(place)
        executor = WgpuExecutor(gpu, "bench", lambda key: None)

        record, play = contenders(executor.prepare(make_plan(DISPATCHES)), bare)
        title = f"recording, per dispatch of {DISPATCHES:,}"
        ratio = show(title, in_turns(record, 50), DISPATCHES, "bare C loop")
        verdict = "met" if ratio <= GOAL else "missed"
        print(f"  goal of {GOAL}x: {verdict}")
        show(f"playing {DISPATCHES:,} dispatches", in_turns(play, 10), 1, "bare C loop")

        _, play = contenders(executor.prepare(make_plan(1)), bare)
        play["x + 1 (4x8), Method.execute"] = through_the_runtime(place)
        show("one dispatch and its read-back", in_turns(play, 300), 1, "bare C loop")
        executor.close()


if __name__ == "__main__":
    main()
