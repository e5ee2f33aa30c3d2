"""Integer weights that take more memory on the GPU are named, and only those."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from harness import check_op, lower
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

from executorch_webgpu import ir
from executorch_webgpu.export.widened_weights import integer_weights, widened
from executorch_webgpu.ir.dtypes import DType

SIDE = 256


class Weight(torch.nn.Module):
    """A matrix of codes that no kernel takes packed, used in one of several ways."""

    def __init__(self, way: str, side: int = SIDE) -> None:
        super().__init__()
        low, dtype = (0, torch.uint8) if way == "nibbles" else (-128, torch.int8)
        codes = torch.randint(low, low + 256, (side, side)).to(dtype)
        self.register_buffer("codes", codes)
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.way:
            case "product":
                return x * self.codes.float()
            case "turned":
                return self.codes.t().float() @ x
        halves = torch.stack([self.codes & 15, self.codes >> 4], -1)
        return torch.nn.functional.linear(x, halves.flatten(1).float()[:, :SIDE])


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    """What the package warns of while a model is lowered."""

    def run(model: torch.nn.Module, *inputs: torch.Tensor) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "executorch_webgpu"):
            program = check_op(model, *inputs, rtol=1e-3, atol=2e-3)
        said = [r.getMessage() for r in caplog.records if r.name == "executorch_webgpu"]
        # The report has a line for each weight, the warning one for all.
        assert bool(said) == bool(program.report.widened)
        for line in program.report.widened:
            assert line in str(program.report).splitlines()
        return said

    return run


@pytest.mark.parametrize(
    ("way", "wanted"),
    [
        (
            "product",
            "b_codes: int8 weight is held as int32 on the GPU, 0.3 MB instead of"
            " 0.1 MB: aten.mul.Tensor cannot read it packed",
        ),
        (
            "turned",
            "b_codes: int8 weight is held as int32 on the GPU, 0.3 MB instead of"
            " 0.1 MB: aten.matmul.default cannot read it packed",
        ),
        (
            "nibbles",
            "b_codes: uint8 weight is held as int32 on the GPU, 0.5 MB instead of"
            " 0.1 MB: aten.linear.default cannot read it packed",
        ),
    ],
)
def test_a_weight_that_is_widened_is_named(
    warnings: Any, way: str, wanted: str
) -> None:
    assert warnings(Weight(way), torch.randn(SIDE, SIDE)) == [wanted]


@pytest.mark.parametrize(
    ("dtype", "size"), [(DType.FLOAT32, 4), (DType.BFLOAT16, 4), (DType.FLOAT16, 2)]
)
def test_a_weight_that_a_pass_stores_as_floats(dtype: DType, size: int) -> None:
    graph, shape = ir.Graph(), (SIDE, SIDE)
    codes = graph.add(ir.Value("codes", DType.INT8, shape, shape, data_key="codes"))
    wide, x, y = (graph.add(ir.Value(n, dtype, shape, shape)) for n in "wxy")
    cast = ir.Call("aten._to_copy.default", [ir.Ref(codes), dtype], [wide])
    multiply = ir.Call("aten.mul.Tensor", [ir.Ref(x), ir.Ref(wide)], [y])
    graph.calls, graph.inputs, graph.outputs = [cast, multiply], [x], [y]
    weights = integer_weights(graph)
    graph.values[codes].data_key, graph.values[wide].data_key = "", "wide"
    graph.calls = [multiply]
    (found,) = widened(weights, graph)
    assert (found.weight.size, found.size) == (SIDE * SIDE, SIDE * SIDE * size)
    assert found.storage.size == size
    assert found.weight.readers == ("aten.mul.Tensor",)


def test_a_small_weight_is_not_worth_a_word(warnings: Any) -> None:
    side = SIDE - 1
    assert warnings(Weight("product", side), torch.randn(side, side)) == []


def test_several_weights_are_one_line(warnings: Any) -> None:
    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(
                Weight("product", side) for side in (SIDE, 2 * SIDE, SIDE)
            )

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [layer(x) for layer in self.layers]

    (line,) = warnings(Several(), torch.randn(1, 1))
    assert line.startswith("b_layers_1_codes: int8 weight is held as int32 on the GPU")
    assert "1.0 MB instead of 0.3 MB" in line
    assert line.endswith("; so are 2 more: 0.5 MB instead of 0.1 MB")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "config",
    [
        Int8WeightOnlyConfig(),
        IntxWeightOnlyConfig(torch.int8, PerAxis(0)),
        IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
        Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)),
        Int8DynamicActivationIntxWeightConfig(torch.int8, PerAxis(0)),
    ],
    ids=["int8", "int8 rows", "int4", "8da4w", "8da8w"],
)
def test_recipes_keep_weights_packed(
    caplog: pytest.LogCaptureFixture, config: Any, dtype: torch.dtype
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE, dtype=dtype)).eval()
    quantize_(model, config)
    with caplog.at_level(logging.WARNING, "executorch_webgpu"):
        program = lower(model, (torch.randn(3, SIDE, dtype=dtype),))
    assert not caplog.records
    assert len(program.buffer) < SIDE * SIDE + 32_000


def test_exact_products_of_integers_widen(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE)).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    with caplog.at_level(logging.WARNING, "executorch_webgpu"):
        lower(model, (torch.randn(20, SIDE),))
    (record,) = caplog.records
    assert record.getMessage().endswith(
        ": int8 weight is held as int32 on the GPU, 0.3 MB instead of 0.1 MB:"
        " aten._int_mm.default cannot read it packed"
    )


def test_a_table_stays_packed(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(4 * SIDE, SIDE)).eval()
    config = IntxWeightOnlyConfig(torch.int4, PerGroup(32))
    quantize_(model, config, lambda module, _: isinstance(module, torch.nn.Embedding))
    with caplog.at_level(logging.WARNING, "executorch_webgpu"):
        program = lower(model, (torch.randint(0, SIDE, (7,)),))
    assert not caplog.records
    codes, scales = 4 * SIDE * SIDE // 2, 4 * SIDE * SIDE // 32 * 4
    assert codes + scales < len(program.buffer) < codes + scales + 8_000
