"""Kernels one by one: GFLOP/s of every form of an op, side by side in one run.

    python -m benchmarks kernels [matmul] [packed] [conv] [attention] [--rounds N]

Each case is a graph of one op, planned once per form: for this adapter as it is,
without shared loads, and as if it were a GPU. Rounds interleave the forms, so that
noise hits all alike. Rates are per second of CPU time on software adapters, whose
wall time depends on who else is using the machine, and per second of wall time
elsewhere; the best round counts.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from executorch_webgpu import ir
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan.caps import Caps
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime.device import Device, get_device
from executorch_webgpu.runtime.executor import Program, WgpuExecutor


@dataclass
class Case:
    """One op on random operands; `flops` counts a multiply-add as two."""

    name: str
    op: str
    shapes: Sequence[Sequence[int] | object]  # a list of ints is a tensor
    out: Sequence[int]
    flops: float
    constants: Sequence[int] = ()  # which of the shapes are weights
    words: Sequence[int] = ()  # which of these are words of packed codes
    extra: Sequence[ir.Arg] = ()


def matmul_cases() -> list[Case]:
    cases = []
    for m, k, n in [(512, 512, 512), (1024, 1024, 1024), (113, 113, 113)]:
        flops = 2.0 * m * k * n
        cases.append(
            Case(f"mm {m}x{k}x{n}", "aten.mm.default", [[m, k], [k, n]], [m, n], flops)
        )
    for m, k, n in [(1, 2048, 2048), (4, 2048, 2048), (64, 784, 512), (128, 384, 1536)]:
        flops = 2.0 * m * k * n
        shapes = [[m, k], [n, k], [n]]
        cases.append(
            Case(
                f"linear {m}x{k}x{n}",
                "aten.linear.default",
                shapes,
                [m, n],
                flops,
                [1, 2],
            )
        )
    shapes = [[12, 128, 32], [12, 32, 128]]
    cases.append(
        Case(
            "bmm 12x128x32x128",
            "aten.bmm.default",
            shapes,
            [12, 128, 128],
            2.0 * 12 * 128 * 32 * 128,
        )
    )
    return cases


def packed_cases() -> list[Case]:
    cases = []
    for m, k, n, bits, group in [
        (1, 576, 1536, 4, 32),
        (2, 576, 1536, 4, 32),
        (4, 576, 1536, 4, 32),
        (64, 576, 1536, 4, 32),
        (64, 1536, 576, 4, 32),
        (64, 2048, 2048, 8, 2048),
    ]:
        cases.append(
            Case(
                f"linear {bits} bits {m}x{k}x{n}",
                "webgpu.linear_packed",
                [[m, k], [k * bits // 32, n], [k // group, n]],
                [m, n],
                2.0 * m * k * n,
                [1, 2],
                [1],
                [None, n, bits, group, None],
            )
        )
    return cases


def conv_cases() -> list[Case]:
    cases = []
    table = [
        # channels, filters, size, kernel, stride, groups
        (3, 64, 224, 7, 2, 1),
        (64, 64, 56, 3, 1, 1),
        (64, 128, 56, 3, 2, 1),
        (256, 256, 14, 3, 1, 1),
        (512, 512, 7, 3, 1, 1),
        (64, 128, 56, 1, 2, 1),
        (3, 32, 224, 3, 2, 1),
        (24, 144, 56, 1, 1, 1),
        (144, 24, 56, 1, 1, 1),
        (160, 960, 7, 1, 1, 1),
        (144, 144, 56, 3, 1, 144),
        (144, 144, 56, 3, 2, 144),
        (576, 576, 14, 3, 1, 576),
    ]
    for channels, filters, size, kernel, stride, groups in table:
        pad = kernel // 2
        made = (size + 2 * pad - kernel) // stride + 1
        depth = channels // groups * kernel * kernel
        tail: list[ir.Arg] = [
            [stride, stride],
            [pad, pad],
            [1, 1],
            False,
            [0, 0],
            groups,
        ]
        name = f"conv {channels}>{filters} {size} k{kernel} s{stride} g{groups}"
        cases.append(
            Case(
                name,
                "aten.convolution.default",
                [
                    [1, channels, size, size],
                    [filters, channels // groups, kernel, kernel],
                    [filters],
                ],
                [1, filters, made, made],
                2.0 * filters * made * made * depth,
                [1, 2],
                (),
                tail,
            )
        )
    return cases


def attention_cases() -> list[Case]:
    cases = []
    for heads, queries, keys, size in [
        (12, 128, 128, 32),
        (8, 64, 64, 64),
        (8, 512, 512, 64),
        (9, 1, 1024, 64),
    ]:
        shapes = [[1, heads, n, size] for n in (queries, keys, keys)]
        cases.append(
            Case(
                f"attention {heads}x{queries}x{keys}x{size}",
                "aten.scaled_dot_product_attention.default",
                shapes,
                [1, heads, queries, size],
                4.0 * heads * queries * keys * size,
                (),
                (),
                [None, 0.0, False, None, False],
            )
        )
    return cases


FAMILIES = {
    "matmul": matmul_cases,
    "packed": packed_cases,
    "conv": conv_cases,
    "attention": attention_cases,
}


class Runner:
    """A case in one form, ready to run."""

    def __init__(self, device: Device, case: Case, caps: Caps) -> None:
        rng = np.random.default_rng(0)
        graph = ir.Graph()
        data: dict[str, np.ndarray] = {}
        args: list[ir.Arg] = []
        for position, shape in enumerate(case.shapes):
            assert isinstance(shape, list)
            dims = tuple(shape)
            value = ir.Value(f"x{position}", DType.FLOAT32, dims, dims)
            filled = rng.standard_normal(dims, np.float32)
            if position in case.words:
                value.dtype = DType.INT32
                filled = rng.integers(-(2**31), 2**31, dims, np.int32)
            if position in case.constants:
                value.data_key = f"{case.name}{position}"
                data[value.data_key] = filled
            index = graph.add(value)
            if position not in case.constants:
                graph.inputs.append(index)
            args.append(ir.Ref(index))
        made = tuple(case.out)
        out = graph.add(ir.Value("y", DType.FLOAT32, made, made))
        graph.calls.append(ir.Call(case.op, [*args, *case.extra], [out]))
        graph.outputs = [out]
        plan = Planner(graph, caps).upper_bound()
        self.device = device
        self.executor = WgpuExecutor(device, case.name, lambda key: data[key].data)
        self.program: Program = self.executor.prepare(plan)
        inputs = [
            memoryview(rng.standard_normal(graph.values[i].shape, np.float32)).cast("B")
            for i in graph.inputs
        ]
        self.output = np.empty(case.out, np.float32)
        self.executor.play(self.program, inputs, [memoryview(self.output).cast("B")])
        self.kernels = [plan.pipelines[one.pipeline].label for one in plan.dispatches]

    def run(self, times: int) -> float:
        """Seconds per run: CPU time on a software adapter, wall time elsewhere."""
        clock = time.process_time if self.device.caps.is_cpu else time.perf_counter
        start = clock()
        encoder = self.device.raw.create_command_encoder()
        encoding = encoder.begin_compute_pass()
        for _ in range(times):
            for dispatch, pipeline, group in self.program.steps():
                encoding.set_pipeline(pipeline.raw)
                encoding.set_bind_group(0, group.raw)
                encoding.dispatch_workgroups(*dispatch.groups)
        encoding.end()
        self.device.queue.submit([encoder.finish()])
        self.device.finish()
        return (clock() - start) / times


def forms(caps: Caps) -> dict[str, Caps]:
    """The adapter as it is, without shared loads, and as if it were a GPU."""
    found = {"default": caps}
    if caps.is_cpu and caps.subgroups:
        found["unshared"] = replace(caps, subgroups=False)
    if caps.is_cpu:
        found["gpu"] = replace(caps, is_cpu=False)
    return found


def measure(device: Device, case: Case, rounds: int) -> str:
    runners = {
        name: Runner(device, case, caps) for name, caps in forms(device.caps).items()
    }
    reference = runners["default"].output
    cells = []
    best = dict.fromkeys(runners, math.inf)
    for _ in range(rounds):
        for name, runner in runners.items():
            once = runner.run(1)
            times = max(1, min(20, int(0.05 / max(once, 1e-5))))
            best[name] = min(best[name], once, runner.run(times))
    for name, runner in runners.items():
        scale = float(np.abs(reference).max()) or 1.0
        error = float(np.abs(runner.output - reference).max()) / scale
        rate = case.flops / best[name] / 1e9
        mark = "" if error < 1e-4 else f" (differs by {error:.0e})"
        cells.append(f"{rate:7.2f} {'+'.join(runner.kernels)}{mark}")
        runner.executor.close()
    return f"| {case.name:32} | {best['default'] * 1e3:8.2f} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES], default=[])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    device = get_device()
    names = list(forms(device.caps))
    clock = "CPU second" if device.caps.is_cpu else "second"
    print(f"{device.caps.name}: GFLOP per {clock}")
    print(f"| case | ms | {' | '.join(names)} |")
    print("|---" * (2 + len(names)) + "|")
    for family in options.families or FAMILIES:
        for case in FAMILIES[family]():
            print(measure(device, case, options.rounds), flush=True)


if __name__ == "__main__":
    main()
