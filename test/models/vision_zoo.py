"""torchvision's models with random weights, at sizes a software driver can do.

Architectures are as published; only repeated layers and wide heads are fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_domains

tv: Any = torch_domains.load("torchvision.models")


def vgg() -> torch.nn.Module:
    model = tv.vgg11(num_classes=10)
    # The published head alone is 400 MB, more than a binding may hold.
    model.classifier = torch.nn.Linear(512, 10)
    model.avgpool = torch.nn.AdaptiveAvgPool2d(1)
    return model


def alexnet() -> torch.nn.Module:
    model = tv.alexnet(num_classes=10)
    model.classifier[1] = torch.nn.Linear(9216, 64)
    model.classifier[4] = torch.nn.Linear(64, 64)
    model.classifier[6] = torch.nn.Linear(64, 10)
    return model


def convnext() -> torch.nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    widths = [(32, 64, 1), (64, 96, 1), (96, 128, 2), (128, None, 1)]
    blocks = [CNBlockConfig(*width) for width in widths]
    return ConvNeXt(blocks, num_classes=10)


def vit() -> torch.nn.Module:
    model = tv.VisionTransformer(
        image_size=64, patch_size=16, num_layers=2, num_heads=12, hidden_dim=768,
        mlp_dim=3072, num_classes=10,
    )  # fmt: skip
    # It begins as zero, which would hide everything before it.
    torch.nn.init.normal_(model.heads.head.weight, std=0.05)
    return model


def swin() -> torch.nn.Module:
    from torchvision.models.swin_transformer import (
        PatchMergingV2,
        SwinTransformer,
        SwinTransformerBlockV2,
    )

    return SwinTransformer(
        patch_size=[4, 4], embed_dim=32, depths=[2, 2], num_heads=[2, 4],
        window_size=[4, 4], num_classes=10, block=SwinTransformerBlockV2,
        downsample_layer=PatchMergingV2,
    )  # fmt: skip


def maxvit() -> torch.nn.Module:
    return tv.MaxVit(
        input_size=(64, 64), stem_channels=16, partition_size=4,
        block_channels=[16, 32], block_layers=[1, 1], head_dim=8,
        stochastic_depth_prob=0.0, num_classes=10,
    )  # fmt: skip


def resnext() -> torch.nn.Module:
    from torchvision.models.resnet import Bottleneck

    return tv.ResNet(
        Bottleneck, [1, 1, 1, 1], groups=32, width_per_group=4, num_classes=10
    )


def densenet() -> torch.nn.Module:
    return tv.DenseNet(growth_rate=32, block_config=(2, 3, 3, 2), num_classes=10)


class Flow(torch.nn.Module):
    """RAFT's optical flow from every picture of a batch to the next, in a circle."""

    def __init__(self) -> None:
        super().__init__()
        self.raft = tv.optical_flow.raft_small()

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.raft(pictures, pictures.roll(-1, 0), num_flow_updates=2)[-1]


def plain(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    return lambda: getattr(tv, name)(num_classes=10, **options)


def shortened(model: torch.nn.Module) -> torch.nn.Module:
    """The model with the first two blocks of each of its stages.

    The first changes the width and the size, the second is repeated by all others.
    """
    for stage in model.modules():
        if isinstance(stage, torch.nn.Sequential):
            kinds = [type(block) for block in stage]
            if len(set(kinds)) == 1 and not issubclass(kinds[0], _NO_BLOCKS):
                del stage[2:]
    for name in _REPEATED.get(type(model).__name__, ()):
        setattr(model, name, torch.nn.Identity())
    return model


_NO_BLOCKS = (torch.nn.Sequential, torch.nn.Linear)
# Blocks that differ from others in nothing but numbers, and keep the width.
_REPEATED = {
    "GoogLeNet": ("inception4b", "inception4c", "inception5a"),
    "Inception3": ("Mixed_5d", "Mixed_6d", "Mixed_6e", "Mixed_7c"),
}
# At their published depth they take more than twice as long.
SHORTENED = (
    "shufflenet_v2_x0_5",
    "efficientnet_b0",
    "inception_v3",
    "googlenet",
    "mnasnet0_5",
    "regnet_y_400mf",
)


# Name: how it is made, the side of its pictures, and whether it is also exported
# with a batch of any size.
ZOO: dict[str, tuple[Callable[[], torch.nn.Module], int, bool]] = {
    "alexnet": (alexnet, 64, True),
    "vgg11": (vgg, 32, True),
    "resnet18": (plain("resnet18"), 64, True),
    "resnext50": (resnext, 48, True),
    "densenet121": (densenet, 48, True),
    "squeezenet1_1": (plain("squeezenet1_1"), 64, True),
    "mobilenet_v2": (plain("mobilenet_v2"), 48, True),
    "mobilenet_v3_small": (plain("mobilenet_v3_small"), 64, True),
    "shufflenet_v2_x0_5": (plain("shufflenet_v2_x0_5"), 64, True),
    "efficientnet_b0": (plain("efficientnet_b0"), 48, True),
    "convnext": (convnext, 64, True),
    "inception_v3": (
        plain("inception_v3", aux_logits=False, init_weights=False),
        80,
        False,
    ),
    "googlenet": (plain("googlenet", init_weights=False, aux_logits=False), 64, True),
    "mnasnet0_5": (plain("mnasnet0_5"), 64, True),
    "regnet_y_400mf": (plain("regnet_y_400mf"), 48, True),
    "vit_b_16": (vit, 64, True),
    "swin_v2_t": (swin, 64, False),
    "maxvit_t": (maxvit, 64, False),
    # Smaller pictures would have no correlations at the last level.
    "raft_small": (Flow, 128, False),
}
