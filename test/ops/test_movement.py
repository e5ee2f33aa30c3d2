"""Joining, padding, repeating, rolling, triangles and sliding blocks against eager."""

from __future__ import annotations

import torch
from harness import check_op
from torch.export import Dim
from torch.nn import functional as F


def test_joining() -> None:
    def joins(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.cat([x, x * 2, x[:, :2]], 1),
            torch.cat([x] * 19 + [x + 1], 2),
            torch.cat([n, n + 1]),
            torch.cat([x.transpose(0, 1)[:, :2], x[:3].permute(1, 0, 2)], 1),
            torch.cat([x[:, :0], x, torch.empty(0)], 1),
            torch.cat([x[:0], x[:0]], 0),
            torch.cat([x[:, :, :2], n.unsqueeze(2)], 2),
            torch.cat([n > 0, n < 0], 1),
            F.relu(torch.cat([x, -x], -1)),
            torch.stack([x, x * 2], 1),
            torch.stack([n, n, n], -1),
            x.half().repeat(1, 2, 1).reshape(-1),
        )

    check_op(joins, torch.randn(4, 7, 3), torch.randint(-4, 4, (4, 7)))


def test_joining_fours() -> None:
    """Inputs of whole fours, which are moved four elements at a time."""

    def joined(
        x: torch.Tensor, y: torch.Tensor, n: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            torch.cat([x, y, x[:, :1]], 1),
            torch.cat([x, x, x], 0),
            F.relu(torch.cat([x, x + 1], 2)) * 2,
            torch.cat([x, y], 1) > 0,
            torch.cat([x.half(), y.half()], 1),
            torch.cat([n, x > 0], 1),
            torch.cat([x[..., :4], x[..., 4:]], 1),
        )

    x, y = torch.randn(3, 7, 8), torch.randn(3, 37, 8)
    check_op(joined, x, y, torch.arange(168).reshape(3, 7, 8))


def test_replacing_slices() -> None:
    def replace(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.select_scatter(x[0] * 2, 0, 1),
            x.select_scatter(x[:, :, 0] * 2, -1, -1),
            x.slice_scatter(x[:, :2] * 2, 1, 1, 3),
            x.slice_scatter(x[:, ::2] * 2, 1, 0, None, 2),
            x.slice_scatter(x[:, :3] * 2, 1, -5, -2),
            x.slice_scatter(x[:, :0], 1, 4, 2) + 1,
            torch.diagonal_scatter(x, x[:, 0] * 2, 0, 1, 2),
        )

    check_op(replace, torch.randn(4, 7, 3))


def test_repeating_and_reversing() -> None:
    def moves(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.repeat(2, 1, 3),
            x.repeat(2, 1, 1, 2) * 2,
            x.repeat(0, 1, 1),
            x.tile(2, 1),
            x.repeat_interleave(3, 1),
            x.flip(1),
            x.flip((0, 2)),
            x.permute(2, 0, 1).flip(0),
            torch.rot90(x, 1, (0, 1)),
            x.roll(1, 1),
            x.roll((1, -2), (0, 2)),
            x.roll(5),
            x.transpose(0, 2).roll(-1, 0),
            s.repeat(3),
            s.flip(()),
            x[:0].flip(0),
        )

    check_op(moves, torch.randn(4, 7, 3), torch.randn(()))


def test_padding() -> None:
    def pads(
        x: torch.Tensor, image: torch.Tensor, n: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        volume = image.unsqueeze(0)
        return (
            F.pad(x, (1, 2)),
            F.pad(x, (1, -2, -1, 2), value=3.5),
            F.pad(x, (0, 0, 0, 0, 1, 1), value=float("-inf")),
            F.pad(n, (1, 2), value=7),
            F.pad(n > 0, (1, 0), value=True),
            F.pad(x[:, :0], (0, 0, 2, 1), value=1.0),
            F.relu(F.pad(image, (3, 3, 3, 3))),
            F.pad(x, (2, 1), "reflect"),
            F.pad(image, (1, 2, 3, 1), "reflect"),
            F.pad(volume, (1, 1, 2, 1, 1, 1), "reflect"),
            F.pad(x, (1, 5), "replicate"),
            F.pad(image, (1, 3, 2, 1), "replicate"),
            F.pad(volume, (1, 1, 2, 1, 1, 1), "replicate"),
            F.pad(image.permute(0, 1, 3, 2), (1, 3, 2, 1), "replicate"),
            F.pad(image, (1, 2, 1, 3), "circular"),
        )

    n = torch.randint(-4, 4, (4, 7))
    check_op(pads, torch.randn(4, 7, 3), torch.randn(2, 3, 7, 9), n)


def test_triangles_and_blocks() -> None:
    def blocks(
        x: torch.Tensor, image: torch.Tensor, n: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        columns = F.unfold(image, (3, 2), padding=1, stride=2)
        return (
            x.tril(),
            x.triu(1),
            x.tril(-1) * 2,
            x.transpose(1, 2).triu(-2),
            n.triu(),
            (n > 0).tril(),
            F.unfold(image, 2),
            F.unfold(image[0], (3, 2), 2, 1, 2),
            F.fold(F.unfold(image, 2), (7, 9), 2),
            F.fold(columns, (7, 9), (3, 2), padding=1, stride=2),
            torch.diag_embed(x),
            torch.diag(x[0, 0], 1),
        )

    n = torch.randint(-4, 4, (4, 7))
    check_op(blocks, torch.randn(4, 7, 3), torch.randn(2, 3, 7, 9), n)


def test_many_elements() -> None:
    n = torch.arange(4_194_304 + 64).view(-1, 8).int()
    check_op(lambda n: (torch.cat([n, n + 1], 1)[:, 1:9], n.flip(0), n.roll(1, 0)), n)


def test_dynamic_sizes() -> None:
    def moves(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.cat([x, x * 2], 0),
            F.pad(x, (1, 2)),
            x.flip(0),
            x.repeat(2, 2),
            x.tril(),
            x.slice_scatter(x[:1] * 2, 0, 0, 1),
        )

    rows, columns = Dim("rows", min=1, max=37), Dim("columns", min=1, max=113)
    sizes = [(37, 113), (7, 3), (1, 1), (37, 113)]
    check_op(
        moves,
        torch.randn(36, 112),
        dynamic_shapes=({0: rows, 1: columns},),
        others=[(torch.randn(size),) for size in sizes],
    )
