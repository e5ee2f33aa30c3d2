"""Ops with several results that are not core ATen, with ExecuTorch's defaults."""

from __future__ import annotations

import torch
from harness import check_op, lower
from torch.nn import functional as F

from executorch_webgpu import WebGPUPartitioner

NAN = float("nan")


def test_adaptive_max_pools_with_places() -> None:
    def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *F.adaptive_max_pool1d(x[0], 5, return_indices=True),
            *F.adaptive_max_pool2d(x, (5, 4), return_indices=True),
            *F.adaptive_max_pool3d(x, (2, 5, 4), return_indices=True),
            F.adaptive_max_pool2d(x, 1),
            F.relu(F.adaptive_max_pool2d(x, (None, 3))),
        )

    x = torch.randn(2, 3, 11, 13)
    x[0, 1, 4, 4] = NAN
    check_op(pools, x)


def test_medians_and_kth_values() -> None:
    def middles(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *torch.median(x, 1),
            *torch.median(x, -1, keepdim=True),
            *torch.median(i, 0),
            *torch.kthvalue(x, 3, 2),
            *torch.kthvalue(i, 2, 0, keepdim=True),
            torch.kthvalue(x, 13, -1).values + 1,
            x.median(),
        )

    x = torch.randn(2, 11, 13)
    x[1, 2, 3] = NAN
    check_op(middles, x, torch.randperm(21).reshape(7, 3))


def test_what_stays_on_the_cpu_keeps_its_op() -> None:
    class Pool(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.adaptive_max_pool2d(x, 3)

    blocked = WebGPUPartitioner(operator_blocklist=["aten.adaptive_max_pool2d.default"])
    exported = torch.export.export(Pool(), (torch.randn(1, 2, 8, 8),))
    for partitioner, namespace in (
        (blocked, "aten"),
        (WebGPUPartitioner(), "webgpu_twin"),
    ):
        made = partitioner.transform_for_pre_decomposition(exported)
        called = [n.target for n in made.graph.nodes if n.op == "call_function"]
        assert f"{namespace}.adaptive_max_pool2d.default" in map(str, called)


def test_report_names_the_op_as_the_user_does() -> None:
    class Pool(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.adaptive_max_pool2d(x, 3)

    program = lower(Pool(), (torch.randn(1, 2, 8, 8),))
    assert dict(program.report.delegated) == {"aten.adaptive_max_pool2d.default": 1}
