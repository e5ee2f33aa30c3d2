"""Plans for GPUs, played on software drivers: what they give must be what the forms
for CPU adapters give, which other tests hold equal to eager."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import dawn
import drivers
import numpy as np
from test_dawn import contents, differences, play_wgpu

from executorch_webgpu import ir
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import device

# With the workgroup memory that most GPUs have, and the tiles that need it.
GPU = replace(AOT_CAPS, workgroup_memory=32 << 10)

# Of the largest result, by the size of an element.
TOLERANCES = {4: 2e-5, 2: 2e-3}

MakeGraph = Callable[[], ir.Graph]
Change = Callable[[list[np.ndarray]], None]


def _unchanged(inputs: list[np.ndarray]) -> None:
    pass


@functools.cache
def wanted(graph_of: MakeGraph, change: Change = _unchanged) -> list[np.ndarray]:
    """What the forms for CPU adapters give, on the first driver."""
    graph = graph_of()
    caps = replace(device.get_device().caps, is_cpu=True)
    plan = Planner(graph, caps).upper_bound()
    inputs, constants = contents(graph, plan)
    change(inputs)
    return _arrays(plan, play_wgpu(plan, inputs, constants)[0])


def check(
    graph_of: MakeGraph,
    uses: Collection[str],
    subgroups: bool = False,
    change: Change = _unchanged,
    f16_accumulate: bool = False,
) -> None:
    """Plays a graph as on a GPU, by wgpu and by Dawn.

    A plan with halves is played on all drivers, and by Dawn on the first. The kernels
    named in `uses` must take part. `change` may alter the inputs.
    """
    expected = wanted(graph_of, change)
    graph = graph_of()
    for adapter in {"": 0, drivers.second: 0}:
        with drivers.chosen(adapter):
            f16 = device.get_device().caps.f16
            caps = replace(
                GPU, f16=f16, subgroups=subgroups, f16_accumulate=f16_accumulate
            )
            plan = Planner(graph, caps).upper_bound()
            if not adapter:
                place = drivers.for_gpu_kernels(drivers.needs_f16(plan))
                if place:
                    continue
            assert set(uses) <= {pipeline.label for pipeline in plan.pipelines}
            inputs, constants = contents(graph, plan)
            change(inputs)
            results, in_memory = play_wgpu(plan, inputs, constants)
        _compare(plan, results, expected, adapter)
        if adapter == place:
            data = [x.tobytes() for x in inputs]
            by_dawn = dawn.on(adapter).play(plan, data, in_memory)
            for port, result, other in zip(plan.outputs, by_dawn, results):
                assert not differences(result, other, port)


def _arrays(plan: Plan, results: Sequence[bytes]) -> list[np.ndarray]:
    return [
        np.frombuffer(data, port.storage.numpy)[: port.numel]
        for port, data in zip(plan.outputs, results, strict=True)
    ]


def _compare(
    plan: Plan, results: Sequence[bytes], expected: Sequence[np.ndarray], where: str
) -> None:
    pairs = zip(_arrays(plan, results), expected, strict=True)
    for number, (result, want) in enumerate(pairs):
        label = f"{where} output {number}".strip()
        if result.dtype == np.int32:
            np.testing.assert_array_equal(result, want, err_msg=label)
            continue
        size = min(result.itemsize, want.itemsize)
        finite = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        np.testing.assert_allclose(
            result,
            want.astype(np.float64),
            rtol=0.0,
            atol=TOLERANCES[size] * float(finite),
            err_msg=label,
        )
