"""What the report counts: ops, arithmetic, and what others took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from harness import Program, compare, lower
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.export.multiply_adds import readable


class Called(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def partitioned(
    function: Callable[..., torch.Tensor], *inputs: torch.Tensor, **options: Any
) -> WebGPUPartitioner:
    partitioner = WebGPUPartitioner(**options)
    exported = torch.export.export(Called(function), inputs)
    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return partitioner


PRODUCTS = {
    "linear": (F.linear, (2, 5, 8), (3, 8), (3,)),
    "mm": (torch.mm, (4, 7), (7, 3)),
    "addmm": (torch.addmm, (3,), (4, 7), (7, 3)),
    "bmm": (torch.bmm, (2, 4, 7), (2, 7, 3)),
    "conv1d": (lambda x, w: F.conv1d(x, w, stride=2), (2, 6, 20), (4, 6, 3)),
    "conv2d": (lambda x, w: F.conv2d(x, w, groups=2), (2, 6, 9, 8), (4, 3, 3, 3)),
    "transposed": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        (2, 6, 5, 4),
        (6, 3, 3, 3),
    ),
    "attention": (
        F.scaled_dot_product_attention,
        (2, 3, 5, 8),
        (2, 3, 7, 8),
        (2, 3, 7, 8),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_count_what_torch_counts(name: str) -> None:
    function, *shapes = PRODUCTS[name]
    inputs = [torch.randn(shape) for shape in shapes]
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        function(*inputs)
    report = partitioned(function, *inputs).report
    assert report.complete, str(report)
    # Torch counts multiplications and additions.
    assert report.gpu_multiply_adds == counter.get_total_flops() // 2


def test_other_ops_count_elements_and_views_nothing() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.permute(1, 0).reshape(2, -1) + 1).sum()

    report = partitioned(function, torch.randn(4, 6)).report
    assert (report.gpu_multiply_adds, report.cpu_multiply_adds) == (24 + 24, 0)
    blocked = partitioned(
        function, torch.randn(4, 6), operator_blocklist=["aten.add.Tensor"]
    )
    report = blocked.report
    assert (report.gpu_multiply_adds, report.cpu_multiply_adds) == (24, 24)
    assert report.summary.endswith("on WebGPU, with 50% of 48 multiply-adds")


def test_a_share_is_whole_only_if_nothing_is_missing() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu()

    report = partitioned(
        function,
        torch.randn(64, 512),
        torch.randn(512, 64),
        operator_blocklist=["aten.relu.default"],
    ).report
    assert "with 99.8% of 2.1 M multiply-adds" in report.summary
    report.gpu_multiply_adds *= 1000
    assert "with 99.9% of 2.1 G multiply-adds" in report.summary
    assert readable(999) == "999"


def test_a_dynamic_size_counts_as_in_the_example() -> None:
    partitioner = WebGPUPartitioner()
    sizes = {0: torch.export.Dim("n", max=64)}
    lower(torch.nn.Linear(8, 3), (torch.randn(5, 8),), (sizes,), partitioner)
    assert partitioner.report.gpu_multiply_adds == 5 * 8 * 3


def test_what_another_backend_took_is_its_own(caplog: pytest.LogCaptureFixture) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.erf(self.linear(x))

    model, x = Model().eval(), torch.randn(2, 8)
    partitioner = WebGPUPartitioner()
    edge = to_edge_transform_and_lower(
        torch.export.export(model, (x,)),
        partitioner=[XnnpackPartitioner(), partitioner],
    )
    report = partitioner.report
    assert report.complete, str(report)
    assert dict(report.elsewhere) == {"XnnpackBackend": 1}
    rows = [line.split() for line in str(report).splitlines()]
    assert ["(delegate)", "1", "XnnpackBackend"] in rows
    # A product of 2 x 8 x 8 there, 16 elements here.
    assert report.summary == "1 of 1 ops on WebGPU, with 11.1% of 144 multiply-adds"
    assert not caplog.text
    compare(Program(edge, partitioner)(x), [model(x)])
