"""MTCNN: three small networks that find faces, each refining the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from .files import package_file

Network = Callable[[torch.Tensor], Sequence[torch.Tensor]]


class _Network(nn.Module):
    """What the three have in common: convolutions, pools, and heads by name."""

    def __init__(self, name: str, widths: Sequence[int], sizes: Sequence[int]) -> None:
        super().__init__()
        for index, size in enumerate(sizes):
            layer = nn.Conv2d(widths[index], widths[index + 1], size)
            self.add_module(f"conv{index + 1}", layer)
            self.add_module(f"prelu{index + 1}", nn.PReLU(widths[index + 1]))
        self.file = package_file("facenet_pytorch", f"data/{name}.pt")

    def load(self) -> None:
        self.load_state_dict(torch.load(self.file, weights_only=True))

    def features(self, x: torch.Tensor, pools: Sequence[int]) -> torch.Tensor:
        """`pools` has the window after each convolution, 0 for none."""
        for index, window in enumerate(pools, 1):
            x = self.get_submodule(f"conv{index}")(x)
            x = self.get_submodule(f"prelu{index}")(x)
            if window:
                x = F.max_pool2d(x, window, stride=2, ceil_mode=True)
        return x


class Proposal(_Network):
    """P-Net: a picture [N, 3, H, W]; box offsets and face probability per cell."""

    def __init__(self) -> None:
        super().__init__("pnet", (3, 10, 16, 32), (3, 3, 3))
        self.conv4_1 = nn.Conv2d(32, 2, 1)
        self.conv4_2 = nn.Conv2d(32, 4, 1)
        self.load()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.features(x, (2, 0, 0))
        return self.conv4_2(x), torch.softmax(self.conv4_1(x), 1)


class Refinement(_Network):
    """R-Net: candidates [N, 3, 24, 24]; box offsets and face probability."""

    def __init__(self) -> None:
        super().__init__("rnet", (3, 28, 48, 64), (3, 3, 2))
        self.dense4 = nn.Linear(576, 128)
        self.prelu4 = nn.PReLU(128)
        self.dense5_1 = nn.Linear(128, 2)
        self.dense5_2 = nn.Linear(128, 4)
        self.load()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.features(x, (3, 3, 0)).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu4(self.dense4(x))
        return self.dense5_2(x), torch.softmax(self.dense5_1(x), 1)


class Output(_Network):
    """O-Net: candidates [N, 3, 48, 48]; offsets, probability and five landmarks."""

    def __init__(self) -> None:
        super().__init__("onet", (3, 32, 64, 64, 128), (3, 3, 3, 2))
        self.dense5 = nn.Linear(1152, 256)
        self.prelu5 = nn.PReLU(256)
        self.dense6_1 = nn.Linear(256, 2)
        self.dense6_2 = nn.Linear(256, 4)
        self.dense6_3 = nn.Linear(256, 10)
        self.load()

    def forward(
        self, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.features(x, (3, 3, 2, 0)).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu5(self.dense5(x))
        return self.dense6_2(x), torch.softmax(self.dense6_1(x), 1), self.dense6_3(x)


def find_faces(
    picture: torch.Tensor,
    proposal: Network,
    refinement: Network,
    output: Network,
    scales: Sequence[float],
    limit: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes [n, 4] (left, top, right, bottom) and landmarks [n, 5, 2] in pixels.

    `picture` is [3, H, W] in [0, 255], looked at in even sizes; at most `limit`
    candidates are refined.
    """
    found = [_propose(picture, proposal, scale) for scale in scales]
    boxes = torch.cat([item[0] for item in found])
    scores = torch.cat([item[1] for item in found])
    boxes = _square(boxes[_suppress(boxes, scores, 0.7)[:limit]])
    offsets, chances = refinement(_crops(picture, boxes, 24))
    keep = chances[:, 1] > 0.7
    boxes, scores = _shift(boxes[keep], offsets[keep]), chances[keep, 1]
    boxes = _square(boxes[_suppress(boxes, scores, 0.7)])
    offsets, chances, points = output(_crops(picture, boxes, 48))
    keep = chances[:, 1] > 0.7
    boxes, offsets, scores = boxes[keep], offsets[keep], chances[keep, 1]
    sizes = (boxes[:, 2:] - boxes[:, :2] + 1).unsqueeze(1)
    points = points[keep].reshape(-1, 2, 5).transpose(1, 2) * sizes
    points = points + boxes[:, None, :2]
    boxes = _shift(boxes, offsets)
    best = _suppress(boxes, scores, 0.5)
    return boxes[best], points[best]


def _propose(
    picture: torch.Tensor, proposal: Network, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    size = [int(extent * scale) // 2 * 2 for extent in picture.shape[1:]]
    offsets, chances = proposal(
        _normal(F.interpolate(picture[None], size, mode="area"))
    )
    rows, columns = torch.where(chances[0, 1] > 0.6)
    corner = torch.stack([columns, rows], 1) * 2.0
    boxes = torch.cat([corner, corner + 12], 1) / scale
    scores = chances[0, 1, rows, columns]
    boxes = _shift(boxes, offsets[0, :, rows, columns].T)
    keep = _suppress(boxes, scores, 0.5)
    return boxes[keep], scores[keep]


def _normal(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels - 127.5) / 128


def _crops(picture: torch.Tensor, boxes: torch.Tensor, size: int) -> torch.Tensor:
    height, width = picture.shape[1:]
    crops = []
    for left, top, right, bottom in boxes.round().int().tolist():
        left, top = max(0, min(left, width - 2)), max(0, min(top, height - 2))
        crop = picture[None, :, top : max(bottom, top + 2), left : max(right, left + 2)]
        crops.append(F.interpolate(crop, (size, size), mode="area"))
    return _normal(torch.cat(crops))


def _shift(boxes: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    sizes = boxes[:, 2:] - boxes[:, :2]
    return boxes + offsets * sizes.repeat(1, 2)


def _square(boxes: torch.Tensor) -> torch.Tensor:
    center = (boxes[:, :2] + boxes[:, 2:]) / 2
    half = (boxes[:, 2:] - boxes[:, :2]).amax(1, keepdim=True) / 2
    return torch.cat([center - half, center + half], 1)


def overlap(box: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Intersection over union of a box with some boxes."""
    low = torch.maximum(box[:2], boxes[:, :2])
    high = torch.minimum(box[2:], boxes[:, 2:])
    shared = (high - low).clamp(min=0).prod(1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return shared / (areas + (box[2:] - box[:2]).prod() - shared)


def _suppress(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> torch.Tensor:
    """Indices of the boxes that no better one overlaps by more than `limit`."""
    order = scores.argsort(descending=True)
    kept = []
    while len(order):
        kept.append(order[0])
        order = order[1:][overlap(boxes[order[0]], boxes[order[1:]]) <= limit]
    return torch.stack(kept) if kept else order
