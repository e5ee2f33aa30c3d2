"""Quantized linears, embeddings, quantize and dequantize, through the .pte."""

from __future__ import annotations

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
import pytest
import torch
from executorch.backends.vulkan.patterns.weight_packing_utils import (
    pack_4bit_weight_tensor,
)
from forms import check_forms, run_other
from harness import Program, check_op, lower
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

from executorch_webgpu import last_error
from executorch_webgpu.errors import Unsupported
from executorch_webgpu.ir import serialize
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.ops.quantized.packed_linear import linear_q4gsw
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.packed_weights import Layout, pack_codes, unpack_nibbles
from executorch_webgpu.plan.plan import Plan, Role
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.plan.recorder import Recorder

VK = torch.ops.et_vk
QD = torch.ops.quantized_decomposed
AO = torch.ops.torchao


class Q4(torch.nn.Module):
    """Several 4-bit linear layers at once, as (N, K, group)."""

    def __init__(self, *sizes: tuple[int, int, int]) -> None:
        super().__init__()
        self.sizes = sizes
        for i, (n, k, group) in enumerate(sizes):
            codes = torch.randint(-8, 8, (n, k), dtype=torch.int8)
            self.register_buffer(f"w{i}", pack_4bit_weight_tensor(codes))
            self.register_buffer(f"s{i}", torch.rand(k // group, n) * 0.1 + 0.01)
            self.register_buffer(f"b{i}", torch.randn(n))

    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = []
        for i, (x, (_, _, group)) in enumerate(zip(xs, self.sizes)):
            w, s, b = (getattr(self, f"{name}{i}") for name in "wsb")
            results.append(VK.linear_q4gsw(x, w, s, group, b if i % 2 else None))
        return tuple(results)


SIZES = (
    (8, 64, 32),
    (37, 64, 32),
    (5, 20, 20),
    (113, 96, 8),
    (7, 24, 4),
    (3, 36, 12),
    (1, 7, 7),
)


@pytest.mark.parametrize("rows", [1, 3, 13])
def test_linear_q4gsw(rows: int) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, rows, k) for _, k, _ in SIZES]
    check_op(Q4(*SIZES), *inputs, rtol=1e-4, atol=1e-4)


def test_group_must_divide() -> None:
    """Planned alone, because the eager op would not get that far."""
    g = Recorder(AOT_CAPS)
    x, w, s = (g.temp(shape, DType.FLOAT32) for shape in ((3, 48), (8, 24), (2, 8)))
    with pytest.raises(Unsupported, match="group size must divide 48, got 32"):
        linear_q4gsw(g, x, w, s, 32, None, out=g.output((3, 8), DType.FLOAT32))


def test_a_group_that_does_not_divide_is_refused_by_torchao() -> None:
    """Before there is anything to lower, with a message that names both numbers."""
    model = torch.nn.Sequential(torch.nn.Linear(48, 8))
    with pytest.raises(Exception, match=r"48.*32|32.*48"):
        quantize_(model, IntxWeightOnlyConfig(torch.int4, PerGroup(32)))


def test_scales_must_be_finite() -> None:
    class Nan(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.zeros(8, 32, dtype=torch.int8))
            self.register_buffer("s", torch.full((8, 1), float("nan")))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            w = AO.dequantize_affine(self.w, [1, 32], self.s, None, torch.int8, -8, 7)
            return torch.nn.functional.linear(x, w)

    with pytest.raises(Exception, match="b_w: scales of a weight must be finite"):
        lower(Nan(), (torch.randn(2, 32),))


def test_scales_of_custom_ops_must_be_finite() -> None:
    """They are read when the program is loaded."""
    model = Q4((8, 32, 32))
    model.s0[0, 3] = float("inf")
    with pytest.raises(RuntimeError):
        lower(model, (torch.randn(2, 32),))
    assert "scales of a weight must be finite" in (last_error() or "")
    model.s0[0, 3] = 0.5
    assert lower(model, (torch.randn(2, 32),))(torch.randn(2, 32))


class Tables(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(0, 256, (37, 48), dtype=torch.uint8))
        self.register_buffer("s", torch.rand(37, 3))
        self.register_buffer("fine", torch.rand(37, 12))
        self.register_buffer("one", torch.rand(37, 1))
        self.register_buffer("bytes", torch.randint(-128, 128, (37, 20)).to(torch.int8))
        self.register_buffer("row", torch.rand(37))
        self.register_buffer("w4", torch.randint(0, 127, (5, 32)).to(torch.int8))
        self.register_buffer("s4", torch.rand(5))

    def forward(
        self, i: torch.Tensor, j: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            VK.embedding_q4gsw(self.w, self.s, 32, i, False),
            VK.embedding_q4gsw(self.w, self.s, 32, j, True),
            VK.embedding_q4gsw(self.w, self.fine, 8, j[0], True),
            VK.embedding_q4gsw(self.w, self.one, 96, i, True),
            VK.linear_qcs4w(x, self.w4, self.s4),
        )


def test_embedding_q4gsw_and_linear_qcs4w() -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 37, (2, 7))
    small = torch.randint(0, 37, (3, 1), dtype=torch.int32)
    check_op(Tables(), ids, small, torch.randn(3, 64), atol=1e-4)


@pytest.mark.parametrize("bad", [37, -1, 10**6])
def test_an_id_outside_the_table_is_an_error(bad: int) -> None:
    program = lower(
        Tables(),
        (
            torch.zeros(1, 2, dtype=torch.long),
            torch.zeros(1, 1, dtype=torch.int32),
            torch.randn(1, 64),
        ),
    )
    good = torch.tensor([[3, 36]])
    rest = (torch.zeros(1, 1, dtype=torch.int32), torch.randn(1, 64))
    with pytest.raises(RuntimeError):
        program(torch.tensor([[0, bad]]), *rest)
    assert str(bad) in (last_error() or "")
    assert program(good, *rest)[0].shape == (1, 2, 96)


class Recipes(torch.nn.Module):
    """One layer for each way of torchao to quantize weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 64)
        self.int4 = torch.nn.Linear(64, 36)
        self.fine = torch.nn.Linear(64, 12, bias=False)
        self.rows = torch.nn.Linear(64, 40, bias=False)
        self.dynamic = torch.nn.Linear(64, 40, bias=False)
        self.int8 = torch.nn.Linear(64, 13)
        self.eight = torch.nn.Linear(64, 9)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.table(ids)
        return (
            x,
            self.int4(x),
            self.fine(x),
            self.rows(x),
            self.dynamic(x),
            self.int8(x),
            self.eight(x),
        )

    def quantized(self) -> Recipes:
        def only(*names: str):
            return lambda module, path: path in names

        int4 = torch.int4
        quantize_(self, IntxWeightOnlyConfig(int4, PerGroup(32)), only("table", "int4"))
        quantize_(self, IntxWeightOnlyConfig(int4, PerGroup(8)), only("fine"))
        quantize_(self, IntxWeightOnlyConfig(int4, PerAxis(0)), only("rows"))
        quantize_(self, IntxWeightOnlyConfig(torch.int8, PerAxis(0)), only("eight"))
        quantize_(self, Int8WeightOnlyConfig(), only("int8"))
        config = Int8DynamicActivationIntxWeightConfig(int4, PerGroup(32))
        quantize_(self, config, only("dynamic"))
        return self.eval()


def test_torchao_recipes() -> None:
    torch.manual_seed(0)
    model = Recipes().quantized()
    length = torch.export.Dim("length", min=1, max=13)
    others = [(torch.randint(0, 100, (2, n)),) for n in (13, 1, 13)]
    check_op(
        model,
        torch.randint(0, 100, (2, 7)),
        dynamic_shapes=({1: length},),
        others=others,
        rtol=1e-4,
        atol=1e-4,
    )


def gpu_plan(program: Program) -> Plan:
    return Planner(serialize.read(program.delegates[0][1]), AOT_CAPS).upper_bound()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_8_bit_weights_stay_packed(dtype: torch.dtype, bias: bool) -> None:
    """Int8WeightOnlyConfig converts codes, multiplies, and only then scales: the
    weight is 8 bits in the file and on the GPU nevertheless."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(256, 1024, bias=bias, dtype=dtype)
    model = torch.nn.Sequential(layer).eval()
    quantize_(model, Int8WeightOnlyConfig())
    codes = 256 * 1024
    # Each shape in every type, each with a bias or without.
    for shape in ((1, 256), (2, 3, 256)) if bias else ((37, 256), (256,)):
        program = check_forms(model, torch.randn(shape, dtype=dtype))
        assert codes < len(program.buffer) < codes + 24_000, shape
        plan = gpu_plan(program)
        held = sum(b.size for b in plan.buffers if b.role is Role.CONSTANT)
        assert codes < held < codes + 16_000, shape
        # The scales are a part of the weight, or are applied as sums are stored.
        labels = [step.label for step in plan.dispatches]
        assert labels == ["webgpu.linear_packed"], shape


def test_a_product_with_codes_that_is_scaled_otherwise() -> None:
    """What follows such a product becomes a part of it only if it is a row's scale."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            codes = torch.randint(-128, 128, (96, 64), dtype=torch.int8)
            self.register_buffer("q", codes)
            self.register_buffer("s", torch.rand(96))
            self.register_buffer("b", torch.randn(96))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            # Different inputs, so that each product is one of its own.
            xs = [x + k for k in range(9)]
            linear, s = torch.nn.functional.linear, self.s
            turned, wide = self.q.t().float(), self.q.float()
            twice = xs[0] @ turned
            rows = AO.dequantize_affine(self.q, [1, 64], s, None, torch.int8)
            return (
                twice * s,
                twice * 2.0,
                (xs[1] @ wide.t()) * y,
                (xs[2] @ turned) * s[:1],
                s[None] * (xs[3] @ turned),
                s[None, None] * (xs[4] @ turned),
                linear(xs[5], wide) * s,
                linear(xs[6], wide, self.b) * s,
                (xs[7] @ turned).square(),
                xs[8] @ rows.t(),
            )

    torch.manual_seed(0)
    program = check_forms(
        Scaled(), torch.randn(5, 64), torch.randn(5, 96), rtol=1e-4, atol=5e-3
    )
    plan = gpu_plan(program)
    words = {c.data_key for c in plan.constants if c.shape == (64 // 4, 96)}
    assert len(words) == 1
    labels = [step.label for step in plan.dispatches]
    assert labels.count("webgpu.linear_packed") == 9
    # Two of `twice`, and one whose result has a dimension more.
    assert labels.count("aten.mul.Tensor") == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_codes_of_tokens_are_those_of_torchao(dtype: torch.dtype) -> None:
    """Scales, zero points and codes, with torchao's roundings to the input's type."""

    def codes(x: torch.Tensor, mapping: str, wide: torch.dtype) -> list[torch.Tensor]:
        block = [1, x.shape[1]]
        scale, zero = AO.choose_qparams_affine(
            x, mapping, block, torch.int8, -128, 127, None, wide, torch.int32
        )
        quantized = AO.quantize_affine(x, block, scale, zero, torch.int8, -128, 127)
        return [scale, zero, quantized]

    class Rounding(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            made = []
            for mapping in ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"):
                for wide in (dtype, torch.float32):
                    made += codes(x, mapping, wide)
            return made

    torch.manual_seed(0)
    x = (torch.randn(64, 128) * torch.logspace(-2, 2, 64)[:, None]).to(dtype)
    program = lower(Rounding(), (x,))
    assert program.report.complete, program.report
    for results in (program(x), run_other(program, x)):
        for result, wanted in zip(results, Rounding()(x), strict=True):
            if result.dtype.is_floating_point:
                torch.testing.assert_close(result, wanted, rtol=1e-6, atol=0)
            else:
                gap = (result.int() - wanted.int()).abs()
                assert int(gap.max()) <= 1
                # A quotient may fall on the other side of a half, rarely.
                assert float((gap > 0).float().mean()) < 1e-3


def test_8_bit_activations_and_weights() -> None:
    """Int8DynamicActivationInt8WeightConfig, against torchao itself."""
    torch.manual_seed(0)
    for sizes, dtype in (
        ((64, 40), torch.float32),
        ((33, 17), torch.float32),
        ((64, 40), torch.float16),
    ):
        model = torch.nn.Sequential(torch.nn.Linear(*sizes, dtype=dtype)).eval()
        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        check_forms(model, torch.randn(20, sizes[0], dtype=dtype))


def test_int_mm_is_exact() -> None:
    class Product(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch._int_mm(a, b)

    b = torch.randint(-128, 128, (1037, 24), dtype=torch.int8)
    for value, dtype in ((-128, torch.int8), (255, torch.uint8)):
        a = torch.full((19, 1037), value, dtype=dtype)
        check_forms(Product(), a, b, rtol=0, atol=0)


def test_zero_points_are_honoured() -> None:
    class Asymmetric(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.randint(-8, 8, (12, 64)).to(torch.int8))
            self.register_buffer("s", torch.rand(12, 2))
            self.register_buffer("z", torch.randint(-8, 8, (12, 2)).to(torch.int8))
            self.register_buffer("f", torch.randn(12, 2) * 8)

        def forward(
            self, x: torch.Tensor, ids: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            results = []
            for zero in (self.z, self.f):
                w = AO.dequantize_affine(
                    self.w, [1, 32], self.s, zero, torch.int8, -8, 7
                )
                results.append(torch.nn.functional.linear(x, w))
                results.append(torch.nn.functional.embedding(ids, w))
            wide = AO.dequantize_affine(
                self.w, [1, 32], self.s, self.z, torch.int8, -128, 127
            )
            rows = QD.dequantize_per_channel(
                self.w, self.s[:, 0], self.z[:, 0], 0, -8, 7, torch.int8
            )
            results += [torch.nn.functional.linear(x, w) for w in (wide, rows)]
            return tuple(results)

    torch.manual_seed(0)
    check_op(Asymmetric(), torch.randn(5, 64), torch.tensor([0, 11, 3]), atol=2e-4)


def test_linear_dq8ca_q4gsw_rounds_its_input() -> None:
    """Against the input rounded by torchao: the op's eager body does not round."""

    class Dynamic(torch.nn.Module):
        def __init__(self, rounded: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            codes = torch.randint(-8, 8, (12, 64), dtype=torch.int8)
            self.register_buffer("w", pack_4bit_weight_tensor(codes))
            self.register_buffer("sums", codes.sum(1).int())
            self.register_buffer("s", torch.rand(2, 12))
            self.rounded = rounded

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            args = ([1, 64], torch.int8, -128, 127)
            block, dtype, low, high = args
            scale, zero = AO.choose_qparams_affine(
                x, "ASYMMETRIC", block, dtype, low, high, None, None, torch.int8
            )
            if self.rounded:
                q = AO.quantize_affine(x, block, scale, zero, dtype, low, high)
                x = AO.dequantize_affine(q, block, scale, zero, dtype, low, high)
                return VK.linear_q4gsw(x, self.w, self.s, 32)
            return VK.linear_dq8ca_q4gsw(x, scale, zero, self.w, self.sums, self.s, 32)

    x = torch.randn(7, 64)
    program = lower(Dynamic(False), (x,))
    assert "et_vk.linear_dq8ca_q4gsw.default" in program.report.delegated
    (result,) = program(x)
    expected = Dynamic(True)(x)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def test_quantize_and_dequantize() -> None:
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 3, -2])

    def ops(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        limits = (-128, 127, torch.int8)
        a = QD.quantize_per_tensor(x, 0.07, 3, *limits)
        b = QD.dequantize_per_tensor(a, 0.07, 3, *limits)
        c = QD.quantize_per_channel(x, scales, zeros, 1, *limits)
        d = QD.dequantize_per_channel(c, scales, zeros, 1, *limits)
        block = [1, 1, 40]
        s, z = AO.choose_qparams_affine(
            y, "ASYMMETRIC", block, torch.int8, -128, 127, None, None, torch.int8
        )
        e = AO.quantize_affine(y, block, s, z, torch.int8, -128, 127)
        f = AO.dequantize_affine(e, block, s, z, torch.int8, -128, 127)
        results = [a, b, c, d, s, z, e, f]
        for mapping in ("SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"):
            s, z = AO.choose_qparams_affine(
                y, mapping, [1, 1, 8], torch.int8, -8, 7, None, None, torch.int32
            )
            results += [s, z, AO.quantize_affine(y, [1, 1, 8], s, z, torch.int8, -8, 7)]
        s, z = scales[1:2], zeros[1:2]
        g = QD.quantize_per_tensor.tensor(x, s, z, *limits)
        results += [g, QD.dequantize_per_tensor.tensor(g, s, z, *limits)]
        s, z = results[4].unsqueeze(-1), results[5].int().unsqueeze(-1)
        h = QD.quantize_per_token(y, s, z, *limits)
        results += [h, QD.dequantize_per_token(h, s, z, *limits, torch.float32)]
        return tuple(results)

    torch.manual_seed(0)
    x = torch.randn(2, 3, 7) * 5
    x[0, 0, 0], x[0, 0, 1] = 1e9, -1e9
    check_op(ops, x, torch.randn(2, 5, 40))


def test_words_hold_every_code() -> None:
    """Unpacking what was packed, for groups that do and do not fill words."""
    generator = torch.Generator().manual_seed(0)
    for bits, rows, depth, group in ((4, 7, 24, 12), (8, 5, 21, 7), (4, 4, 64, 32)):
        low = -(1 << (bits - 1))
        codes = torch.randint(low, -low, (rows, depth), generator=generator).numpy()
        words = pack_codes(codes, bits, group).view("uint32")
        layout = Layout(rows, depth, bits, group)
        assert words.shape == layout.shape
        for row in range(rows):
            for k in range(depth):
                place = k % group
                word = words[k // group * layout.words + place // layout.per_word, row]
                inside = place % layout.per_word
                bit = inside % 4 * 8 + inside // 4 * bits
                code = int(word) >> bit & (1 << bits) - 1
                value = code - 8 if bits == 4 else code - (code > 127) * 256
                assert value == codes[row, k]


def test_nibble_order() -> None:
    data = torch.tensor([[0x1F]], dtype=torch.uint8).numpy()
    assert unpack_nibbles(data, True, 2).tolist() == [[7, -7]]
    assert unpack_nibbles(data, False, 2).tolist() == [[-7, 7]]


def test_scales_of_tokens_broadcast() -> None:
    x = torch.randint(-128, 128, (2, 3, 4), dtype=torch.int8)
    scales, zeros = torch.rand(3, 1), torch.randint(-9, 9, (3, 1))

    def run(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized_decomposed.dequantize_per_token(
            x, scales, zeros, -128, 127, torch.int8, torch.float32
        )

    check_op(run, x, scales, zeros)
