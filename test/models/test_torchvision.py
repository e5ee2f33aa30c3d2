"""torchvision's architectures, delegated whole and equal to eager."""

from __future__ import annotations

import pytest
import torch
from harness import check_op
from vision_zoo import SHORTENED, ZOO, shortened

# Another model of the same kind of blocks, which decides for them in `make test`.
LIKE = {
    "vgg11": "alexnet",
    "resnet18": "regnet_y_400mf",
    "resnext50": "regnet_y_400mf",
    "mobilenet_v2": "EfficientNet-Lite0 in test_published.py",
    "mobilenet_v3_small": "the same, and regnet_y_400mf for squeeze and excitation",
    "mnasnet0_5": "EfficientNet-Lite0 in test_published.py",
    "efficientnet_b0": "the same, and regnet_y_400mf for squeeze and excitation",
    "googlenet": "inception_v3",
}
NAMES = [
    pytest.param(name, marks=[pytest.mark.long] if name in LIKE else []) for name in ZOO
]


def centred(model: torch.nn.Module, x: torch.Tensor) -> None:
    """Gives batch norms the statistics of real activations.

    With untrained ones values grow or vanish over the layers, and comparing the
    outputs would tell little.
    """
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    model.train()
    with torch.no_grad():
        model(x)
    model.eval()


@pytest.mark.parametrize("name", NAMES)
def test_architecture_is_delegated_whole_and_equals_eager(name):
    make, side, is_dynamic = ZOO[name]
    model = make()
    check(shortened(model) if name in SHORTENED else model, side, is_dynamic)


@pytest.mark.long
@pytest.mark.parametrize("name", SHORTENED)
def test_published_depth_equals_eager(name):
    make, side, is_dynamic = ZOO[name]
    check(make(), side, is_dynamic)


def check(model: torch.nn.Module, side: int, is_dynamic: bool) -> None:
    centred(model, torch.randn(8, 3, side, side))
    shapes = ({0: torch.export.Dim("batch", min=1, max=3)},)
    x = torch.randn(2, 3, side, side)
    with torch.no_grad():
        largest = float(model(x).abs().max())
    check_op(
        model,
        x,
        dynamic_shapes=shapes if is_dynamic else None,
        others=[(torch.randn(n, 3, side, side),) for n in (3, 1)] if is_dynamic else [],
        rtol=1e-3,
        # Inception's eager result, 4.6 at most, is itself 2e-4 off float64's.
        atol=1e-4 * max(1.0, largest),
    )
