"""index_reduce, put and as_strided_scatter against eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from harness import check_op, lower
from torch._export.verifier import SpecViolationError
from torch.export import Dim

from executorch_webgpu import WebGPUPartitioner

INF, NAN = float("inf"), float("nan")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int8)
FOLDS = ("prod", "mean", "amax", "amin")

pytestmark = pytest.mark.filterwarnings("ignore:index_reduce")
scattered = torch.as_strided_scatter


# -- index_reduce --------------------------------------------------------------------


def index_folds(
    x: torch.Tensor, i: torch.Tensor, src: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Every fold along the middle of three dimensions."""
    # torch has neither means of bools nor folds without themselves.
    is_bool = x.dtype is torch.bool
    return tuple(
        x.index_reduce(1, i, src, fold, include_self=whole)
        for fold in FOLDS
        for whole in (True, False)
        if not is_bool or (whole and fold != "mean")
    )


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_index_reduce(dtype: torch.dtype) -> None:
    x, src = torch.randn(3, 7, 5) * 3, torch.randn(3, 5, 5) * 3
    x[0, 0, :3] = torch.tensor([NAN, INF, -INF])
    src[0, 1, :3] = torch.tensor([-INF, NAN, INF])
    src[0, ::2, 3] = INF  # their sum does not fit int8
    if not dtype.is_floating_point:
        x, src = x.nan_to_num(0, 100, -100).abs(), src.nan_to_num(0, 120, -100).abs()
    check_op(index_folds, x.to(dtype), torch.tensor([3, 0, 3, 0, 6]), src.to(dtype))


def test_index_reduce_of_numbers_and_nothing() -> None:
    def folds(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        number = x[0, 0]
        return (
            number.index_reduce(0, i[:1] * 0, number * 2, "mean"),
            number.index_reduce(0, i[0] * 0, number * 2, "amin") * 3,
            x[0].index_reduce(0, i[0].int(), x[1, :1], "prod"),
            x.index_reduce(1, i[:0], x[:, :0], "amax"),
            x[:, :0].index_reduce(0, i, x[:4, :0], "mean"),
            x[:0].index_reduce(1, i, x[:0, :4], "mean"),
            x.index_reduce(1, i, x[:, :4], "amax") + 1,
        )

    check_op(folds, torch.randn(7, 5), torch.tensor([3, 0, 3, 1]))


def test_index_reduce_of_many_and_dynamic_sizes() -> None:
    def folds(
        x: torch.Tensor, i: torch.Tensor, src: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            x.index_reduce(0, i, src, "mean"),
            x.index_reduce(0, i, src, "amin", include_self=False),
            x.T.index_reduce(1, i, src.T, "amax"),
        )

    rows, count = Dim("rows", min=7, max=113), Dim("count", min=1, max=1000)
    sizes = [(113, 1000), (8, 3), (7, 1), (113, 1000)]
    cases = [
        (torch.randn(r, 3), torch.randint(0, r, (c,)), torch.randn(c, 3))
        for r, c in sizes
    ]
    shapes = ({0: rows}, {0: count}, {0: count})
    check_op(folds, *cases[0], dynamic_shapes=shapes, others=cases[1:])


# -- put -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_put(dtype: torch.dtype) -> None:
    def puts(
        x: torch.Tensor, i: torch.Tensor, src: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            x.put(i, src),
            x.put(-1 - i, src),
            x.T.put(i.T, src),
            x.put(i // 2, src, accumulate=True),
            x.T.put(i // 2 - 20, src, accumulate=True),
            x.put(i[:0], src[:0]),
            x[:0].put(i[:0], src[:0]),
            x[0, 1].put(i[0, 0] * 0, src[0, 0]),
            x[0, 1].put(i[0] * 0, src[0], accumulate=True),
            x.put(i // 2, src, accumulate=True).long().sum(0),
        )

    x, src = torch.randn(4, 5) * 3, torch.randn(2, 3) * 50
    if dtype.is_floating_point:
        x[0, :3] = src[0] = torch.tensor([NAN, INF, -INF])
    else:
        x, src = x.abs(), src.abs()
    i = torch.tensor([[1, 0, 9], [7, 18, 19]])
    if dtype.is_floating_point:
        # An integer of NaN is whatever the machine makes of it.
        check_op(lambda *given: puts(*given)[:-1], x.to(dtype), i, src.to(dtype))
    else:
        check_op(puts, x.to(dtype), i, src.to(dtype))


def test_put_of_many_and_dynamic_sizes() -> None:
    def puts(
        x: torch.Tensor, i: torch.Tensor, src: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return x.put(i, src, accumulate=True), x.put(i[:1], src[:1])

    rows, count = Dim("rows", min=7, max=113), Dim("count", min=1, max=1000)
    sizes = [(113, 1000), (8, 3), (7, 1), (113, 1000)]
    cases = [
        (torch.randn(r, 3), torch.randint(-3 * r, 3 * r, (c,)), torch.randn(c))
        for r, c in sizes
    ]
    shapes = ({0: rows}, {0: count}, {0: count})
    check_op(puts, *cases[0], dynamic_shapes=shapes, others=cases[1:], atol=1e-4)


def test_accumulated_truths_are_true() -> None:
    """What reads them sees 1, however many met."""

    def adds(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = torch.ops.aten.index_put(x, [i], x[:3], True)
        return one.sum(), one.long() * 3, one == x

    check_op(adds, torch.tensor([True, True, False, True]), torch.tensor([0, 0, 2]))


# -- as_strided_scatter --------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_as_strided_scatter(dtype: torch.dtype) -> None:
    def scatters(x: torch.Tensor, src: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            scattered(x, src, (2, 3), (1, 2), 3),
            scattered(x, src, (2, 3), (3, 1)),
            scattered(x, src.T, (3, 2), (5, 15), 1),
            scattered(x.T.contiguous(), src, (2, 3), (7, 2)),
            scattered(x, src[0, 0], (), (), 34),
            scattered(x, src[:1], (1, 3), (0, 9), 16),
            scattered(x, src[:0], (0, 3), (1, 1)),
            scattered(x[0, 0].clone(), src[:1, 0], (1,), (4,)),
            scattered(x[:0].clone(), src[:0], (0, 3), (9, 9)),
        )

    x, src = torch.randn(7, 5) * 3, torch.randn(2, 3) * 3
    if dtype.is_floating_point:
        x[0, :3] = src[0] = torch.tensor([NAN, INF, -INF])
        check_op(scatters, x.to(dtype), src.to(dtype), rtol=0, atol=0)
    else:
        check_op(scatters, x.abs().to(dtype), src.abs().to(dtype))


def test_as_strided_scatter_of_many_and_dynamic_sizes() -> None:
    def scatters(x: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        return scattered(x, src, (rows, 2), (columns, 3), 1)

    rows = Dim("rows", min=1, max=700_001)
    sizes = (700_001, 8, 1, 700_001)
    cases = [(torch.randn(n, 7), torch.randn(n, 2)) for n in sizes]
    shapes = ({0: rows}, {0: rows})
    check_op(scatters, *cases[0], dynamic_shapes=shapes, others=cases[1:])


class Scatter(torch.nn.Module):
    """as_strided_scatter of what `of` makes of its operand."""

    def __init__(
        self,
        size: Sequence[int],
        stride: Sequence[int],
        start: int | None = None,
        of: Callable[[torch.Tensor], torch.Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.view, self.of = (size, stride, start), of

    def forward(self, x: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        return scattered(self.of(x), src, *self.view)


@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (3, 2)])
def test_strides_that_may_overlap_are_refused(stride: tuple[int, int]) -> None:
    partitioner = WebGPUPartitioner()
    model, inputs = Scatter((2, 3), stride), (torch.randn(35), torch.randn(2, 3))
    to_edge_transform_and_lower(
        torch.export.export(model, inputs),
        partitioner=[partitioner],
        # ExecuTorch knows no such op, so it has to be told to let it pass.
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    (fallback,) = partitioner.report.fallbacks
    assert fallback.op == "aten.as_strided_scatter.default"
    assert "no two elements of the view are one" in fallback.reason


@pytest.mark.parametrize(
    "of",
    [lambda x: x.T, lambda x: x[1:], lambda x: x[:, :3]],
    ids=["T", "rows", "columns"],
)
def test_strides_of_another_tensors_storage_are_refused(
    of: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Else they would be taken for strides of the view's own elements."""
    inputs = (torch.randn(7, 5), torch.randn(2, 3))
    with pytest.raises(SpecViolationError, match="as_strided_scatter"):
        lower(Scatter((2, 3), (3, 1), of=of), inputs)
    # The same of a copy is not.
    model = Scatter(
        (2, 3), (3, 1), of=lambda x: of(x).clone(memory_format=torch.contiguous_format)
    )
    check_op(model, *inputs)
