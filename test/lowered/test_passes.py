"""Each pass by the dispatches that it leaves; results are compared as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from harness import Program, check_op, compare, lower

from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.plan.planner import Planner

Formula: TypeAlias = Callable[[torch.Tensor], Any]


def gpu_plan(program: Program) -> Plan:
    graph = serialize.read(program.delegates[0][1])
    return Planner(graph, AOT_CAPS).upper_bound()


def dispatches(program: Program) -> list[str]:
    return [step.label for step in gpu_plan(program).dispatches]


def test_a_chain_of_formulas_is_one_dispatch():
    program = check_op(
        lambda x, y: torch.where(torch.relu(x * 2 + y) > 1, x.exp() * x, -y.abs()),
        torch.randn(7, 5),
        torch.randn(7, 5),
    )
    assert dispatches(program) == ["webgpu.pointwise"]


def test_a_long_chain_is_a_few_dispatches():
    def forward(x):
        for _ in range(80):
            x = torch.sin(x) * 1.01
        return x

    program = check_op(forward, torch.randn(7, 5))
    # Of 160 steps, 64 at most in each.
    assert dispatches(program) == ["webgpu.pointwise"] * 3


def test_a_value_that_is_read_twice_is_computed_once():
    layer = torch.nn.Linear(5, 5)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).exp() + self.layer(x).exp()

    program = check_op(Model(), torch.randn(7, 5))
    assert dispatches(program) == ["aten.linear.default"]
    program = check_op(lambda x: (x.exp(), x.exp().sum(1)), torch.randn(7, 5))
    assert dispatches(program) == ["aten.exp.default", "aten.sum.dim_IntList"]
    # Equal results stay two outputs of the program.
    program = check_op(lambda x: (x.cumsum(0), x.cumsum(0)), torch.randn(7, 5))
    assert dispatches(program) == ["aten.cumsum.default"]


def test_values_that_differ_in_an_argument_are_two():
    program = check_op(
        lambda x: (x.sum(0), x.sum(1), x.to(torch.int32) + 1, x.to(torch.int32) + 1.0),
        torch.randn(5, 5),
    )
    assert len(dispatches(program)) == 4


def test_sharing_an_elementwise_value_costs_no_launch():
    program = check_op(
        lambda x: ((x * 2).sin().sum(0), (x * 2).cos().sum(1)), torch.randn(7, 5)
    )
    assert len(dispatches(program)) == 2


def test_a_state_is_read_anew_after_it_has_changed():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.arange(5.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = self.state.cumsum(0)
            self.state.add_(x)
            return before - 2 * self.state.cumsum(0)

    model = Model()
    program = lower(model, (torch.ones(5),))
    for _ in range(2):
        compare(program(torch.ones(5)), [model(torch.ones(5))])


def test_what_follows_a_kernel_is_done_as_it_stores():
    linear = torch.nn.Linear(7, 5)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gelu(self.linear(x)) * 0.5 + y

    program = check_op(Model(), torch.randn(3, 7), torch.randn(3, 5))
    assert len(dispatches(program)) == 1


class Chained(torch.nn.Module):
    """A layer, and formulas that read its result more than once."""

    def __init__(self, layer: torch.nn.Module, then: Formula) -> None:
        super().__init__()
        self.layer, self.then = layer, then

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.then(self.layer(x))


@pytest.mark.parametrize(
    "then",
    [
        lambda y: y * torch.sigmoid(y),
        lambda y: y * torch.nn.functional.relu6(y + 3) / 6,
        lambda y: 0.5 * y * (1 + torch.tanh(0.79788 * (y + 0.044715 * y.pow(3)))),
        lambda y: torch.where(y > 0, y, y * 0.25) + y,
        torch.nn.PReLU(8),
    ],
    ids=["silu", "hardswish", "gelu", "leaky", "prelu"],
)
def test_formulas_that_read_a_result_twice_are_done_as_it_is_stored(then: Formula):
    program = check_op(Chained(torch.nn.Linear(7, 8), then), torch.randn(3, 7))
    assert dispatches(program) == ["aten.linear.default"]
    program = check_op(Chained(torch.nn.Conv2d(3, 8, 3), then), torch.randn(1, 3, 7, 7))
    assert dispatches(program) == ["aten.convolution.default"]


def test_a_result_that_is_read_elsewhere_too_is_stored():
    then = lambda y: (y * torch.sigmoid(y), y.sum(0))  # noqa: E731
    program = check_op(Chained(torch.nn.Linear(7, 8), then), torch.randn(3, 7))
    assert len(dispatches(program)) == 3


VIEWS: dict[str, tuple[torch.nn.Module, tuple[int, ...], Formula]] = {
    "reshape": (torch.nn.Linear(7, 8), (6, 7), lambda y: y.view(2, 3, 8).relu()),
    "rows": (
        torch.nn.Linear(7, 8),
        (6, 7),
        lambda y: y.view(2, 3, 8) * torch.arange(8.0) + torch.ones(1, 1, 1, 1)[0],
    ),
    "twice": (
        torch.nn.Conv2d(3, 8, 2),
        (2, 3, 5, 5),
        lambda y: y.flatten(2).transpose(1, 2) + torch.arange(128.0).view(1, 16, 8),
    ),
    "permute": (
        torch.nn.Conv2d(3, 8, 2),
        (2, 3, 5, 5),
        lambda y: (y.permute(2, 0, 3, 1) * torch.arange(8.0) - 1).tanh(),
    ),
    "squeeze": (
        torch.nn.Conv2d(3, 8, (1, 5)),
        (1, 3, 4, 5),
        lambda y: y.squeeze(-1) * torch.arange(8.0).view(8, 1),
    ),
    "unsqueeze": (
        torch.nn.Linear(7, 8),
        (6, 7),
        lambda y: y.unsqueeze(1) - torch.arange(6.0).view(6, 1, 1),
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_does_not_part_a_kernel_from_a_formula(name: str):
    layer, shape, then = VIEWS[name]
    program = check_op(Chained(layer, lambda x: then(x).sum(0)), torch.randn(shape))
    labels = dispatches(program)
    assert "webgpu.pointwise" not in labels
    assert len(labels) == 2


class Residual(torch.nn.Module):
    """What a layer adds is behind a view."""

    def __init__(self, step: int = 1) -> None:
        super().__init__()
        self.layer, self.step = torch.nn.Linear(8, 8), step

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = self.layer(x.reshape(-1, 8))
        return (rows.view(x.shape) + y[..., :: self.step]).exp()


def test_what_is_added_behind_a_view_is_fused_for_every_size():
    length = torch.export.Dim("length", min=1, max=9)
    inputs = [(torch.randn(2, n, 8), torch.randn(2, n, 8)) for n in (5, 9, 1)]
    program = check_op(
        Residual(),
        *inputs[0],
        dynamic_shapes=({1: length}, {1: length}),
        others=inputs[1:],
    )
    assert dispatches(program) == ["aten.linear.default"]


def test_a_view_stays_where_moving_it_would_be_a_copy():
    inputs = torch.randn(2, 5, 8), torch.randn(2, 5, 16)
    program = check_op(Residual(step=2), *inputs)
    assert dispatches(program) == ["aten.linear.default", "webgpu.pointwise"]


def test_a_broadcast_result_is_not_recomputed_for_every_element():
    program = check_op(lambda x, y: x.exp() + y, torch.randn(5), torch.randn(7, 5))
    assert len(dispatches(program)) == 2


def test_no_kernel_is_given_more_buffers_than_a_browser_has():
    tensors = [torch.randn(3, 5) for _ in range(12)]
    program = check_op(lambda *x: sum(a * (i + 2) for i, a in enumerate(x)), *tensors)
    plan = gpu_plan(program)
    assert max(len(p.access) - 1 for p in plan.pipelines) <= 8
    assert len(plan.dispatches) <= 3


def test_constants_are_folded_and_copies_dropped():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(5.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.clone() + (self.table * 2).exp()).clone()

    program = check_op(Model(), torch.randn(3, 5))
    assert len(dispatches(program)) == 1


def test_what_is_made_from_nothing_is_computed_at_export():
    def masked(x: torch.Tensor) -> torch.Tensor:
        mask = torch.full((128, 128), -1e9).triu(1)
        places = torch.arange(128)
        far = (places[:, None] - places[None, :]).abs() > 64
        return (x + mask).masked_fill(far, 0.0).sum(1)

    program = check_op(masked, torch.randn(128, 128))
    assert dispatches(program) == ["aten.sum.dim_IntList"]


def test_one_number_repeated_is_not_stored():
    fill = lambda x: (x + torch.full((256, 256), 2.0)).sum(1)  # noqa: E731
    program = check_op(fill, torch.randn(256, 256))
    assert len(dispatches(program)) == 1
    assert len(program.buffer) < 256 * 256


def test_shape_ops_cost_nothing():
    program = check_op(
        lambda x: x.permute(1, 0).unsqueeze(0).expand(4, 5, 3)[:, 1:4] + 1,
        torch.randn(3, 5),
    )
    assert len(dispatches(program)) == 1


class Projections(torch.nn.Module):
    """Three layers on one input, as in attention."""

    def __init__(self, biases: str, size: int) -> None:
        super().__init__()
        self.size = size
        self.q, self.k, self.v = (
            torch.nn.Linear(24, heads * size, bias=name in biases)
            for name, heads in (("q", 2), ("k", 1), ("v", 1))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        q = q.unflatten(-1, (2, self.size)).transpose(1, 2)
        k = k.unflatten(-1, (1, self.size)).transpose(1, 2).expand(-1, 2, -1, -1)
        v = v.unflatten(-1, (1, self.size)).transpose(1, 2).expand(-1, 2, -1, -1)
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return a.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("biases", "size"), [("", 16), ("qkv", 16), ("qv", 16), ("qkv", 15)]
)
def test_layers_of_one_input_are_one_product(biases: str, size: int):
    length = torch.export.Dim("length", min=1, max=9)
    program = check_op(
        Projections(biases, size),
        torch.randn(2, 5, 24),
        dynamic_shapes=({1: length},),
        others=[(torch.randn(2, n, 24),) for n in (9, 1)],
    )
    names = dispatches(program)
    # No copy follows the attention: its heads lie side by side already.
    assert names.count("aten.linear.default") == 1
    assert set(names[1:]) == {"webgpu.attention_by_token"}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("batch_first", [False, True])
def test_an_encoder_layer_copies_nothing(batch: int, batch_first: bool):
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=batch_first)
    shape = (batch, 5, 32) if batch_first else (5, batch, 32)
    program = check_op(layer, torch.randn(shape), rtol=1e-4, atol=1e-5)
    names = dispatches(program)
    attention = ["aten.linear.default", "webgpu.attention_by_token"]
    attention += ["aten.linear.default"]
    norm = ["aten.layer_norm.default"]
    if batch > 1 and not batch_first:
        norm *= 2  # attention has its tokens in batches, the layer batches in tokens
    feed_forward = ["aten.linear.default"] * 2 + ["aten.layer_norm.default"]
    assert names == [*attention, *norm, *feed_forward]


def test_attention_over_another_sequence_copies_nothing():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + self.attention(x, y, y, need_weights=False)[0]

    length = torch.export.Dim("length", min=1, max=9)
    inputs = [(torch.randn(2, 5, 32), torch.randn(2, n, 32)) for n in (7, 9, 1)]
    program = check_op(
        Model(),
        *inputs[0],
        dynamic_shapes=({}, {1: length}),
        others=inputs[1:],
        rtol=1e-4,
        atol=1e-5,
    )
    names = dispatches(program)
    assert names.count("aten.linear.default") == 3
    assert names.count("webgpu.attention_by_token") == 1
    assert len(names) == 4


def test_rows_are_not_reordered_after_a_layer_where_that_is_more_copies():
    layer = torch.nn.Linear(16, 48)

    class Model(torch.nn.Module):
        """Attention in windows of an image, as in Swin."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.view(2, 2, 4, 2, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 16)
            y = self.layer(x).view(8, 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
            a = torch.nn.functional.scaled_dot_product_attention(y[0], y[1], y[2])
            return a.transpose(1, 2).flatten(2)

    program = check_op(Model(), torch.randn(2, 8, 8, 16), rtol=1e-4, atol=1e-5)
    # One copy of the windows before the layer, none of its results.
    assert len(dispatches(program)) == 3


def test_layers_that_cannot_be_one_stay_apart():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tied = torch.nn.Linear(24, 16)
            self.wide = torch.nn.Linear(24, 16)

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            results = (
                self.tied(x),
                self.tied(x + 1),
                self.wide(x).relu(),
            )
            return [y.transpose(0, 1).flatten(1) for y in results]

    program = check_op(Model(), torch.randn(3, 2, 24))
    assert dispatches(program).count("aten.linear.default") == 3


def test_a_root_mean_square_written_out_is_one_dispatch():
    weight = torch.randn(24)

    def norms(x: torch.Tensor) -> list[torch.Tensor]:
        means = [x.square(), x * x, x.pow(2)]
        roots = [torch.rsqrt(m.mean(-1, keepdim=True) + 1e-6) for m in means]
        return [x * root * weight for root in roots]

    program = check_op(norms, torch.randn(3, 24))
    assert dispatches(program) == ["webgpu.rms_norm"] * 3


def test_a_root_mean_square_of_halves_is_computed_in_float32_and_one_dispatch():
    weight = torch.randn(24).half()

    def norm(x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * y.to(x.dtype)

    # The squares of these are infinite as halves.
    program = check_op(norm, torch.randn(3, 24).half() * 1000)
    assert dispatches(program) == ["webgpu.rms_norm"]


def test_a_layer_norm_written_out_is_one_dispatch():
    weight, bias = torch.randn(24), torch.randn(24)

    def norms(x: torch.Tensor) -> list[torch.Tensor]:
        mean = x.mean(-1, keepdim=True)
        squares = [(x - mean).pow(2), (x - mean) * (x - mean), (x - mean).square()]
        variances = [square.mean(-1, keepdim=True) for square in squares]
        variances.append(x.var(-1, keepdim=True, unbiased=False))
        results = [(x - mean) * torch.rsqrt(v + 1e-5) for v in variances]
        results.append((x - mean) / torch.sqrt(variances[0] + 2e-5) * weight + bias)
        results.append(weight * (x - mean) * torch.rsqrt(variances[3] + 3e-5) + bias)
        return results

    program = check_op(norms, torch.randn(3, 24), rtol=1e-4, atol=1e-5)
    assert dispatches(program) == ["aten.layer_norm.default"] * 6


def test_what_is_nearly_a_layer_norm_is_left_alone():
    def others(x: torch.Tensor) -> list[torch.Tensor]:
        mean, first = x.mean(-1, keepdim=True), x.mean(0, keepdim=True)
        corrected = x.var(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, unbiased=False)
        return [
            (x - mean) * torch.rsqrt(corrected + 1e-5),
            (x - first) * torch.rsqrt(variance + 1e-5),
            (x + 1 - mean) * torch.rsqrt(variance + 1e-5),
            (x - mean) * torch.rsqrt((x - mean).pow(3).mean(-1, keepdim=True) + 9),
        ]

    program = check_op(others, torch.randn(5, 5), rtol=1e-4, atol=1e-5)
    assert "aten.layer_norm.default" not in dispatches(program)


@pytest.mark.parametrize("dim", [-1, 1])
def test_a_softmax_written_out_is_one_dispatch(dim: int):
    def softmax(x: torch.Tensor) -> torch.Tensor:
        e = (x - x.amax(dim, keepdim=True)).exp()
        return e / e.sum(dim, keepdim=True) * 2

    x = torch.randn(3, 7, 5) * 100
    x[0, 0, 0] = float("-inf")
    program = check_op(softmax, x)
    assert dispatches(program) == ["aten._softmax.default"]
