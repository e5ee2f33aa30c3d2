"""What is delegated, what stays on the CPU and why, and what lowering leaves alone."""

from __future__ import annotations

import copy
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
from harness import check_op, compare, lower

import executorch_webgpu
from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.ir import serialize


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


def test_lowering_adds_no_warning_to_those_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.var_mean(x, 1)

    package = str(Path(executorch_webgpu.__file__).parent)
    ours: list[str] = []

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if any(package in frame.filename for frame in traceback.extract_stack()):
            ours.append(str(message))

    exported = torch.export.export(Model(), (torch.randn(3, 4),))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        to_edge_transform_and_lower(exported, partitioner=[WebGPUPartitioner()])
    assert ours == []


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


class Stateful(torch.nn.Module):
    """A function of its inputs and of two buffers, which start with content."""

    def __init__(self, function: Callable[..., Any], *shape: int) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("first", torch.rand(*shape))
        self.register_buffer("second", torch.rand(*shape))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def new_content(m: Stateful, x: torch.Tensor) -> torch.Tensor:
    m.first.add_(x)
    return torch.sin(m.first) + 1


def old_content(m: Stateful, x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(m.first)
    m.first.add_(x)
    return y + m.second


def made_outside(m: Stateful, x: torch.Tensor) -> torch.Tensor:
    y = x + m.first
    m.first.copy_(torch.sin(m.first + x))
    return y * 2


def returned(m: Stateful, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m.first.add_(x)
    m.second.mul_(m.first)
    return m.first, m.second * 2


def handed_over(m: Stateful, x: torch.Tensor) -> torch.Tensor:
    m.first.copy_(m.second)
    m.second.add_(1)
    return x + m.first


def rows(m: Stateful, x: torch.Tensor) -> torch.Tensor:
    m.first[torch.tensor([1, 3])] = x[:2]
    return torch.sin(m.first) * 2


def cache(m: Stateful, x: torch.Tensor) -> torch.Tensor:
    torch.ops.llama.update_cache(x, m.first, 2)
    torch.ops.llama.update_cache(x, m.second, 2)
    # Heads of 6 columns are not for the kernel.
    return torch.ops.llama.custom_sdpa(x, m.first, m.second, 2, None, 0.0, True)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        *((f, (4, 3)) for f in (new_content, old_content, made_outside, rows)),
        *((f, (4, 3)) for f in (returned, handed_over)),
        (cache, (1, 9, 2, 6)),
    ],
)
def test_a_buffer_that_the_cpu_reads_keeps_its_state(
    function: Callable[..., Any], shape: tuple[int, ...]
) -> None:
    model = Stateful(function, *shape)
    plain = copy.deepcopy(model)
    inputs = [torch.randn(1, 3, *shape[2:]) for _ in range(3)]
    if len(shape) == 2:
        inputs = [torch.randn(*shape) for _ in range(3)]
    blocking = WebGPUPartitioner(operator_blocklist=["aten.sin.default"])
    program = lower(model, (inputs[0],), partitioner=blocking)
    assert program.report.delegated
    assert program.report.complete == (function in (returned, handed_over))
    for x in inputs:
        expected = plain(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        compare(program(x), [value.clone() for value in expected])


def test_a_buffer_that_the_gpu_alone_reads_belongs_to_the_delegate() -> None:
    program = lower(Stateful(new_content, 4, 3), (torch.randn(4, 3),))
    graph = serialize.read(program.delegates[0][1])
    assert [graph.values[index].state for index in graph.mutations] == ["first"]
    assert len(graph.inputs) == 1
