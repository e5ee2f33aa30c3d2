"""What crosses the delegate's boundary: layouts, aliases, states, odd shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.runtime import Runtime
from harness import Function, check_op, compare, lower

from executorch_webgpu import WebGPUPartitioner, last_error, reset_state, stats


def test_channels_last_comes_in_and_goes_out():
    x = torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)
    program = check_op(lambda x: (x * 2, (x + 1).contiguous()), x)
    doubled, plain = program(x)
    assert doubled.dim_order() == (0, 2, 3, 1)
    assert plain.dim_order() == (0, 1, 2, 3)


def test_channels_last_is_made_from_rows():
    check_op(
        lambda x: x.to(memory_format=torch.channels_last) + 1, torch.randn(2, 3, 5, 7)
    )


def test_outputs_may_be_views_of_one_another_and_of_inputs():
    check_op(
        lambda x, y: (x + y, (x + y).t(), (x + y)[1:], y.reshape(-1), (x + y).sum()),
        torch.randn(3, 5),
        torch.randn(3, 5),
    )


def test_eight_dimensions_and_none():
    check_op(
        lambda x, s: (x.permute(7, 1, 5, 3, 0, 2, 4, 6) * s, s + 1),
        torch.randn(2, 1, 3, 2, 1, 2, 3, 2),
        torch.tensor(2.5),
    )


def test_sizes_of_zero():
    check_op(
        lambda x, y: (x + 1, torch.cat([x, y]), x.sum(0)),
        torch.randn(0, 3),
        torch.randn(2, 3),
    )


def test_many_elements_need_a_folded_grid():
    n = 65536 * 64 + 3
    check_op(lambda x: x * 2 + 1, torch.randint(-1000, 1000, (n,), dtype=torch.int32))


def test_more_than_every_adapter_can_bind():
    """Elementwise ops bind a part of a buffer at a time; others stay on the CPU."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2 + 1
        return y, y.amax()

    x = torch.arange(40_000_000, dtype=torch.float32) % 1000003
    program = lower(Function(function), (x,))
    assert len(program.delegates) == 1
    (fallback,) = program.report.fallbacks
    assert fallback.op == "aten.amax.default"
    assert fallback.reason == (
        "a tensor must fit a binding of 134217728 bytes, got 160000000"
    )
    y, largest = program.run(x)
    assert largest == 2 * 1000002 + 1
    assert torch.equal(y, x.mul_(2).add_(1))


class Counter(torch.nn.Module):
    """Adds its input to a buffer and returns the sum so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor([1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 1


def test_a_mutable_buffer_lives_on_the_gpu_and_can_be_reset():
    program = lower(Counter(), (torch.ones(2),))
    assert program.report.complete, program.report
    x = torch.tensor([0.5, 3.0])
    for calls in (1, 2, 3):
        compare(program(x), [torch.tensor([1.0, 2.0]) + calls * x])
    other = lower(Counter(), (torch.ones(2),))
    compare(other(x), [torch.tensor([1.5, 5.0])])
    reset_state()
    compare(program(x), [torch.tensor([1.5, 5.0])])


class Shared(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Tail(Shared):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def test_methods_of_one_program_share_their_weights():
    one, two = Shared().eval(), Tail().eval()
    two.load_state_dict(one.state_dict())
    x = torch.randn(3, 256)
    exported = {
        "plain": torch.export.export(one, (x,)),
        "tail": torch.export.export(two, (x,)),
    }
    edge = to_edge_transform_and_lower(
        exported, partitioner={name: [WebGPUPartitioner()] for name in exported}
    )
    buffer = bytes(edge.to_executorch().buffer)
    weights = 256 * 256 * 4
    assert len(buffer) < 1.5 * weights
    program = Runtime.get().load_program(buffer)
    before = stats().buffer_bytes
    plain = program.load_method("plain")
    first = stats().buffer_bytes - before
    tail = program.load_method("tail")
    second = stats().buffer_bytes - before - first
    assert first >= weights
    assert second < weights / 4, "the second method uploaded the weights again"
    compare(plain.execute([x]), [one(x)])
    compare(tail.execute([x]), [two(x)])


def test_weights_in_a_file_of_their_own(tmp_path: Path):
    model, x = Shared().eval(), torch.randn(3, 256)
    edge = to_edge_transform_and_lower(
        torch.export.export(model, (x,)),
        partitioner=[WebGPUPartitioner(external_weights="weights")],
    )
    made = edge.to_executorch()
    (tmp_path / "model.pte").write_bytes(made.buffer)
    made.write_tensor_data_to_file(str(tmp_path))
    assert (tmp_path / "model.pte").stat().st_size < 32768
    program = Runtime.get().load_program(
        tmp_path / "model.pte", data_path=tmp_path / "weights.ptd"
    )
    method = program.load_method("forward")
    compare(method.execute([x]), [model(x)])
    del method, program  # what is on the GPU is shared by content, also without a file
    alone = Runtime.get().load_program(tmp_path / "model.pte")
    with pytest.raises(RuntimeError):
        alone.load_method("forward")
    assert "webgpu_" in (last_error() or "")


def test_an_index_out_of_range_is_an_error_and_the_next_call_works():
    table = torch.nn.Embedding(11, 3)
    program = lower(table, (torch.tensor([1, 2]),))
    assert program.report.complete
    for bad in (11, -1, 2**30):
        with pytest.raises(RuntimeError):
            program(torch.tensor([1, bad]))
        assert f"got {bad}" in (last_error() or "")
        assert "aten.embedding.default" in (last_error() or "")
    compare(program(torch.tensor([10, 0])), [table(torch.tensor([10, 0]))])


def test_a_size_may_leave_a_delegate():
    """A size of what the GPU makes is an output like any; the CPU uses it here."""

    class Sized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv1d(2, 3, 3, stride=2)

        def forward(self, x):
            y = torch.relu(self.conv(x))
            return y * 2, torch.full((y.size(2),), 2.0).cumsum(0)

    model = Sized().eval()
    length = torch.export.Dim("length", min=9, max=33)
    exported = torch.export.export(
        model, (torch.randn(1, 2, 21),), dynamic_shapes={"x": {2: length}}
    )
    edge = to_edge(exported)
    graph = edge.exported_program().graph
    named = {node.name: node for node in graph.nodes}
    relu, full = named["aten_relu_default"], named["aten_full_default"]
    with graph.inserting_after(relu):
        size = graph.call_function(torch.ops.aten.sym_size.int, (relu, 2))
    size.meta["val"] = full.args[0][0].meta["val"]
    full.args = ([size], *full.args[1:])
    lowered = edge.to_backend(
        WebGPUPartitioner(operator_blocklist=["aten.full.default"])
    )
    program = Runtime.get().load_program(lowered.to_executorch().buffer)
    method = program.load_method("forward")
    for count in (21, 9, 33):
        x = torch.randn(1, 2, count)
        with torch.no_grad():
            expected = model(x)
        for result, wanted in zip(method.execute([x]), expected, strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
