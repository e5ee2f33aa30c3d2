"""Every kernel gives the same on Dawn, compiled by Tint, as on wgpu, by naga, and
there with all run-time checks as without the counters of loops.

The calls of `test_tint.py`, which reach every file in wgsl/, are planned for
devices whose kernels differ and played by both on one driver. Software drivers
give the same bits: neither compiler contracts or reorders arithmetic, so what a GPU
may differ by is its own doing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import dawn
import drivers
import numpy as np
import pytest
from test_tint import CALLS, Builder, filled, half, real
from wgsl_compilers import CAPS

from executorch_webgpu import ir
from executorch_webgpu.ir.dtypes import DType, to_storage
from executorch_webgpu.plan.constant_data import padded
from executorch_webgpu.plan.plan import Plan, Port, PortKind
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import device, executor


def values(dtype: DType, shape: Sequence[int], seed: int) -> np.ndarray:
    """Numbers of a type; integers are different from their neighbours and small,
    so that they are good indices too."""
    count = int(np.prod(shape))
    if dtype.is_float:
        made = np.random.default_rng(seed).standard_normal(count)
        return made.astype(np.float32).astype(dtype.numpy).reshape(shape)
    if dtype is DType.UINT8:
        return np.random.default_rng(seed).integers(0, 256, shape).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return (np.arange(count) % 3 == 0).reshape(shape)
    small = np.arange(count) % 29
    # A product of odd numbers never loses all its bits.
    small = small if dtype is DType.INT64 else 2 * small + 1
    return small.astype(dtype.numpy).reshape(shape)


def contents(graph: ir.Graph, plan: Plan) -> tuple[list[np.ndarray], dict[str, Any]]:
    """What goes into a plan's inputs and, by data key, into its constants."""
    inputs = [
        np.ones((), np.int32)
        if port.kind is PortKind.INT
        else to_storage(
            values(port.dtype, port.shape, seed).reshape(-1), port.dtype, port.storage
        )
        for seed, port in enumerate(plan.inputs)
    ]
    constants = {
        value.data_key: values(value.dtype, value.bound, 100 + index)
        for index, value in enumerate(graph.values)
        if value.data_key
    }
    return inputs, constants


def play_wgpu(
    plan: Plan,
    inputs: Sequence[np.ndarray],
    constants: dict[str, Any],
    is_checked: bool = False,
) -> tuple[list[bytes], dict[int, bytes]]:
    """The outputs' bytes, and those of the constants as they are on the GPU."""
    gpu = device.get_device()
    player = executor.WgpuExecutor(
        gpu,
        "test",
        lambda key: memoryview(constants[key].reshape(-1)).cast("B"),
        is_checked=is_checked,
    )
    outputs = [bytearray(port.nbytes) for port in plan.outputs]
    with gpu.lock:
        try:
            program = player.prepare(plan)
            program.play(
                [padded(x.reshape(-1).view(np.uint8)).data for x in inputs],
                [memoryview(out) for out in outputs],
            )
            packed = {
                constant.buffer: bytes(
                    gpu.queue.read_buffer(program.buffers[constant.buffer].raw)
                )
                for constant in plan.constants
            }
        finally:
            player.close()
    return [bytes(out) for out in outputs], packed


def differences(results: bytes, wanted: bytes, port: Port) -> str:
    """How two results differ; empty if they do not."""
    a, b = (
        np.frombuffer(x, port.storage.numpy)[: port.numel] for x in (results, wanted)
    )
    if a.tobytes() == b.tobytes():
        return ""
    wrong = (a != b) & ~((a != a) & (b != b))
    away = np.abs(a.astype(np.float64) - b)[wrong].max(initial=0.0)
    largest = np.abs(b[np.isfinite(b)].astype(np.float64)).max(initial=0.0)
    if not device.get_device().caps.is_cpu and away <= largest * 2.0**-20:
        return ""
    return (
        f"{port.name}: {wrong.sum()} of {a.size} differ, by up to {away} of {largest}"
    )


KINDS: list[tuple[str, Callable[[Any], Any]]] = [
    ("llvmpipe", list),
    ("a browser's GPU", list),
    ("a browser's GPU", half),
    ("a GPU with subgroups", list),
    ("SwiftShader", half),
]


# Ops whose kernels for GPUs are compared in halves, one of each family: only llvmpipe
# has f16, and takes a third of the time of all these tests to compile the others.
# `make first-driver` compares all of them.
HALVES = frozenset(
    {
        *("aten.add.Tensor", "aten.cat.default", "aten.embedding.default"),
        *("aten.mm.default", "aten.convolution.default", "aten._softmax.default"),
        *("aten.native_layer_norm.default", "et_vk.linear_q4gsw.default"),
    }
)


def plans(call: Sequence[Any]) -> list[tuple[str, ir.Graph, Plan]]:
    """The plans of an op that differ, each with a kind of device that it is for."""
    name, *args = call
    found: dict[Any, tuple[str, ir.Graph, Plan]] = {}
    for kind, form in KINDS:
        caps = CAPS[kind]
        if caps.f16 and not (caps.is_cpu or drivers.ON_FIRST or name in HALVES):
            continue
        assert caps.f16 <= ("f16" in dawn.on("").features)
        assert caps.subgroups <= ("subgroups" in dawn.on(drivers.second).features)
        graph = Builder(name, filled(name, form(args))).graph
        plan = Planner(graph, caps).upper_bound()
        what_runs = (plan.buffers, plan.pipelines, plan.dispatches, plan.params)
        found.setdefault(what_runs, (kind, graph, plan))
    return list(found.values())


# Kernels that were compared with themselves with all checks.
_compared: set[str] = set()


def is_to_compare(plan: Plan) -> bool:
    """Whether a plan has a kernel with loops, without which checks change nothing, and
    no plan before had it; those of halves are those of floats."""
    texts = {p.wgsl for p in plan.pipelines if re.search(r"\b(for|while) \(", p.wgsl)}
    is_new = not texts <= _compared and "enable f16;" not in "".join(texts)
    _compared.update(texts)
    return is_new


@pytest.mark.parametrize("call", CALLS, ids=[call[0] for call in CALLS])
def test_kernels_agree(call: Sequence[Any]) -> None:
    for kind, graph, plan in plans(call):
        inputs, constants = contents(graph, plan)
        adapter = ""
        if not CAPS[kind].is_cpu:
            adapter = drivers.for_gpu_kernels(drivers.needs_f16(plan))
        with drivers.chosen(adapter):
            wanted, packed = play_wgpu(plan, inputs, constants)
            players = {
                "Dawn": dawn.on(adapter).play(
                    plan, [x.tobytes() for x in inputs], packed
                )
            }
            if is_to_compare(plan):
                checked = play_wgpu(plan, inputs, constants, is_checked=True)
                players["checked"], _ = checked
        kernels = ", ".join(pipeline.label for pipeline in plan.pipelines)
        for player, results in players.items():
            for port, result, want in zip(plan.outputs, results, wanted, strict=True):
                found = differences(result, want, port)
                who = f"{player}, {call[0]} by {kernels} for {kind}"
                assert not found, f"{who}: {found}"
                assert port.numel < 8 or len(set(want)) > 1, f"{who}: all equal"


def test_a_wrong_result_is_noticed() -> None:
    graph = Builder("aten.mm.default", [real(8, 16), real(16, 8)]).graph
    plan = Planner(graph, CAPS["llvmpipe"]).upper_bound()
    inputs, constants = contents(graph, plan)
    (wanted,), packed = play_wgpu(plan, inputs, constants)
    inputs[0][3] = np.nextafter(inputs[0][3], np.float32(9.0))
    (result,) = dawn.on("").play(plan, [x.tobytes() for x in inputs], packed)
    assert "differ" in differences(result, wanted, plan.outputs[0])


def test_dawn_refuses_an_invalid_plan() -> None:
    graph = Builder("aten.mm.default", [real(8, 16), real(16, 8)]).graph
    plan = Planner(graph, CAPS["llvmpipe"]).upper_bound()
    inputs, _ = contents(graph, plan)
    steps = [replace(step, groups=(1 << 20, 1, 1)) for step in plan.dispatches]
    with pytest.raises(AssertionError, match="Dawn: dispatch"):
        dawn.on("").play(
            replace(plan, dispatches=tuple(steps)), [x.tobytes() for x in inputs], {}
        )
