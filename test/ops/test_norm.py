"""Softmax and normalisation against eager, by the kernels of both kinds of adapter."""

from __future__ import annotations

import pytest
import torch
from forms import check_forms, run_other
from harness import lower
from torch.export import Dim
from torch.nn import functional as F

INF, NAN = float("inf"), float("nan")


def test_softmax() -> None:
    def softmaxes(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.softmax(-1),
            x.softmax(1),
            x.softmax(0) * 2,
            x.log_softmax(-1),
            x.log_softmax(1),
            x.transpose(1, 2).softmax(-1),
            x.half().softmax(-1),
            x.bfloat16().softmax(1),
            F.softmin(x, 2),
            (x * 1000).log_softmax(-1),
            s.softmax(0),
            x[:, :0].softmax(1),
        )

    check_forms(softmaxes, torch.randn(3, 7, 613), torch.randn(()))


def test_softmax_of_nan_and_infinity() -> None:
    x = torch.randn(6, 37)
    x[0, 3], x[1, 5], x[2, 7] = NAN, INF, -INF
    x[3] = -INF
    x[4] = 1e38
    x[5, 1:] = -INF

    def softmaxes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        safe = torch.ops.aten._safe_softmax(x, -1)
        return x.softmax(1), x.log_softmax(1), x.softmax(0), safe

    check_forms(softmaxes, x)


class Norms(torch.nn.Module):
    """Layer, rms, group, instance and batch norm with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [
                torch.nn.LayerNorm(613),
                torch.nn.LayerNorm((7, 613), elementwise_affine=False),
                torch.nn.LayerNorm(613, bias=False),
                torch.nn.RMSNorm(613),
                torch.nn.RMSNorm(613, eps=1e-5, elementwise_affine=False),
                torch.nn.BatchNorm1d(7),
            ]
        )
        self.planes = torch.nn.ModuleList(
            [
                torch.nn.GroupNorm(2, 6),
                torch.nn.GroupNorm(6, 6, affine=False),
                torch.nn.GroupNorm(1, 6),
                torch.nn.InstanceNorm2d(6),
                torch.nn.InstanceNorm2d(6, affine=True),
                torch.nn.BatchNorm2d(6),
                torch.nn.BatchNorm2d(6, affine=False),
                torch.nn.BatchNorm2d(6, track_running_stats=False),
            ]
        )
        for module in self.modules():
            for name in ("weight", "bias", "running_mean", "running_var"):
                value = getattr(module, name, None)
                if value is not None:
                    value.data = torch.rand_like(value) + 0.5

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> list[torch.Tensor]:
        mean, rstd = torch.native_layer_norm(x, (613,), None, None, 1e-5)[1:]
        given = image[0, :, 0, 0], image[0, :, 0, 1].abs()
        legit = torch.ops.aten._native_batch_norm_legit.default
        return [
            *(layer(x) for layer in self.layers),
            *(plane(image) for plane in self.planes),
            self.planes[5](image[:, :, :2, :2]),
            F.relu(self.layers[0](x) + x),
            F.silu(self.planes[0](image)),
            F.batch_norm(image[:, :, 0, 0], *given),
            legit(image, None, None, *given, False, 0.1, 1e-5)[0],
            F.layer_norm(x[:, :, ::2], (307,)),
            F.layer_norm(x[:0], (613,)),
            F.group_norm(image.permute(0, 1, 3, 2), 3),
            mean,
            rstd,
        ]


def test_norms() -> None:
    check_forms(Norms(), torch.randn(3, 7, 613), torch.randn(2, 6, 7, 9))


def test_half_precision() -> None:
    def norms(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.layer_norm(x, (37,), w, w),
            F.rms_norm(x, (37,), w),
            F.rms_norm(x * 1e-3, (37,), w, 1e-6),
            F.group_norm(x.view(1, 7, 37), 7),
        )

    check_forms(norms, torch.randn(7, 37).half(), torch.randn(37).half())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rms_norm_without_an_eps(dtype: torch.dtype) -> None:
    """torch adds float32's epsilon in every type: it computes in float32. Inputs are
    small, so that an epsilon of the type itself would be most of the sum."""

    def norms(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.rms_norm(x, (37,)),
            F.rms_norm(x, (37,), w),
            F.rms_norm(x.view(7, 3, 37), (3, 37)),
            F.rms_norm(x.view(7, 3, 37), (3, 37), w.expand(3, 37)),
            torch.ops.aten._fused_rms_norm(x, (37,), w, None)[0],
        )

    x = torch.randn(21, 37) * 1e-3
    check_forms(norms, x.to(dtype), torch.randn(37).to(dtype))


def test_large_means_keep_their_variance() -> None:
    x = torch.randn(5, 1013) + 3000

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return F.layer_norm(x, (1013,)), F.group_norm(x.view(1, 5, 1013), 5)

    program = lower(Model(), (x,))
    expected = F.layer_norm(x.double(), (1013,))
    for results in (program(x), run_other(program, x)):
        for result in results:
            # A mean of 3000 is known to 1.2e-4, and so are all differences from it.
            error = (result.double().view(5, 1013) - expected).abs().max()
            assert error < 4e-4, error


def test_many_rows() -> None:
    x = torch.randn(70_000, 64)
    check_forms(lambda x: (x.softmax(-1), F.layer_norm(x, (64,))), x)


def test_dynamic_sizes() -> None:
    def norms(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.softmax(-1),
            x.log_softmax(0),
            F.layer_norm(x, x.shape[1:]),
            F.group_norm(x.unsqueeze(0).unsqueeze(0), 1),
        )

    rows, columns = Dim("rows", min=1, max=37), Dim("columns", min=2, max=700)
    sizes = [(37, 700), (7, 113), (1, 2), (37, 700)]
    check_forms(
        norms,
        torch.randn(36, 699),
        dynamic_shapes=({0: rows, 1: columns},),
        others=[(torch.randn(size),) for size in sizes],
    )
