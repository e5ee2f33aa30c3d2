"""Rows reduced by a workgroup: with subgroups of any size, and with barriers.

llvmpipe has subgroups of 8 invocations, SwiftShader of 4.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gpu_plans import check
from test_tint import Builder, filled, half, real, weight, whole

from executorch_webgpu import ir
from executorch_webgpu.ops.reduce import workgroup_reduction
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner

# One row per workgroup: 64 invocations, or 256 from 513 elements on; more than one
# workgroup per row where rows are few.
ROWS = real(5, 113)
LONG = real(3, 777)
SPLIT = real(2, 20_000)
IMAGE = real(2, 8, 9, 5)
INTEGERS = whole(3, 777, dtype=torch.int32)
LARGE = whole(3, 777)
FOURS = real(5, 772)

CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("reduce_workgroup", ("aten.sum.dim_IntList", ROWS, [1], True)),
    ("reduce_workgroup", ("aten.sum.dim_IntList", half(ROWS), [1], True)),
    ("reduce_workgroup", ("aten.sum.dim_IntList", SPLIT, [1], True)),
    ("reduce_workgroup", ("aten.sum.dim_IntList", LARGE, [1], True)),
    ("reduce_workgroup", ("aten.prod.dim_int", INTEGERS, 1, False, torch.int32)),
    ("reduce_workgroup", ("aten.amax.default", LONG, [1])),
    ("reduce_workgroup", ("aten.argmin.default", LONG, 1)),
    ("reduce_workgroup", ("aten.max.dim", INTEGERS, 1)),
    ("reduce_workgroup", ("aten.any.dim", INTEGERS, 1)),
    ("reduce_workgroup", ("aten.var.correction", LONG, [1])),
    ("reduce_workgroup", ("aten.logsumexp.default", ROWS, [1])),
    ("softmax_workgroup", ("aten._softmax.default", ROWS, 1, False)),
    ("softmax_workgroup", ("aten._softmax.default", half(LONG), 1, False)),
    ("softmax_workgroup", ("aten._log_softmax.default", LONG, 1, False)),
    (
        "norm_workgroup",
        ("aten.native_layer_norm.default", LONG, [777], weight(777), None, 1e-5),
    ),
    (
        "norm_workgroup",
        ("aten.native_group_norm.default", IMAGE, weight(8), None, 2, 8, 45, 2, 1e-5),
    ),
    ("rms_workgroup", ("webgpu.rms_norm", ROWS, weight(113), 1e-6, [ROWS])),
    (
        "rms_workgroup",
        ("aten._fused_rms_norm.default", IMAGE, [9, 5], weight(9, 5), 1e-6),
    ),
    (
        "norm_registers",
        ("aten.layer_norm.default", FOURS, [772], weight(772), weight(772), 1e-5),
    ),
    ("norm_registers", ("aten.layer_norm.default", half(FOURS), [772])),
    ("norm_registers", ("webgpu.rms_norm", FOURS, weight(772), 1e-6, [FOURS])),
    ("norm_registers", ("aten.layer_norm.default", real(3, 4200), [4200])),
    ("round_rows", ("webgpu.round_rows", ROWS, 113, -128, 127, 1e-6, [ROWS])),
    (
        "attention_weights",
        # Not a multiple of four columns: scores are stored.
        ("aten.scaled_dot_product_attention.default", *[real(1, 2, 9, 6)] * 3),
    ),
]


def graph_of(call: tuple[Any, ...]) -> ir.Graph:
    name, *args = call
    return Builder(name, filled(name, args)).graph


# Made once: what is wanted of a graph is kept by it.
GRAPHS = [(kernel, functools.partial(graph_of, call)) for kernel, call in CALLS]
IDS = [f"{call[0]}-{number}" for number, (_, call) in enumerate(CALLS)]


def with_extremes(inputs: list[np.ndarray]) -> None:
    """NaN in the first row, infinities in others; the last row is as it was."""
    values = inputs[0].reshape(-1)
    if values.dtype != np.int32:
        last = values.size // 5 * 3
        values[7] = np.nan
        values[last] = np.inf
        values[last + 1] = -np.inf


@pytest.mark.parametrize(("kernel", "graph"), GRAPHS, ids=IDS)
@pytest.mark.parametrize("subgroups", [True, False])
def test_rows_of_a_workgroup(kernel: str, graph: Any, subgroups: bool) -> None:
    check(graph, [kernel], subgroups)


EXTREMES = (
    "sum",
    "amax",
    "argmin",
    "logsumexp",
    "_softmax",
    "_log_softmax",
    "rms_norm",
)


@pytest.mark.parametrize(
    ("kernel", "graph"),
    [pair for pair in GRAPHS if pair[1].args[0][0].split(".")[1] in EXTREMES],
)
def test_nan_and_infinity(kernel: str, graph: Any) -> None:
    check(graph, [kernel], True, with_extremes)


def test_subgroups_are_used_where_they_are() -> None:
    gpu = replace(AOT_CAPS, subgroups=True)
    for caps, offered in (
        (AOT_CAPS, ["workgroup"]),
        (gpu, ["subgroups", "workgroup"]),
        (replace(gpu, is_cpu=True), ["workgroup"]),
    ):
        assert workgroup_reduction.forms(caps) == offered
    for _, graph in GRAPHS:
        for caps in (AOT_CAPS, gpu):
            plan = Planner(graph(), caps).upper_bound()
            used = any("subgroup" in pipeline.wgsl for pipeline in plan.pipelines)
            assert used == caps.subgroups
            merging = [c for c in plan.choices if "subgroups" in c.names]
            assert bool(merging) == caps.subgroups
            assert all(choice.chosen == "subgroups" for choice in merging)
