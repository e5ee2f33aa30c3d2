from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from harness import check_op, compare, lower

from executorch_webgpu import WebGPUPartitioner, serialize


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) + 1


def run(partitioner: WebGPUPartitioner) -> WebGPUPartitioner:
    model, x = Two().eval(), torch.randn(2, 4)
    program = lower(model, (x,), partitioner=partitioner)
    compare(program(x), [model(x)])
    return partitioner


def reasons(partitioner: WebGPUPartitioner) -> dict[str, str]:
    return {fallback.op: fallback.reason for fallback in partitioner.report.fallbacks}


def test_all_of_a_model_is_delegated():
    report = run(WebGPUPartitioner()).report
    assert report.complete
    assert report.delegated["aten.relu.default"] == 1
    assert "aten.relu.default" in str(report)
    total = sum(report.delegated.values())
    assert f"{total} of {total} ops on WebGPU" in str(report)


def test_the_lists_decide_and_the_report_says_so():
    blocked = run(WebGPUPartitioner(operator_blocklist=["aten.relu.default"]))
    assert reasons(blocked) == {"aten.relu.default": "in operator_blocklist"}
    overload = torch.ops.aten.relu.default
    assert reasons(run(WebGPUPartitioner(operator_blocklist=[overload]))) == reasons(
        blocked
    )
    allowed = run(WebGPUPartitioner(operator_allowlist=["aten.relu.default"]))
    assert set(allowed.report.delegated) == {"aten.relu.default"}
    assert set(reasons(allowed).values()) == {"not in operator_allowlist"}
    module = run(WebGPUPartitioner(nn_module_blocklist=["activation.ReLU"]))
    assert reasons(module) == {"aten.relu.default": "in nn_module_blocklist"}
    only = run(WebGPUPartitioner(nn_module_allowlist=["second"]))
    assert set(only.report.delegated) == {"aten.relu.default"}


def test_what_stays_on_the_cpu_is_said_unasked(caplog: pytest.LogCaptureFixture):
    run(WebGPUPartitioner())
    assert not caplog.text
    run(WebGPUPartitioner(operator_blocklist=["aten.relu.default"]))
    assert "CPU: in operator_blocklist" in caplog.text
    assert "3 of 4 ops on WebGPU" in caplog.text
    assert "aten.linear" not in caplog.text


def test_unknown_options_and_malformed_names_raise():
    with pytest.raises(TypeError, match="operator_blacklist"):
        WebGPUPartitioner(operator_blacklist=[])
    with pytest.raises(ValueError, match=r"like aten\.add\.Tensor, got relu"):
        WebGPUPartitioner(operator_blocklist=["relu"])


def test_float64_falls_back_with_a_reason_and_runs():
    program = check_op(
        lambda x: (x.double() * 2).float() + 1, torch.randn(3), delegated=False
    )
    assert any("float64" in f.reason for f in program.report.fallbacks)
    assert program.report.delegated["aten.add.Tensor"] == 1


def test_an_unbounded_size_is_refused_with_what_to_do():
    exported = torch.export.export(
        Two().eval(), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},)
    )
    partitioner = WebGPUPartitioner()
    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    assert "give torch.export.Dim a max" in str(partitioner.report)


def test_a_size_computed_from_a_delegated_tensor_keeps_one_delegate():
    length = torch.export.Dim("length", min=3, max=32)
    check_op(
        lambda x: (x * 2)[:, 1:].reshape(-1) + x.shape[1],
        torch.randn(2, 8),
        dynamic_shapes=({1: length},),
        others=[(torch.randn(2, 32),), (torch.randn(2, 3),)],
    )


def test_lowering_leaves_the_exported_program_as_it_was():
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (*torch.var_mean(x, 1), *x.split(2, 1))

    x = torch.randn(3, 4)
    exported = torch.export.export(Model(), (x,))
    before = str(exported.graph)
    partitioner = WebGPUPartitioner()
    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    assert partitioner.report.complete, partitioner.report
    assert str(exported.graph) == before


@pytest.mark.parametrize("parts", [1, 2])
def test_the_exported_program_still_runs_after_lowering(parts: int) -> None:
    class Lifted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            factor = torch.tensor([1.0, 2.0, 3.0, 4.0])
            # What is split is rewritten before it is lowered.
            return (x * factor).chunk(parts) if parts > 1 else (x * factor,)

    x = torch.randn(4, 4)
    exported = torch.export.export(Lifted(), (x,))
    to_edge_transform_and_lower(exported, partitioner=[WebGPUPartitioner()])
    compare(exported.module()(x), Lifted()(x))


def test_a_size_in_which_another_occurs_twice_has_its_true_bound():
    """n // (n // 8) + 2 is 17 at most; by intervals, 40 // 1 + 2."""

    def parts(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return x.sum() * torch.ones(n // (n // 8) + 2)

    program = check_op(
        parts,
        torch.randn(21),
        dynamic_shapes=({0: torch.export.Dim("n", min=8, max=40)},),
        others=[(torch.randn(n),) for n in (40, 15, 8)],
        rtol=1e-4,
        atol=1e-5,
    )
    graph = serialize.read(program.delegates[0][1])
    assert [graph.values[index].bound for index in graph.outputs] == [(17,)]
