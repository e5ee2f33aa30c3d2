"""Ops with several results that are not core ATen, with ExecuTorch's defaults."""

from __future__ import annotations

import torch
from harness import check_op, lower
from torch.export import Dim
from torch.nn import functional as F

from executorch_webgpu import WebGPUPartitioner

INF, NAN = float("inf"), float("nan")


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


def test_medians_of_the_numbers_only() -> None:
    def middles(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.nanmedian(),
            torch.nanmedian(x, 1).values,
            torch.nanmedian(x, -1).values,
            torch.nanmedian(x, 0, keepdim=True).values,
            *torch.nanmedian(x[2], 0),
            torch.nanmedian(x.half(), 1).values + 1,
            x[0, 0, 0].nanmedian(),
            torch.nanmedian(x[:0], 1).values,
            i.nanmedian(),
            *torch.nanmedian(i, 1),
        )

    x = torch.randn(4, 9, 5)
    x[0, 2, 3], x[1], x[3, :5, 1] = NAN, NAN, NAN
    x[2, 0, 0], x[2, 1, 0] = INF, -INF
    check_op(middles, x, torch.randperm(21).reshape(7, 3))


def modes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *torch.mode(x, 1),
        *torch.mode(x, -1, keepdim=True),
        torch.mode(x.transpose(0, 1), 2).values.to(x.dtype) + 1,
        torch.mode(x, 0).indices * 2,
        *torch.mode(x[0, 0, 0], 0),
        *torch.mode(x[:0], 1),
    )


def test_modes() -> None:
    """The smallest of the most frequent; its index is exact in rows of up to 16."""
    x = torch.randint(-2, 2, (4, 16, 5)).float()
    x[0, 3, 2], x[1, 4, 4], x[2, 0, 0], x[3, 5:9, 1] = INF, -INF, -0.0, INF
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        check_op(modes, x.to(dtype), rtol=0, atol=0)
    for dtype in (torch.int64, torch.int8, torch.uint8, torch.bool):
        check_op(modes, x.nan_to_num(0, 9, 0).to(dtype))


def test_modes_of_rows_with_nan() -> None:
    """NaN equals nothing, itself included. Where eager sorts it is left to chance."""

    def values(x: torch.Tensor) -> torch.Tensor:
        return torch.mode(x, 1).values

    x = torch.tensor([[NAN, 2, 2, 1], [1, 1, NAN, NAN], [NAN] * 4, [3, 3, 2, NAN]])
    check_op(values, x)
    mixed = torch.tensor([[2, NAN, 1, 2], [NAN, NAN, 3, 1.0]])
    assert check_op(values, x).run(mixed.repeat(2, 1))[0].tolist() == [2, 1, 2, 1]


def test_modes_of_long_rows() -> None:
    """The index is that of the last of the mode's elements."""

    def found(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        value, index = torch.mode(x, 1)
        return value, x.gather(1, index[:, None])

    x = torch.randint(0, 200, (3, 3001)).float()
    rows, columns = Dim("rows", max=3), Dim("columns", max=3001)
    sizes = ((1, 1), (2, 65), (3, 129), (3, 3001), (1, 2))
    program = check_op(
        found,
        x,
        dynamic_shapes=[{0: rows, 1: columns}],
        others=[(x[:n, :m].contiguous(),) for n, m in sizes],
    )
    assert "aten.mode.default" in program.report.delegated
    last = [int((row == row.mode().values).nonzero()[-1]) for row in x]
    assert lower(LastOfMode(), (x,)).run(x)[0].tolist() == last


class LastOfMode(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mode(x, 1).indices


def test_modes_of_many_rows() -> None:
    """More elements than one grid dimension has workgroups of 64."""
    x = torch.randint(0, 2, (4_194_304 // 3 + 64, 3)).int()
    check_op(lambda x: tuple(torch.mode(x, 1)), x)


def test_running_extremes() -> None:
    """Of equal elements the last, and NaN from where it comes up."""

    def running(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *torch.cummax(x, 1),
            *torch.cummin(x, 1),
            *torch.cummax(x.transpose(0, 2), -1),
            torch.cummin(x, 0).values + 1,
            torch.cummax(x, 0).indices * 2,
            *torch.cummin(x[0, 0, 0], 0),
            *torch.cummax(x[:0], 0),
            *torch.cummin(x[:0], 1),
        )

    x = torch.randint(0, 4, (4, 9, 5)).float()
    x[0, 3, 2], x[0, 5, 2], x[1, 4, 4], x[2, 0, 0] = NAN, NAN, INF, -INF
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        check_op(running, x.to(dtype), rtol=0, atol=0)
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        check_op(running, x.nan_to_num(0, 9, 0).to(dtype))


def test_running_extremes_of_long_rows() -> None:
    def running(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*torch.cummax(x, 1), *torch.cummin(x, 1))

    x = torch.randint(-2000, 2000, (2, 3001, 2)).float()
    x[1, 2000, 1], x[1, 2500, 1], x[0, 700, 0], x[0, 900, 0] = NAN, NAN, INF, INF
    sizes = {1: Dim("rows", max=3001)}
    others = [(x[:, :n].contiguous(),) for n in (1, 255, 256, 3001, 2)]
    check_op(
        running,
        x[:, :1000].contiguous(),
        dynamic_shapes=[sizes],
        others=others,
        rtol=0,
        atol=0,
    )


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
