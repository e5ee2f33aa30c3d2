"""What a language model holds on the GPU: weights once, caches, little else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from decoding import greedy
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from test_llm import random_llama

import executorch_webgpu
from executorch_webgpu import WebGPUPartitioner, stats
from executorch_webgpu.cli import delegates
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.plan import Plan, Role
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import device

PROMPT = 24
FILE = "weights"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Two methods of one model, for prompts and for single tokens, and a `.ptd`."""
    model = random_llama(width=256, hidden=512, heads=4)
    length = torch.export.Dim("length", min=1, max=PROMPT)
    with torch.no_grad():
        exported = {
            "prefill": torch.export.export(
                model,
                (torch.zeros(1, 3, dtype=torch.long), torch.arange(3)),
                dynamic_shapes=({1: length}, {0: length}),
            ),
            "decode": torch.export.export(
                model, (torch.zeros(1, 1, dtype=torch.long), torch.arange(1))
            ),
        }
    partitioners = {
        name: [WebGPUPartitioner(external_weights=FILE)] for name in exported
    }
    edge = to_edge_transform_and_lower(exported, partitioner=partitioners)
    for [partitioner] in partitioners.values():
        assert partitioner.report.complete, str(partitioner.report)
    folder = tmp_path_factory.mktemp("llm")
    made = edge.to_executorch()
    (folder / "model.pte").write_bytes(made.buffer)
    made.write_tensor_data_to_file(str(folder))
    return model, folder


def plans(folder: Path) -> dict[str, Plan]:
    """What each method's delegate is planned to hold, at its largest shapes."""
    caps = device.get_device().caps
    found = delegates((folder / "model.pte").read_bytes())
    return {
        name: Planner(serialize.read(blob), caps).upper_bound() for name, blob in found
    }


def held(plan: Plan, *roles: Role) -> int:
    return sum(buffer.size for buffer in plan.buffers if buffer.role in roles)


def load(folder: Path) -> Any:
    path, data = folder / "model.pte", folder / f"{FILE}.ptd"
    return Runtime.get().load_program(path, data_path=data)


def test_weights_are_in_a_file_of_their_own(saved: tuple[Any, Path]) -> None:
    model, folder = saved
    packed = sum(
        math.prod(tensor.shape) // (2 if "table" not in name else 1)
        for name, tensor in model.named_buffers()
        if name.endswith("codes")
    )
    assert (folder / f"{FILE}.ptd").stat().st_size > packed
    assert (folder / "model.pte").stat().st_size < packed / 2
    program = load(folder)
    method = program.load_method("prefill")
    prompt = [3, 1, 4, 1, 5]
    assert greedy(lambda t, p: method.execute([t, p])[0], prompt, 8) == greedy(
        model, prompt, 8
    )


def test_methods_share_their_weights_and_hold_little_else(
    saved: tuple[Any, Path],
) -> None:
    _, folder = saved
    planned = plans(folder)
    program = load(folder)
    before = stats().buffer_bytes
    methods, sizes = [], []
    for name in ("prefill", "decode"):
        methods.append(program.load_method(name))
        sizes.append(stats().buffer_bytes - before)
        before = stats().buffer_bytes
    weights = held(planned["prefill"], Role.CONSTANT)
    caches = held(planned["prefill"], Role.STATE)
    assert caches == 2 * 2 * 2 * 48 * 64 * 4  # layers, k and v, heads, context, head
    for size, name, shared in ((sizes[0], "prefill", 0), (sizes[1], "decode", weights)):
        plan = planned[name]
        live = plan.scratch_bytes + held(plan, Role.INPUT, Role.OUTPUT)
        needed = held(plan, Role.CONSTANT) + caches + live - shared
        assert needed <= size <= 1.15 * needed, (name, size, needed)
    assert sizes[1] < weights / 2


def test_a_reset_empties_the_caches(saved: tuple[Any, Path]) -> None:
    _, folder = saved
    program = load(folder)
    method = program.load_method("decode")
    last = [torch.tensor([[7]]), torch.tensor([9])]
    (clean,) = method.execute(last)
    executorch_webgpu.reset_state()
    for position in range(9):
        method.execute([torch.tensor([[position + 20]]), torch.tensor([position])])
    (full,) = method.execute(last)
    assert not torch.allclose(full, clean, atol=1e-2)
    executorch_webgpu.reset_state()
    (again,) = method.execute(last)
    torch.testing.assert_close(again, clean)
