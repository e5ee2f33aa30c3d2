"""Ops that ExecuTorch's lowering refuses for any backend, rewritten to others."""

from __future__ import annotations

import pytest
import torch
from harness import Function, check_op, lower
from torch.export import Dim

from executorch_webgpu.errors import InvalidInput
from executorch_webgpu.export.fx.histogram import first_numbers

INF, NAN = float("inf"), float("nan")
EDGES = [-1.0, 0.0, -0.0, 0.1, 1.0, 2.0, 2.999, 3.0, 4.0, 4.0001, 5.0, NAN, INF, -INF]


def test_histograms() -> None:
    def counts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.histc(x, 4, 0, 4),
            torch.histc(x, 7, -1, 3.3),
            torch.histc(x, 1, 0, 1),
            torch.histc(x, 300, -2, 2),
            torch.histc(x[:0], 3, 0, 1) + 1,
            torch.histc(x[0, 0], 3, 0, 1).cumsum(0, dtype=torch.int32),
            torch.histc(x.half(), 5, -2, 2),
            torch.histc(x.bfloat16(), 5, -0.3, 2),
        )

    x = torch.randn(3, 61)
    x[1, : len(EDGES)] = torch.tensor(EDGES)
    check_op(counts, x)


def test_histogram_of_any_length() -> None:
    lengths = {0: Dim("n", min=1, max=600)}
    others = [(torch.randn(n),) for n in (7, 1, 600)]
    check_op(
        lambda x: torch.histc(x, 9, -2, 2),
        torch.randn(600),
        dynamic_shapes=(lengths,),
        others=others,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("bins", "low", "high"), [(3, 0.1, 0.7), (10, -1, 1), (6, 0, 5)]
)
def test_first_numbers_of_bins_are_torchs(
    dtype: torch.dtype, bins: int, low: float, high: float
) -> None:
    """The least number of a bin is in it, and the one before is not."""
    edges = first_numbers(bins, low, high, dtype)
    before = torch.nextafter(edges, torch.full_like(edges, -INF))
    for number in range(bins):
        counted = torch.histc(edges[number : number + 1], bins, low, high)
        assert counted[number] == 1, (number, edges)
        assert torch.histc(before[number : number + 1], bins, low, high)[number] == 0
    assert torch.histc(edges[-1:], bins, low, high).sum() == 0
    assert torch.histc(before[-1:], bins, low, high)[-1] == 1


def test_truth_of_all_and_any() -> None:
    def truths(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.ops.aten._is_all_true(x > -9),
            torch.ops.aten._is_any_true(x > 9),
            torch.ops.aten._is_all_true(x[:0] > 0),
        )

    check_op(truths, torch.randn(5, 7))


def test_parts_of_several_types() -> None:
    def joined(
        x: torch.Tensor, h: torch.Tensor, i: torch.Tensor, b: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            torch.cat([i, x]),
            torch.cat([x, h, b], 1),
            torch.cat([b, i.short(), i]),
            torch.cat([h, h.bfloat16()], -1),
            torch.stack([x, i]),
        )

    x, i = torch.randn(3, 4), torch.randint(-9, 9, (3, 4))
    check_op(joined, x, torch.randn(3, 4).half(), i, x > 0)


def test_assertions_about_data() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._check_tensor_all(x > -99)
        return x + 1

    check_op(checked, torch.randn(5, 7))


def test_choice_that_is_decided_becomes_its_number() -> None:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        high = (x > -99).all().item()
        torch._check(high)
        return x + torch.sym_ite(high, 3, 2)

    check_op(chosen, torch.randn(5, 7))


def test_random_numbers_of_dynamic_sizes() -> None:
    def drawn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.randn_like(x),
            torch.rand_like(x[:, :3], dtype=torch.float32),
            torch.randn(x.shape[1], 7, x.shape[0]),
            torch.rand(x.shape[0] * 2),
            torch.randn_like(x[0, 0]),
            torch.randn_like(x, memory_format=torch.contiguous_format) + x,
        )

    sizes = {0: Dim("rows", min=1, max=40), 1: Dim("columns", min=4, max=50)}
    program = lower(Function(drawn), (torch.randn(37, 41),), ((sizes,),))
    left = {fallback.op for fallback in program.report.fallbacks}
    assert left == {"aten.rand.default", "aten.randn.default"}
    for rows, columns in ((37, 41), (40, 50), (1, 4)):
        x = torch.zeros(rows, columns)
        results = program.run(x)
        for result, wanted in zip(results, drawn(x), strict=True):
            assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
            assert len(result.unique()) > 0.99 * result.numel()
        if rows > 1:
            normal, uniform, turned, *_ = results
            torch.testing.assert_close(
                normal.std(), torch.tensor(1.0), atol=0.1, rtol=0
            )
            torch.testing.assert_close(
                turned.mean(), torch.tensor(0.0), atol=0.1, rtol=0
            )
            assert 0 <= uniform.min() < 0.2 < 0.8 < uniform.max() < 1


def test_random_numbers_without_a_bound_are_refused() -> None:
    model = Function(lambda x: torch.randn_like(x))
    with pytest.raises(InvalidInput, match=r"randn_like: .* must have an upper bound"):
        lower(model, (torch.randn(37),), (({0: Dim("n")},),))
