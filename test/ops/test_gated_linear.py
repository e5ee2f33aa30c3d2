"""Gate and up projections: one dispatch, in every form, equal to eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import torch
from executorch.runtime import Runtime
from forms import adapter_with, check_forms
from harness import Program, check_op, compare
from torch import nn
from torch.nn import functional as F
from torchao.quantization import IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_primitives import MappingType

from executorch_webgpu.export.passes.fusion.merge_gated import alternate
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner

Combine: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

FLOAT, PACKED = "webgpu.gated_linear", "webgpu.gated_linear_packed"
LENGTH = torch.export.Dim("length", min=1, max=70)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


class Gated(nn.Module):
    def __init__(
        self, depth: int, rows: int, biases: str = "", combine: Combine = swiglu
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(depth, rows, bias="g" in biases)
        self.up = nn.Linear(depth, rows, bias="u" in biases)
        self.combine = combine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.combine(self.gate(x), self.up(x))


def dispatches(program: Program) -> list[str]:
    """What is launched, on a GPU and on a CPU adapter, whatever the shape."""
    graph = serialize.read(program.delegates[0][1])
    found = []
    for is_cpu in (False, True):
        planner = Planner(graph, replace(AOT_CAPS, is_cpu=is_cpu))
        for plan in (planner.upper_bound(), planner.lower_bound()):
            found.append([step.label for step in plan.dispatches])
    assert all(labels == found[0] for labels in found), found
    return found[0]


def check_all(model: nn.Module, cases: Sequence[torch.Tensor], **options: Any) -> None:
    """On GPUs, on CPU adapters, and on those whose lanes share no loads."""
    others = [(x,) for x in cases[1:]]
    tolerances = {name: options[name] for name in ("rtol", "atol") if name in options}
    program = check_forms(model, cases[0], others=others, **options)
    names = dispatches(program)
    assert names in ([FLOAT], [PACKED]), names
    with adapter_with(is_cpu=True, subgroups=False):
        loaded = Runtime.get().load_program(program.buffer)
        method = loaded.load_method("forward")
        assert method is not None
    for x in cases:
        compare(method.execute([x]), [model(x).detach()], **tolerances)


@pytest.mark.parametrize(
    ("depth", "rows", "biases"),
    [(16, 12, ""), (7, 5, "g"), (64, 37, "gu"), (33, 1, "u"), (8, 70, "")],
)
def test_every_number_of_rows(depth: int, rows: int, biases: str) -> None:
    """The weights' rows fill no pair, no vector and no block; the input has 1 to 70."""
    torch.manual_seed(0)
    cases = [torch.randn(2, n, depth) for n in (9, 1, 2, 35)]
    cases += [torch.randn(1, n, depth) for n in (1, 3, 70)] if biases == "gu" else []
    batch = {0: torch.export.Dim("batch", min=1, max=2)} if biases == "gu" else {}
    check_all(
        Gated(depth, rows, biases),
        cases,
        dynamic_shapes=({**batch, 1: LENGTH},),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("bits", "depth", "rows", "group", "biases", "mapping"),
    [
        (4, 64, 37, 32, "gu", MappingType.SYMMETRIC),
        (4, 36, 5, 12, "g", MappingType.ASYMMETRIC),
        (4, 64, 150, 32, "", MappingType.ASYMMETRIC),  # two columns per invocation
        (8, 64, 70, 32, "u", MappingType.ASYMMETRIC),
        (8, 64, 1, 64, "", MappingType.SYMMETRIC),
    ],
)
def test_packed_weights(
    bits: int, depth: int, rows: int, group: int, biases: str, mapping: MappingType
) -> None:
    torch.manual_seed(0)
    model = Gated(depth, rows, biases)
    kind = torch.int4 if bits == 4 else torch.int8
    quantize_(model, IntxWeightOnlyConfig(kind, PerGroup(group), mapping))
    check_all(
        model,
        [torch.randn(n, depth) for n in (9, 1, 3, 4, 70)],
        dynamic_shapes=({0: LENGTH},),
        rtol=1e-4,
        atol=1e-4,
    )


COMBINATIONS: dict[str, Combine] = {
    "geglu": lambda gate, up: F.gelu(gate) * up,
    "tanh": lambda gate, up: up * F.gelu(gate, approximate="tanh"),
    "reglu": lambda gate, up: F.relu(gate) * up,
    "glu": lambda gate, up: up * torch.sigmoid(gate),
    "bilinear": lambda gate, up: gate * up,
    "written out": lambda gate, up: gate * torch.sigmoid(gate) * up,
    "clamped": lambda gate, up: gate.clamp(max=0.5) * (up.clamp(-0.5, 0.5) + 1),
    "residual": lambda gate, up: up + F.silu(gate) * up - gate,
    "compared": lambda gate, up: torch.where(gate > up, gate, 2 * up).exp(),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_whatever_the_two_make(name: str) -> None:
    torch.manual_seed(0)
    model = Gated(16, 12, "gu", COMBINATIONS[name])
    assert dispatches(check_op(model, torch.randn(3, 16), atol=1e-5)) == [FLOAT]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_halves(kind: torch.dtype) -> None:
    """Each step is rounded as if it were stored."""
    torch.manual_seed(0)
    cases = [torch.randn(n, 48).to(kind) for n in (9, 1)]
    check_all(Gated(48, 22, "gu").to(kind), cases, dynamic_shapes=({0: LENGTH},))


HALVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "glu": F.glu,
    "chunks": lambda both: swiglu(*both.chunk(2, -1)),
    "slices": lambda both: both[..., :7] * F.gelu(both[..., 7:]),
    "split": lambda both: torch.maximum(*both.split(7, -1)) - 1,
}


@pytest.mark.parametrize(
    ("name", "bits"), [*((name, 32) for name in HALVES), ("glu", 4)]
)
def test_halves_of_one_layer(name: str, bits: int) -> None:
    """Halves of 7 rows: the second does not begin with a packed column of 4."""
    torch.manual_seed(0)
    model = Chained(nn.Linear(32, 14), HALVES[name])
    if bits == 4:
        quantize_(model, IntxWeightOnlyConfig(torch.int4, PerGroup(32)))
    shapes = ({1: LENGTH},)
    cases = [torch.randn(2, n, 32) for n in (5, 1)]
    check_all(model, cases, dynamic_shapes=shapes, rtol=1e-4, atol=1e-5)


class Chained(nn.Module):
    def __init__(self, layer: nn.Module, then: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.then = layer, then

    def forward(self, x: torch.Tensor) -> Any:
        return self.then(self.layer(x))


PARTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "thirds": lambda y: y[..., :4] * y[..., 4:8] + y[..., 8:],
    "overlap": lambda y: y[..., :6] * y[..., 2:8],
    "every other": lambda y: y[..., ::2] * y[..., 1::2],
    "along rows": lambda y: y[:6] * y[6:],
    "one half": lambda y: y[..., :6].exp() + y[..., :6],
    "one is a result": lambda y: (F.glu(y), y[..., 6:]),
    "broadcast": lambda y: (torch.zeros(2, 1, 1) + y[..., :6]) * y[..., 6:],
}


@pytest.mark.parametrize("name", PARTS)
def test_other_parts_of_one_layer_stay_one(name: str) -> None:
    model = Chained(nn.Linear(8, 12), PARTS[name])
    program = check_op(model, torch.randn(12, 8), atol=1e-5)
    labels = dispatches(program)
    assert labels.count("aten.linear.default") == 1, labels


class Layer(nn.Module):
    """What follows in a model: another operand, and a layer of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.gated = Gated(16, 24)
        self.down = nn.Linear(24, 16)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.gated(x) * scale)


def test_what_follows_is_done_in_the_same_launch() -> None:
    program = check_op(Layer(), torch.randn(3, 16), torch.randn(24), atol=1e-5)
    assert dispatches(program) == [FLOAT, "aten.linear.default"]


class Apart(nn.Module):
    """Two layers of one input of which something else needs a part."""

    def __init__(self, needs: str) -> None:
        super().__init__()
        self.needs = needs
        self.gate, self.up = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        other = x + 1 if self.needs == "input" else x
        gate, up = self.gate(x), self.up(other)
        made = [F.silu(gate) * up]
        if self.needs == "gate":
            made.append(gate)
        if self.needs == "weight":
            made.append(self.up(gate))
        if self.needs == "product":
            made[0] = F.silu(gate) * up.sum(1, keepdim=True)
        return tuple(made)


@pytest.mark.parametrize("needs", ["input", "gate", "weight", "product"])
def test_layers_that_cannot_be_one_stay_apart(needs: str) -> None:
    program = check_forms(Apart(needs), torch.randn(3, 16), rtol=1e-4, atol=1e-5)
    assert FLOAT not in dispatches(program)


def test_rows_alternate_in_pairs() -> None:
    first, second = torch.arange(1, 4), torch.arange(-1, -4, -1)
    assert alternate(first, second).tolist() == [1, 2, -1, -2, 3, 0, -3, 0]
