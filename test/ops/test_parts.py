"""Weights larger than a binding, in parts; the adapter's limit is set small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from executorch.runtime import Method, Runtime
from forms import adapter_with
from harness import Program, check_op, compare, lower
from torch.nn import functional as F
from torchao.quantization import PerGroup
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

from executorch_webgpu import last_error
from executorch_webgpu.errors import Unsupported
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Role
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import device

LIMIT = 16 << 10  # bytes of a binding


class Plain(torch.nn.Module):
    """A table, which is also the last layer, and products with other weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(533, 36)
        self.narrow = torch.nn.Embedding(5000, 7)
        self.linear = torch.nn.Linear(36, 301)
        self.matrix = torch.nn.Parameter(torch.randn(36, 300))
        self.halves = torch.nn.Linear(36, 700).half()
        self.register_buffer("whole", torch.randint(-9, 9, (36, 340)).int())

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.table(ids)
        return (
            x,
            F.relu(self.narrow(ids)) + 1,
            F.gelu(self.linear(x)),
            x @ self.matrix,
            torch.addmm(x[0, :, :1], x[0], self.matrix, beta=0.5, alpha=2.0),
            F.linear(x, self.table.weight),
            self.halves(x.half()),
            (ids.int().reshape(-1, 1) * torch.ones(36).int()) @ self.whole,
        )


class Packed(torch.nn.Module):
    """A table and a layer of 4 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(1100, 64)
        self.linear = torch.nn.Linear(64, 1050)
        config = IntxWeightOnlyConfig(torch.int4, PerGroup(32))
        quantize_(self, config, lambda module, name: name in ("table", "linear"))

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.table(ids)
        return x + 1, F.relu(self.linear(x))


def load(program: Program) -> tuple[Method, object]:
    loaded = Runtime.get().load_program(program.buffer)
    method = loaded.load_method("forward")
    assert method is not None, last_error()
    return method, loaded


@pytest.mark.parametrize("model", [Plain, Packed])
def test_parts_of_large_weights(model: type[torch.nn.Module]) -> None:
    made = model()
    # At both ends of the table and of its parts.
    ids, others = torch.tensor([[0, 95, 96]]), torch.tensor([[532, 255, 256]])
    program = check_op(made, ids, others=[(others,)])
    with torch.no_grad():
        expected = [(x, made(x)) for x in (ids, others, ids)]
    ((_, blob),) = program.delegates
    for changes in ({"is_cpu": True}, {"is_cpu": False}, {"f16": False}):
        caps: Any = replace(device.get_device().caps, max_binding=LIMIT, **changes)
        plan = Planner(serialize.read(blob), caps).upper_bound()
        sizes = [b.size for b in plan.buffers if b.role is Role.CONSTANT]
        assert max(sizes) <= LIMIT < sum(sizes)
        with adapter_with(max_binding=LIMIT, **changes):
            method, _program = load(program)
            for x, results in expected:
                compare(list(method.execute([x])), results)


@pytest.mark.parametrize("model", [Plain, Packed])
def test_a_bad_index_is_reported_once(model: type[torch.nn.Module]) -> None:
    ids = torch.tensor([[3, 7]])
    program = lower(model(), (ids,))
    with adapter_with(max_binding=LIMIT):
        method, _program = load(program)
        for bad in (-1, 2000):
            with pytest.raises(RuntimeError):
                method.execute([torch.tensor([[3, bad]])])
            assert f"got {bad}" in (last_error() or "")
        method.execute([ids])


def test_parts_are_shared_with_the_last_layer() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(533, 36)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return F.linear(self.table(ids), self.table.weight)

    ((_, blob),) = lower(Tied(), (torch.tensor([[1, 2]]),)).delegates
    caps = replace(AOT_CAPS, max_binding=LIMIT)
    plan = Planner(serialize.read(blob), caps).upper_bound()
    constants = [b.size for b in plan.buffers if b.role is Role.CONSTANT]
    assert len(constants) == 6
    assert sum(constants) == 533 * 36 * 4


def test_a_row_that_is_too_long_is_refused() -> None:
    ((_, blob),) = lower(torch.nn.Linear(200, 40), (torch.randn(2, 200),)).delegates
    caps = replace(AOT_CAPS, max_binding=LIMIT)
    with pytest.raises(Unsupported, match="32 rows of a constant must fit 16384 bytes"):
        Planner(serialize.read(blob), caps).upper_bound()
