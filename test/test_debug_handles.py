"""ExecuTorch's Inspector finds the model's own ops and modules behind every launch, and
compares the results of calls with the model's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from executorch.devtools import Inspector
from executorch.devtools.etrecord import parse_etrecord
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import (
    _load_for_executorch_from_buffer,
)
from torch import nn

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.plan.load_graph import load_graph as load
from executorch_webgpu.runtime import delegate


class Block(nn.Module):
    """A convolution with all that is fused into it, layers of one input, which are
    merged, and attention that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        q, k, v = self.query(x), self.key(x), self.value(x)
        return torch.softmax(q @ k.transpose(1, 2), -1) @ v + x


@dataclass
class Exported:
    program: Any  # ExecuTorch's; a loaded module refers to its bytes
    record: str
    inputs: tuple[torch.Tensor, ...]
    expected: torch.Tensor

    def inspected(self, folder: Path, debug_bytes: int = 0) -> Inspector:
        """What a run leaves."""
        module = _load_for_executorch_from_buffer(
            self.program.buffer, enable_etdump=True, debug_buffer_size=debug_bytes
        )
        (result,) = module.forward(self.inputs)
        torch.testing.assert_close(result, self.expected, rtol=0, atol=2)
        dump, values = folder / "run.etdp", folder / "run.bin"
        module.write_etdump_result_to_file(str(dump), str(values))
        return Inspector(
            etdump_path=str(dump),
            etrecord=parse_etrecord(self.record),
            debug_buffer_path=str(values) if debug_bytes else None,
        )


def export(model: nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path) -> Any:
    with torch.no_grad():
        edge = to_edge_transform_and_lower(
            torch.export.export(model.eval(), inputs),
            partitioner=[WebGPUPartitioner()],
            generate_etrecord=True,
        )
        program = edge.to_executorch()
        record = program.get_etrecord()
        record.update_representative_inputs(list(inputs))
        record.save(str(folder / "model.etrecord"))
        expected = model(*inputs)
    return Exported(program, str(folder / "model.etrecord"), inputs, expected)


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    torch.manual_seed(0)
    return export(Block(), (torch.randn(1, 3, 5, 7),), tmp_path_factory.mktemp("block"))


def delegated(inspector: Inspector) -> list[Any]:
    events = [event for block in inspector.event_blocks for event in block.events]
    return [event for event in events if event.is_delegated_op]


def modules(event: Any) -> set[str]:
    """The innermost module of each node behind an event."""
    return {[*stack.values()][-1][0] for stack in event.module_hierarchy.values()}


def test_launches_are_the_models_ops(block: Exported, tmp_path: Path) -> None:
    events = delegated(block.inspected(tmp_path))
    by_op: dict[str, Any] = {}
    for event in events:
        by_op.setdefault(event.name.split(":")[0].split(" ")[1], event)
    conv = by_op["aten.convolution.default"]
    assert [op.split(".")[1] for op in conv.op_types] == [
        "convolution",
        "_native_batch_norm_legit_no_training",
        "tanh",
    ]
    assert modules(conv) == {"conv", "norm", ""}
    assert "torch.tanh(self.norm(self.conv(x)))" in str(conv.stack_traces)
    assert modules(by_op["aten.linear.default"]) == {"query", "key", "value"}
    attention = by_op["webgpu.attention"].op_types
    assert [op.split(".")[1] for op in attention].count("matmul") == 2
    assert "aten._softmax.default" in attention
    assert "aten.add.Tensor" in attention
    # Attention takes several launches, of which none is lost.
    assert len(events) > len(by_op)
    assert all(event.op_types and event.perf_data.avg > 0 for event in events)


def test_every_computing_node_is_behind_a_call(block: Exported) -> None:
    record = parse_etrecord(block.record)
    (found,) = record._delegate_map["forward"].values()
    handles = {handle for each in found["delegate_map"].values() for handle in each}
    nodes = record.edge_dialect_program.graph_module.graph.nodes
    assert handles == {n.meta["debug_handle"] for n in nodes if n.op == "call_function"}


def test_values_are_near_the_models(block: Exported, tmp_path: Path) -> None:
    inspector = block.inspected(tmp_path, 1 << 20)
    gaps = inspector.calculate_numeric_gap("L1")
    assert set(gaps["runtime_ops"].map(tuple)) == {
        ("#0 aten.convolution.default",),
        ("#1 aten.view_copy.default",),
        ("#2 aten.permute_copy.default",),
        ("#4 aten.slice_copy.Tensor",),
        ("#5 aten.slice_copy.Tensor",),
        ("#6 aten.slice_copy.Tensor",),
        ("#7 webgpu.attention",),
    }
    assert gaps["gap"].map(lambda gap: gap[0]).max() < 1e-3


def test_a_wrong_op_shows_up(
    block: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(raw: memoryview) -> Any:
        graph = load(raw)
        (step,) = graph.calls[0].post
        graph.calls[0].post = [
            type(step)("aten.sigmoid.default", step.args, step.dtype)
        ]
        return graph

    monkeypatch.setattr(delegate, "load_graph", wrong)
    gaps = block.inspected(tmp_path, 1 << 20).calculate_numeric_gap("MSE")
    by_op = {ops[0]: gap[0] for ops, gap in zip(gaps["runtime_ops"], gaps["gap"])}
    assert by_op["#0 aten.convolution.default"] > 0.1


class Types(nn.Module):
    def forward(
        self, x: torch.Tensor, y: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        # ExecuTorch itself cannot log arguments of these types.
        half, brain = x.half(), y.bfloat16()
        rows = F.embedding(index + 1, (half.t() @ half).float())
        return rows.sum(1) @ (brain.cumsum(0).t() @ brain).float()


def test_values_of_all_types_and_views(tmp_path: Path) -> None:
    half = torch.randint(-3, 4, (5, 7)).float()
    brain = torch.randint(-2, 2, (4, 7)).float()
    index = torch.tensor([[0, 3], [5, 1], [2, 2], [4, 0]])
    made = export(Types(), (half, brain, index), tmp_path)
    found = [
        (event.name.split(" ")[1], value)
        for event in delegated(made.inspected(tmp_path, 1 << 20))
        for value in event.debug_data
    ]
    expected = {
        "aten.add.Tensor": index + 1,
        "aten.cumsum.default": brain.cumsum(0),
        "aten.permute_copy.default": brain.cumsum(0).t(),
        "aten.matmul.default": brain.cumsum(0).t() @ brain,
    }
    for name, wanted in expected.items():
        same = [value for op, value in found if op == name and value.equal(wanted)]
        assert len(same) == 1, (name, found)


class SharedMask(nn.Module):
    """Both products need the mask, which one call computes with what is behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * torch.sigmoid(x).clone()
        return self.second(x) * torch.sigmoid(x) + torch.sigmoid(x).sum()


def test_no_two_values_share_a_handle(tmp_path: Path) -> None:
    made = export(SharedMask(), (torch.randn(4, 6),), tmp_path)
    record = parse_etrecord(made.record)
    (found,) = record._delegate_map["forward"].values()
    values = [
        handle
        for key, handles in found["delegate_map"].items()
        if not key.endswith(": ")
        for handle in handles
    ]
    assert values
    assert len(values) == len(set(values)), found
