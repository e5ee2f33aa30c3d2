"""Indexing and scattering against eager, and bad indices, which are errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import check_op, lower
from torch._export.verifier import SpecViolationError
from torch.export import Dim
from torch.nn import functional as F

from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import device

put = torch.ops.aten.index_put


def test_reading() -> None:
    def reads(
        x: torch.Tensor, i: torch.Tensor, w: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        j = i.unsqueeze(2)
        return (
            F.embedding(i, w),
            F.embedding(i, w.half()),
            F.relu(F.embedding(i, w)) + 1,
            F.embedding(i[0, 0], w),
            F.embedding(i[:0], w),
            x.gather(1, j),
            x.gather(0, i[:2, :, None].expand(2, 7, 5)),
            x.transpose(0, 2).gather(2, i.T[None].expand(8, 7, 4)),
            x.sum().gather(0, i[0, 0] * 0),
            torch.take_along_dim(x, j, 1),
            x.index_select(1, i[0]),
            x.index_select(-1, i[0].int()),
            x.index_select(0, i[0, 0]),
            x[i[0]],
            x[i],
            x[:, i[0]],
            x[:, :, i],
            x[i[0], i[1]],
            x[i[0], :, i[1]],
            x[i[:, :1], i[0]],
            x[i[0], i[1], i[2]],
            x[-i[0] - 1],
            x.permute(2, 1, 0)[i[0]],
            x.unsqueeze(0)[:, :, i[0], i[1]],
            (x > 0)[i[0]],
        )

    x, i = torch.randn(4, 7, 8), torch.randint(0, 4, (4, 7))
    check_op(reads, x, i, torch.randn(11, 12))


def test_scattering() -> None:
    def scatters(
        x: torch.Tensor, i: torch.Tensor, order: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        j = i.unsqueeze(2)
        wide = j.expand(4, 7, 8)
        return (
            x.scatter(1, order[None, :3, None].expand(4, 3, 8), 1.5),
            x.scatter(1, order[None, :3, None].expand(2, 3, 5), x * 2),
            x.transpose(0, 1).scatter(0, order[:, None, None], x[:1].transpose(0, 1)),
            i.scatter(1, order[None, :1].expand(4, 1), 9),
            x.scatter_add(1, wide, x),
            x.scatter_add(1, j, x),
            x.scatter_add(0, j[:, :3].expand(4, 3, 5), x) * 2,
            x.scatter_add(1, j[:, :0], x),
            i.scatter_add(1, i, i),
            x.scatter(1, wide, x, reduce="add"),
            x.scatter(-2, j, x, reduce="multiply") + 1,
            x.scatter(1, wide, 2.5, reduce="add"),
            x.scatter(1, j[:, :2], 2, reduce="multiply"),
            x.scatter(1, j[:, :0], 2, reduce="add"),
            i.scatter(1, i, i, reduce="multiply"),
            i.scatter(1, i, 3, reduce="add"),
            i[0, 0].scatter(0, i[0, 0] * 0, 3, reduce="multiply"),
            x.scatter_reduce(1, wide, x, "amax"),
            x.scatter_reduce(1, wide, x, "amin", include_self=False),
            x.scatter_reduce(1, wide, x, "mean"),
            x.scatter_reduce(1, wide, x, "mean", include_self=False),
            x.scatter_reduce(1, wide, x, "prod"),
            x.scatter_reduce(1, wide, x, "sum", include_self=False),
            i.scatter_reduce(1, i, i - 3, "mean"),
            F.one_hot(i, 5),
        )

    x, i = torch.randn(4, 7, 8), torch.randint(0, 4, (4, 7))
    check_op(scatters, x, i, torch.randperm(7))


def test_index_put() -> None:
    def puts(
        x: torch.Tensor, i: torch.Tensor, order: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        two = order[:2]
        return (
            put(x, [two], x[0] * 3),
            put(x, [None, two], x[0, 0]),
            put(x, [None, None, two - 4], x[:, :, :2] * 2),
            put(x, [two, None, two], x[0, :2, :1] * 2),
            put(x, [two[:, None], order], x[0, 0] * 2),
            put(x, [i[0]], x[0, 0], True),
            put(x, [None, i[0]], x[:, :1] * 2, True),
            put(x, [i[0], None, i[1]], x[0, :1, :4], True),
            put(i, [i[0], i[1]], i[0], True),
            put(x, [x > 0], torch.tensor(1.5)),
            put(x, [i[:, :4] > 2], torch.tensor(1.5), True),
            put(x, [i[:0, 0]], x[0]),
            x.index_add(0, i[0], x[:1].expand(7, 4, 8)),
            x.index_copy(0, two, x[2:] * 2),
            x.index_fill(1, two, 2.0),
            torch.masked_scatter(x, x > 0, x * 2),
            torch.masked_scatter(x, i[:, :4, None] > 1, x * 2),
        )

    x, i = torch.randn(4, 4, 8), torch.randint(0, 4, (4, 7))
    check_op(puts, x, i, torch.randperm(4))


def test_many_indices_meet() -> None:
    def adds(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zero = torch.zeros(50, 8)
        wide = i.unsqueeze(1).expand(1000, 8)
        return (
            put(zero, [i], x, True),
            zero.scatter_add(0, wide, x),
            zero.scatter_reduce(0, wide, x, "amax"),
            zero.T.scatter_add(1, wide.T, x.T),
        )

    check_op(adds, torch.randn(1000, 8), torch.randint(0, 50, (1000,)), atol=1e-4)


def test_searching() -> None:
    def searches(
        x: torch.Tensor, edges: torch.Tensor, rows: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            torch.bucketize(x, edges),
            torch.bucketize(x, edges, right=True),
            torch.bucketize(x, edges, out_int32=True),
            torch.searchsorted(edges, x),
            torch.searchsorted(rows, x, right=True),
            torch.searchsorted(rows, x, side="left"),
        )

    edges = torch.tensor([-1.0, 0.0, 0.0, 0.5, 2.0])
    x = torch.randn(4, 7)
    x[0, :5] = edges
    x[1, 0], x[1, 1] = float("nan"), float("inf")
    check_op(searches, x, edges, torch.randn(4, 37).sort(1)[0])


def test_many_elements() -> None:
    w = torch.arange(37 * 1024).view(37, 1024).int()
    i = torch.arange(4100).remainder(37)
    check_op(lambda w, i: (F.embedding(i, w), w[:, :1024][i]), w, i)


BAD: dict[str, Callable[..., torch.Tensor]] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "gather": lambda x, i: x.gather(0, i.unsqueeze(1)),
    "index_select": lambda x, i: x.index_select(0, i),
    "index": lambda x, i: x[i],
    "scatter": lambda x, i: x.scatter(0, i.unsqueeze(1), 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i.unsqueeze(1), x),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:3], "amax"),
    "put": lambda x, i: x[:, 0].put(i, x[:3, 1]),
    "put accumulate": lambda x, i: x[:, 0].put(i, x[:3, 1], True),
    "index_put": lambda x, i: put(x, [i], x[0]),
    "index_put accumulate": lambda x, i: put(x, [i], x[0], True),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_index_is_an_error(name: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            return BAD[name](x, i)

    x = torch.randn(7, 3)
    program = lower(Model(), (x, torch.tensor([0, 6, 3])))
    assert program.report.complete
    program(x, torch.tensor([0, 6, 3]))
    for bad in (7, -8):
        with pytest.raises(RuntimeError):
            program(x, torch.tensor([0, bad, 3]))
    # An error leaves nothing behind.
    program(x, torch.tensor([0, 6, 3]))


def test_boundaries_of_two_dimensions_are_refused() -> None:
    """As by torch, though not by its export; and no other backend has the op."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return torch.bucketize(x, edges)

    with pytest.raises(SpecViolationError, match="bucketize"):
        lower(Model(), (torch.randn(7), torch.zeros(3, 5)))


def test_a_mask_of_bytes_is_refused() -> None:
    """As by torch, though not by its export."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return x.masked_scatter(mask, x)

    inputs = torch.randn(7), torch.ones(7, dtype=torch.uint8)
    program = lower(Model(), inputs)
    (fallback,) = program.report.fallbacks
    assert fallback.reason == "mask must be of bool, got uint8"
    with pytest.raises(RuntimeError, match="0x12"):
        program(*inputs)


def test_sizes_that_only_data_knows_stay_on_the_cpu() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nonzero(x * 2)

    program = lower(Model(), (torch.tensor([0.0, 1.0, 0.0, 2.0]),))
    (fallback,) = program.report.fallbacks
    assert fallback.op == "aten.nonzero.default"
    assert "size" in fallback.reason
    assert program(torch.tensor([0.0, 1.0, 0.0, 2.0]))[0].tolist() == [[1], [3]]


def test_as_many_places_as_asked_for() -> None:
    def places(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.nonzero_static(x, size=7),
            torch.nonzero_static(x, size=113, fill_value=-9) + 1,
            torch.nonzero_static(x, size=0),
            torch.nonzero_static(x.transpose(0, 2), size=37),
            torch.nonzero_static(x > 0, size=37, fill_value=3),
            torch.nonzero_static(x.half(), size=37),
            torch.nonzero_static(x.int(), size=37),
            torch.nonzero_static(x[:0], size=3),
            torch.nonzero_static(x[0, 0, 0], size=2),
            torch.nonzero_static(x.flatten(), size=37),
        )

    x = torch.randint(-1, 2, (3, 7, 5)).float()
    x[0, 0, 1:4] = torch.tensor([float("nan"), -0.0, float("-inf")])
    check_op(places, x)


def test_places_in_any_number_of_rows() -> None:
    inputs = [(torch.randint(0, 2, (rows, 19)),) for rows in (64, 1, 37, 64)]
    check_op(
        lambda x: torch.nonzero_static(x, size=113),
        *inputs[0],
        dynamic_shapes=[{0: Dim("rows", max=64)}],
        others=inputs[1:],
    )


def test_dynamic_sizes() -> None:
    def reads(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.embedding(i, x),
            x[:, i],
            x.gather(0, i.unsqueeze(1).expand(-1, 7)),
            x.index_add(0, i, x[0].expand(i.shape[0], 7)),
            put(x, [i[:1]], x[0] * 2),
        )

    rows, count = Dim("rows", min=7, max=37), Dim("count", min=1, max=113)
    sizes = [(37, 113), (8, 3), (7, 1), (37, 113)]
    check_op(
        reads,
        torch.randn(36, 7),
        torch.randint(0, 7, (112,)),
        dynamic_shapes=({0: rows}, {0: count}),
        others=[(torch.randn(r, 7), torch.randint(0, 7, (c,))) for r, c in sizes],
        atol=1e-4,
    )


class Tied(torch.nn.Module):
    """An embedding whose weight a linear layer multiplies with."""

    def __init__(self, rows: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(rows, width).to(dtype))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        taken = F.embedding(tokens, self.weight)
        return F.linear(taken, self.weight), torch.relu(taken) * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("rows", "width"), [(64, 8), (37, 12), (113, 7), (1, 1)])
def test_tied_embedding(rows: int, width: int, dtype: torch.dtype) -> None:
    tokens = torch.randint(0, rows, (2, 5))
    tokens[0, 0], tokens[1, 4] = 0, rows - 1
    program = check_op(Tied(rows, width, dtype), tokens)
    graph = serialize.read(program.delegates[0][1])
    plan = Planner(graph, device.get_device().caps).upper_bound()
    assert len(plan.constants) == 1
    with pytest.raises(RuntimeError):
        program.run(torch.full((2, 5), rows))
