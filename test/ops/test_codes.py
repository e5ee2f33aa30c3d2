"""Products of quantized values: exact sums in every form, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from executorch.runtime import Runtime
from forms import adapter_with, run_other
from harness import Program, lower
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup
from wgsl_compilers import CAPS

from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.packed_weights import pack_codes, unpack_codes
from executorch_webgpu.plan.planner import Planner

QD = torch.ops.quantized_decomposed
AO = torch.ops.torchao
LIMITS = (-128, 127, torch.int8)


def codes(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape).to(torch.int8)


def ops(program: Program) -> list[str]:
    ((_, blob),) = program.delegates
    return [call.op for call in serialize.read(blob).calls]


def both(program: Program, *inputs: torch.Tensor) -> list[list[torch.Tensor]]:
    """By the kernels of this adapter, and by those of a GPU."""
    return [program(*inputs), run_other(program, *inputs)]


class Exact(nn.Module):
    """A linear layer and a convolution whose scales are 1: results are the sums."""

    def __init__(self) -> None:
        super().__init__()
        # Long runs of one sign, so that sums pass 2^24 on the way to small results.
        signs = torch.tensor([127, -127]).repeat_interleave(2048)
        near = torch.randint(0, 3, (9, 4096))
        self.register_buffer("w", (signs.sign() * (127 - near)).to(torch.int8))
        near = torch.randint(0, 3, (5, 256, 3, 3))
        signs = torch.ones(256, 1, 1)
        signs[128:] = -1
        self.register_buffer("f", (signs * (127 - near)).to(torch.int8))
        for n in (5, 9):
            self.register_buffer(f"ones{n}", torch.ones(n))
            self.register_buffer(f"none{n}", torch.zeros(n, dtype=torch.long))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = QD.dequantize_per_tensor(x, 1.0, -1, *LIMITS)
        y = QD.dequantize_per_tensor(y, 1.0, -1, *LIMITS)
        w = QD.dequantize_per_channel(self.w, self.ones9, self.none9, 0, *LIMITS)
        f = QD.dequantize_per_channel(self.f, self.ones5, self.none5, 0, *LIMITS)
        return nn.functional.linear(x, w), nn.functional.conv2d(y, f, padding=1)


@pytest.mark.parametrize("rows", [3, 6])
def test_sums_are_exact(rows: int) -> None:
    torch.manual_seed(0)
    model = Exact()
    x = torch.randint(122, 128, (rows, 4096)).to(torch.int8)
    y = torch.randint(122, 128, (1, 256, 5, 3)).to(torch.int8)
    program = lower(model, (x, y))
    assert sorted(ops(program)) == ["webgpu.conv_codes", "webgpu.linear_codes"]
    line = (x.long() + 1) @ model.w.long().t()
    conv = nn.functional.conv2d(y.double() + 1, model.f.double(), padding=1)
    for results in both(program, x, y):
        assert torch.equal(results[0].double(), line.double())
        assert torch.equal(results[1].double(), conv)
    # What sums of floats make of it.
    products = (x[:1].float() + 1) * model.w.float()
    added = np.add.accumulate(products.numpy(), axis=1, dtype=np.float32)[:, -1]
    assert float(line.abs().max()) < 2**24
    assert not np.array_equal(added, line[0].numpy())


class Layers(nn.Module):
    """Weights of 4 and 8 bits in groups, with and without zero points and biases."""

    # Rows, columns, group, codes, zero points: none, integers.
    CASES = (
        (8, 64, 32, 4, False),
        (37, 96, 8, 4, True),
        (5, 20, 20, 4, False),
        (7, 36, 12, 4, True),
        (261, 64, 64, 8, False),
        (13, 21, 7, 8, True),
        (3, 13, 13, 8, False),
    )

    def __init__(self) -> None:
        super().__init__()
        for i, (n, k, group, bits, zeros) in enumerate(self.CASES):
            half = 1 << (bits - 1)
            shape = (n, k // group)
            w = torch.randint(-half, half, (n, k)).to(torch.int8)
            z = torch.randint(-half, half, shape) * zeros
            self.register_buffer(f"w{i}", w)
            self.register_buffer(f"s{i}", torch.rand(shape) * 0.1 + 0.01)
            self.register_buffer(f"z{i}", z.to(torch.int8))
            self.register_buffer(f"b{i}", torch.randn(n))

    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = []
        for i, (x, (_, _, group, bits, _)) in enumerate(zip(xs, self.CASES)):
            half = 1 << (bits - 1)
            w, s, z, b = (getattr(self, f"{name}{i}") for name in "wszb")
            w = AO.dequantize_affine(w, [1, group], s, z, torch.int8, -half, half - 1)
            x = QD.dequantize_per_tensor(x, 0.05, 7 * i - 20, *LIMITS)
            made.append(nn.functional.linear(x, w, b if i % 2 else None))
        return tuple(made)

    def expected(self, *xs: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """In float64, and by how much the float operations may be away from it.

        The integer sums are exact. They are rounded to float, multiplied by a group's
        scale (and the sum of x by an offset, which is rounded itself), added up, scaled
        and added to a bias: at most groups + 6 roundings of at most the sum of sizes.
        """
        found = []
        for i, (x, (_, k, group, _, _)) in enumerate(zip(xs, self.CASES)):
            w, s, z, b = (getattr(self, f"{name}{i}").double() for name in "wszb")
            x = x.double() - (7 * i - 20)
            bias = b if i % 2 else b * 0
            split = x.reshape(len(x), 1, -1, group)
            plain = (split * w.reshape(1, len(w), -1, group)).sum(-1)
            shift = split.sum(-1) * z
            size = ((plain.abs() + (split.sum(-1) * (z.abs() + 16)).abs()) * s).sum(-1)
            value = ((plain - shift) * s).sum(-1) * 0.05 + bias
            steps = (k // group + 6) * 2.0**-24
            found.append((value, (size * 0.05 + bias.abs()) * steps))
        return found


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_only_the_last_few_operations_round(rows: int) -> None:
    torch.manual_seed(0)
    model = Layers()
    inputs = [codes(rows, k) for _, k, _, _, _ in Layers.CASES]
    program = lower(model, inputs)
    assert ops(program) == ["webgpu.linear_codes"] * len(inputs)
    wanted = model.expected(*inputs)
    # This adapter's own kernels may be those of floats.
    for result, (value, limit) in zip(run_other(program, *inputs), wanted, strict=True):
        assert bool(((result.double() - value).abs() <= limit).all())
    for result, (value, _) in zip(program(*inputs), wanted, strict=True):
        torch.testing.assert_close(result.double(), value, rtol=1e-5, atol=1e-4)


CONVOLVE = {3: nn.functional.conv1d, 4: nn.functional.conv2d}


def column(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One value for every channel of x."""
    return values.reshape(-1, *[1] * (x.dim() - 2))


class Filters(nn.Module):
    """Padding, strides, dilation and groups; channels that are no multiple of 4."""

    # Filters, channels, kernel, stride, padding, dilation, groups.
    CASES: tuple[tuple[Any, ...], ...] = (
        (9, 6, (3, 3), (2, 1), (1, 1), (1, 1), 1),
        (8, 8, (1, 1), (1, 1), (0, 0), (1, 1), 1),
        (6, 10, (2, 3), (1, 2), (1, 2), (2, 1), 2),
        (5, 7, (4,), (2,), (3,), (1,), 1),
    )

    def __init__(self) -> None:
        super().__init__()
        for i, (f, c, kernel, *_, groups) in enumerate(self.CASES):
            self.register_buffer(f"w{i}", codes(f, c // groups, *kernel))
            self.register_buffer(f"s{i}", torch.rand(f) * 0.01 + 0.001)
            self.register_buffer(f"z{i}", torch.zeros(f, dtype=torch.long))
            self.register_buffer(f"b{i}", torch.randn(f))

    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = []
        for i, (x, (*_, stride, padding, dilation, groups)) in enumerate(
            zip(xs, self.CASES)
        ):
            w, s, z, b = (getattr(self, f"{name}{i}") for name in "wszb")
            if i == 1:  # one scale for all filters
                w = QD.dequantize_per_tensor(w, 0.02, 0, *LIMITS)
            else:
                w = QD.dequantize_per_channel(w, s, z, 0, *LIMITS)
            x = QD.dequantize_per_tensor(x, 0.05, 7 * i - 20, *LIMITS)
            bias = b if i % 2 else None
            y = CONVOLVE[x.dim()](x, w, bias, stride, padding, dilation, groups)
            made.append(torch.relu(y))
        return tuple(made)

    def expected(self, *xs: torch.Tensor) -> list[torch.Tensor]:
        made = []
        for i, (x, (*_, stride, padding, dilation, groups)) in enumerate(
            zip(xs, self.CASES)
        ):
            w, s, b = (getattr(self, f"{name}{i}").double() for name in "wsb")
            s = s * 0 + 0.02 if i == 1 else s
            x = x.double() - (7 * i - 20)
            y = CONVOLVE[x.dim()](x, w, None, stride, padding, dilation, groups)
            y = y * column(s * 0.05, x) + column(b * (i % 2), x)
            made.append(torch.relu(y))
        return made


def test_convolutions_of_codes() -> None:
    torch.manual_seed(0)
    model = Filters()
    inputs = [codes(2, c, *[7, 5][: len(k)]) for _, c, k, *_ in Filters.CASES]
    program = lower(model, inputs)
    assert ops(program) == ["webgpu.conv_codes"] * len(inputs)
    for results in both(program, *inputs):
        for result, value in zip(results, model.expected(*inputs), strict=True):
            # The sum is exact; scales, their product, its, and the bias are rounded.
            limit = (float(value.abs().max()) + 4) * 6 * 2.0**-24
            assert float((result.double() - value).abs().max()) <= limit


class Gate(nn.Module):
    """Three layers that read one input, two of which cannot be merged."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 48, bias=False)
        self.gate = nn.Linear(64, 48, bias=False)
        self.down = nn.Linear(64, 12)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return nn.functional.silu(self.gate(x)) * self.up(x), self.down(x)


def gate() -> nn.Module:
    torch.manual_seed(0)
    model = Gate().eval()
    quantize_(model, Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)))
    return model


@pytest.mark.parametrize("rows", [1, 5])
def test_an_input_is_rounded_once(rows: int) -> None:
    model, x = gate(), torch.randn(rows, 64)
    program = lower(model, (x,))
    assert ops(program) == ["webgpu.linear_rounded"] * 3
    ((_, blob),) = program.delegates
    for caps in CAPS.values():
        plan = Planner(serialize.read(blob), caps).upper_bound()
        kernels = [plan.pipelines[step.pipeline].label for step in plan.dispatches]
        assert len(kernels) == 4, kernels
        assert sum("round" in kernel for kernel in kernels) == 1, kernels
    for results in both(program, x):
        for result, wanted in zip(results, model(x), strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_cpu", [True, False])
def test_weights_in_parts(is_cpu: bool) -> None:
    """Rows of words that no binding holds at once, each part with its own sums."""
    torch.manual_seed(0)
    model = nn.Linear(64, 300).eval()
    quantize_(model, Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)))
    x = torch.randn(5, 64)
    program = lower(model, (x,))
    with adapter_with(max_binding=7000, is_cpu=is_cpu):
        method = Runtime.get().load_program(program.buffer).load_method("forward")
        assert method is not None
        (result,) = method.execute([x])
    torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-4)


def test_what_is_not_finite_stays_in_its_row() -> None:
    model, x = gate(), torch.randn(5, 64)
    program = lower(model, (x,))
    bad = x.clone()
    bad[1, 3], bad[3, 60] = float("nan"), float("inf")
    for results in both(program, bad):
        wanted = model(bad)[1]
        assert bool(wanted.isnan()[[1, 3]].all())
        torch.testing.assert_close(
            results[1], wanted, rtol=1e-4, atol=1e-4, equal_nan=True
        )


def test_unpacking_gives_the_stored_codes() -> None:
    generator = torch.Generator().manual_seed(0)
    for bits, rows, depth, group in ((4, 7, 24, 12), (8, 5, 21, 7), (4, 4, 64, 32)):
        low = -(1 << (bits - 1))
        given = torch.randint(low, -low, (rows, depth), generator=generator).numpy()
        found = unpack_codes(pack_codes(given, bits, group), bits, group)
        stored = given - low if bits == 4 else given
        assert (found.transpose(2, 0, 1)[:rows].reshape(rows, depth) == stored).all()
