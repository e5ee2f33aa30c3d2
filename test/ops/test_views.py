"""Shape ops against eager, and that no kernel runs for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import check_op
from torch.export import Dim


def test_other_shapes() -> None:
    def views(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.view(4, 42),
            x.permute(3, 2, 0, 1).reshape(12, 14),
            x.transpose(0, 2).reshape(-1),
            x.squeeze(),
            x.squeeze(2),
            x.squeeze((2, 3)),
            x.unsqueeze(-1),
            x.movedim(0, 2),
            x.unflatten(1, (1, 7)),
            x.expand(4, 7, 5, 6),
            x[0, :, 0].t(),
            x.mT,
            s.view(1, 1),
            s.expand(3),
            x[:0].view(0, 7, 6),
            *torch.ops.aten.native_dropout(x, 0.5, False),
        )

    check_op(views, torch.randn(4, 7, 1, 6), torch.randn(()))


def test_parts() -> None:
    def parts(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *x.split(4, 1),
            *x.split([2, 0, 5], 1),
            *x.chunk(3, -1),
            *x.unbind(1),
            *n.split(7, 1),
            *x.tensor_split(2, 1),
            x[1:, ::2, -2:],
            x[:, 5:3],
            x[..., -1],
            x.narrow(1, 2, 3),
            x.diagonal(0, 1, 2),
            x.diagonal(-2, 0, 1),
            x.diagonal(3),
            x.diagonal(9),
            torch.as_strided(x, (2, 3), (1, 2)),
            torch.as_strided(x, (3, 3), (1, 1), 5),
            x.unfold(1, 2, 1),
            x.unfold(2, 3, 2) * 2,
            n.unfold(1, 7, 1),
        )

    check_op(parts, torch.randn(4, 7, 6), torch.randint(-4, 4, (4, 7)))


def test_views_of_views() -> None:
    def chains(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.permute(2, 0, 1).split(3, 0)
        return (
            a.transpose(1, 2)[:, 1:].reshape(3, -1) + 1,
            b.unbind(1)[2].flip(0),
            x.unfold(1, 3, 2).diagonal(0, 2, 3).sum(-1),
            x[:, ::2].expand(2, 4, 4, 6)[1].unsqueeze(0).permute(0, 3, 1, 2),
        )

    check_op(chains, torch.randn(4, 7, 6))


def test_dynamic_sizes() -> None:
    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = x.split([1, 6], 1)
        return first, second.reshape(-1), x.unbind(1)[3], x[:, 1::2].T

    check_op(
        views,
        torch.randn(36, 7),
        dynamic_shapes=({0: Dim("rows", min=1, max=37)},),
        others=[(torch.randn(rows, 7),) for rows in (37, 3, 1, 37)],
    )


@pytest.mark.parametrize(
    "view",
    [
        lambda x: torch.as_strided(x.t(), (3, 2), (2, 1)),
        lambda x: torch.as_strided(x[1:], (3, 2), (2, 1)),
        lambda x: torch.as_strided(x[1:, 2], (3, 2), (2, 1), 3),
        lambda x: torch.as_strided(x.t() + 1, (3, 2), (5, 1)),
        lambda x: torch.as_strided((x.t() + 1)[2:].reshape(-1), (3, 2), (5, 1)),
    ],
    ids=["turned", "cut", "from", "computed", "copied"],
)
def test_strides_are_of_the_storage_behind_views(
    view: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    check_op(lambda x: view(x) * 1, torch.randn(4, 6))
