"""Matrix products: every op, every layout of an operand, every form."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from forms import check_all_forms, check_forms
from harness import check_op
from torch import nn
from torch.nn import functional as F

from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Role
from executorch_webgpu.plan.planner import Planner

# Sums of up to 113 products of normal numbers, in another order than eager's.
SUMS = {"rtol": 1e-4, "atol": 5e-5}


class Products(nn.Module):
    """Operands as they come: plain, transposed, sliced, broadcast, constant."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = nn.Linear(37, 113)
        self.even = nn.Linear(64, 36, bias=False)
        self.batched = nn.Parameter(torch.randn(5, 37, 7))
        self.left = nn.Parameter(torch.randn(19, 37))

    def forward(self, x, y, z, v, e):
        wide = e.expand(5, 3, 37)
        return (
            x @ y,
            F.relu(self.odd(x)),
            self.odd(x[0]),
            self.even(z),
            self.left @ y,
            self.left @ self.batched,
            z @ z.transpose(-1, -2),
            z.transpose(1, 2) @ z,
            z[:, 1:9, ::2] @ z[0, :, :32].transpose(0, 1),
            x[:1] @ y,
            x[:3] @ y,
            torch.bmm(wide, self.batched),
            torch.einsum("bij,bkj->bik", z, z),
            torch.einsum("ij,bjk->bik", x, self.batched),
        )


def products_inputs() -> tuple[torch.Tensor, ...]:
    shapes = [(113, 37), (37, 7), (3, 16, 64), (7,), (5, 3, 37)]
    return tuple(torch.randn(shape) for shape in shapes)


def test_every_way_of_loading_an_operand():
    check_all_forms(Products(), *products_inputs(), **SUMS)


def test_bias_and_factors():
    def run(x, y, v, e, w):
        return (
            torch.addmm(v, x, y, beta=0.5, alpha=2.0),
            torch.addmm(x[:, :1], x, y),
            torch.addmm(v * float("nan"), x, y, beta=0.0),
            torch.baddbmm(e[:, :, :1], e, w),
            torch.baddbmm(e[:1, :1, :7], e, w, beta=-1.0, alpha=3.0),
            torch.mv(x, x[0]),
            torch.dot(v, v),
            torch.matmul(x[0], x[1]),
            torch.matmul(x, x[1]),
            torch.matmul(v, y.t()),
        )

    shapes = [(13, 37), (37, 7), (7,), (5, 3, 37), (5, 37, 7)]
    check_all_forms(run, *(torch.randn(s) for s in shapes), **SUMS)


def test_empty_operands():
    check_all_forms(
        lambda x, y, v: (
            x[:, :0] @ y[:0],
            torch.addmm(v, x[:, :0], y[:0], beta=2.0),
            x[:0] @ y,
            x @ y[:, :0],
            (x[:, :0] @ y[:0]).relu() + 1,
        ),
        torch.randn(3, 5),
        torch.randn(5, 4),
        torch.randn(4),
    )


def test_integers_are_exact():
    a = torch.randint(-40000, 40000, (37, 13), dtype=torch.int32)
    b = torch.randint(-40000, 40000, (13, 7), dtype=torch.int32)
    check_all_forms(lambda x, y: (x @ y, x[:1] @ y), a, b)


def test_half_accumulates_in_float():
    x, w = torch.randn(17, 512).half(), torch.randn(24, 512).half()
    program = check_all_forms(
        lambda x, w: (F.linear(x, w), x[:1] @ w.t()), x, w, rtol=2e-3, atol=0.05
    )
    exact = (x.double() @ w.double().t()).half()
    # Rounded once, at the end: what torch rounds in between is not repeated.
    torch.testing.assert_close(program(x, w)[0], exact, rtol=1e-3, atol=1e-2)


def test_nonfinite_values_stay_where_they_are():
    x = torch.randn(9, 13)
    x[2, 3], x[4, 12], x[8, 0] = float("inf"), float("nan"), float("-inf")
    y = torch.randn(13, 5)
    y[12, 1] = float("inf")
    check_all_forms(lambda x, y: (x @ y, y.t() @ x.t()), x, y, **SUMS)


def test_large_operands_are_packed_first():
    a, b = torch.randn(256, 256), torch.randn(256, 512)
    program = check_all_forms(lambda x, y: F.relu(x @ y), a, b, rtol=1e-4, atol=2e-4)
    exact = torch.relu(a.double() @ b.double()).float()
    torch.testing.assert_close(program(a, b)[0], exact, rtol=1e-5, atol=1e-4)


def test_a_large_operand_is_packed_part_by_part():
    """A copy of all of it would be a third of the memory again."""
    a, b, bias = torch.randn(1024, 512), torch.randn(512, 96), torch.randn(96)
    program = check_op(
        lambda x, y, c: F.relu(torch.addmm(c, x, y)), a, b, bias, rtol=1e-4, atol=5e-4
    )
    graph = serialize.read(program.delegates[0][1])
    caps = replace(AOT_CAPS, is_cpu=True, subgroups=True, name="llvmpipe (256 bits)")
    plan = Planner(graph, caps).upper_bound()
    kinds = [step.label for step in plan.dispatches]
    assert len(kinds) > 2
    scratch = sum(b.size for b in plan.buffers if b.role is Role.SCRATCH)
    assert 0 < scratch <= 0.1 * 4 * (a.numel() + b.numel() + 1024 * 96)


class SumsOfProducts(nn.Module):
    """addmv, addbmm and bilinear: live, constant, broadcast, and of no terms."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(37, 13))
        self.form = nn.Bilinear(13, 7, 11)
        self.plain = nn.Bilinear(7, 13, 3, bias=False)

    def forward(self, v, x, c, a, b, y):
        return (
            F.relu(torch.addmv(v, self.matrix, x[0])),
            torch.addmv(v[:1], self.matrix * 2, x[1], beta=0.5, alpha=2),
            torch.addmv(v[0], self.matrix.t()[:, :13].t(), x[2], beta=0),
            torch.addmv(v, self.matrix[:, :0], x[0, :0], beta=3),
            torch.addbmm(c, a, b),
            torch.addbmm(c[:, :1], a, b, beta=0.5, alpha=2),
            torch.addbmm(c * float("nan"), a, b, beta=0),
            torch.addbmm(c, a[:0], b[:0], beta=3),
            F.relu(self.form(x, y)),
            self.form(x[0], y[0]),
            self.form(x[:0], y[:0]),
            self.plain(y.reshape(2, 2, 7), x.reshape(2, 2, 13)),
            F.bilinear(a[:, 0], b[:, 0], b),
        )


def test_sums_of_products():
    shapes = [(37,), (4, 13), (7, 5), (7, 7, 4), (7, 4, 5), (4, 7)]
    inputs = [torch.randn(shape) for shape in shapes]
    check_all_forms(SumsOfProducts(), *inputs, **SUMS)


def test_sums_of_products_of_integers():
    def run(v, a, x):
        return (
            torch.addmv(v, a, x, beta=2, alpha=-3),
            torch.addbmm(a, a[None].expand(4, 5, 5), a[None].expand(4, 5, 5)),
        )

    shapes = ((5,), (5, 5), (5,))
    check_op(run, *(torch.randint(-99, 99, shape).int() for shape in shapes))


def test_more_workgroups_than_one_grid_dimension_has():
    rows = torch.randn(65536 * 17, 2)
    check_op(lambda x, y: x @ y, rows, torch.randn(2, 3), **SUMS)


def test_what_follows_is_fused():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(32, 24)

        def forward(self, x, y):
            return F.gelu(self.linear(x)) + y

    program = check_all_forms(Model(), torch.randn(5, 32), torch.randn(5, 24))
    graph = serialize.read(program.delegates[0][1])
    assert len(Planner(graph, AOT_CAPS).upper_bound().dispatches) == 1


@pytest.mark.parametrize("depth", [32, 37])
def test_dynamic_rows_and_batch(depth: int):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(depth, 40)

        def forward(self, x):
            return self.linear(x), x @ x.transpose(1, 2)

    batch = torch.export.Dim("batch", min=1, max=4)
    rows = torch.export.Dim("rows", min=1, max=113)
    sizes = [(4, 113), (2, 7), (1, 1), (4, 113)]
    first, *rest = [(torch.randn(b, r, depth),) for b, r in sizes]
    shapes = ({0: batch, 1: rows},)
    check_op(Model(), *first, dynamic_shapes=shapes, others=rest, **SUMS)


class Sliced(nn.Module):
    """Products with parts of constants, as cross-attention has them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 32))
        self.bias = nn.Parameter(torch.randn(96))
        self.batched = nn.Parameter(torch.randn(3, 32, 24))
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x, y):
        return (
            F.linear(x, self.weight[:32], self.bias[:32]),
            F.linear(y, self.weight[32:], self.bias[32:]),
            F.linear(y[:, :1], self.weight[8:40, :]),
            x @ self.batched[1, :, 4:16],
            y @ self.batched[1:, :, :8],
            self.attention(x, y, y, need_weights=False)[0],
        )


def test_parts_of_constants_take_the_form_of_their_device():
    model = Sliced().eval()
    program = check_forms(model, torch.randn(2, 5, 32), torch.randn(2, 9, 32), **SUMS)
    graph = serialize.read(program.delegates[0][1])
    plan = Planner(graph, AOT_CAPS).upper_bound()
    used = {plan.pipelines[step.pipeline].label for step in plan.dispatches}
    assert {"matmul_tiled", "matmul_vector"} <= used
    assert not [name for name in used if name.endswith("_lanes")]
