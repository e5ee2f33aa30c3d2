"""Rows times the matrix of their group, as mixtures of experts have it."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import transformers.integrations.moe  # noqa: F401
from gpu_plans import check
from harness import check_op, lower
from torch.export import Dim

from executorch_webgpu import ir
from executorch_webgpu.ir import serialize

Inputs = tuple[torch.Tensor, ...]
grouped_mm = torch.ops.transformers.grouped_mm_fallback


class Experts(torch.nn.Module):
    """Weights as constants, one matrix after another, each as torch's linear has it."""

    def __init__(self, count: int, k: int, n: int, transposed: bool = True) -> None:
        super().__init__()
        shape = (count, n, k) if transposed else (count, k, n)
        self.weight = torch.nn.Parameter(torch.randn(shape))
        self.transposed = transposed

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        weight = self.weight.transpose(1, 2) if self.transposed else self.weight
        return torch.relu(grouped_mm(x, weight, ends))


def rows(k: int, *ends: int) -> Inputs:
    return torch.randn(23, k), torch.tensor(ends, dtype=torch.int32)


@pytest.mark.parametrize(
    ("k", "n", "transposed"),
    [(64, 96, True), (37, 7, True), (37, 5, False), (1, 1, True)],
)
def test_experts_of_constant_weights(k: int, n: int, transposed: bool) -> None:
    others = [
        rows(k, 0, 0, 0, 23, 23),  # all rows in one group
        rows(k, 4, 4, 9, 11, 20),  # rows behind the last group
        rows(k, 0, 0, 0, 0, 0),
        rows(k, 1, 2, 3, 22, 23),
    ]
    check_op(Experts(5, k, n, transposed), *rows(k, 3, 3, 10, 17, 23), others=others)


def test_experts_given_as_inputs() -> None:
    def products(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> Inputs:
        return (
            grouped_mm(x, w, ends),
            grouped_mm(x.half(), w.half(), ends),
            grouped_mm(x[:0], w, ends * 0),
            grouped_mm(x[:, :0], w[:, :0], ends),
            grouped_mm(x, w.transpose(1, 2).contiguous().transpose(1, 2), ends.long()),
        )

    ends = torch.tensor([2, 9, 13], dtype=torch.int32)
    check_op(products, torch.randn(13, 20), torch.randn(3, 20, 12), ends)


def test_any_number_of_rows() -> None:
    def inputs(count: int) -> Inputs:
        ends = torch.randint(0, count + 1, (5,)).sort().values.int()
        return torch.randn(count, 16), ends

    check_op(
        Experts(5, 16, 24),
        *inputs(40),
        dynamic_shapes=({0: Dim("rows", min=1, max=40)}, None),
        others=[inputs(n) for n in (1, 7, 40)],
    )


def test_torchs_own_op_in_bfloat16() -> None:
    """Which torch traces in this type alone."""

    def products(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> Inputs:
        return (
            torch._grouped_mm(x, w, offs=ends),
            torch._grouped_mm(x, w.transpose(1, 2).contiguous().mT, offs=ends),
            torch._grouped_mm(w.mT, w),
        )

    x, w = torch.randn(13, 32).bfloat16(), torch.randn(3, 32, 16).bfloat16()
    program = check_op(products, x, w, torch.tensor([2, 9, 13], dtype=torch.int32))
    assert program.report.delegated["aten._grouped_mm.default"] == 3


@functools.cache
def experts() -> ir.Graph:
    ((_, blob),) = lower(Experts(5, 37, 70), rows(37, 3, 3, 10, 17, 20)).delegates
    return serialize.read(blob)


def test_rows_find_their_groups_on_gpus() -> None:
    def group(inputs: list[np.ndarray]) -> None:
        inputs[1][:] = (3, 3, 10, 17, 20)

    check(experts, ["matmul_vector"], change=group)
