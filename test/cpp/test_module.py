"""Programs with plans in a C++ app over ExecuTorch's Module, beside eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import driver
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from executorch_webgpu import WebGPUPartitioner

INVALID_STATE, INVALID_ARGUMENT = 2, 18


class App(driver.App):
    """A process without Python, with a program."""

    def load(self, model: nn.Module, inputs: Sequence[Any], **options: Any) -> None:
        exported = torch.export.export(model.eval(), tuple(inputs), **options)
        lowered = to_edge_transform_and_lower(
            exported, partitioner=[WebGPUPartitioner(portable=True)]
        )
        (self.folder / "model.pte").write_bytes(lowered.to_executorch().buffer)
        assert self.ask("load model.pte") == "ok"

    def results(self, *inputs: torch.Tensor | int) -> list[Any]:
        outcome = self.call(inputs)
        assert not outcome.code, outcome.text
        return [result.value() for result in outcome.results]

    def error(self, *inputs: torch.Tensor | int) -> str:
        outcome = self.call(inputs)
        assert outcome.code
        return f"{outcome.code} {outcome.text}"


@pytest.fixture(scope="session")
def program() -> Path:
    return driver.module_driver()


@pytest.fixture
def start(program: Path, tmp_path: Path) -> Iterator[Callable[..., App]]:
    started: list[App] = []

    def start_one(**env: str) -> App:
        started.append(App(program, tmp_path, **env))
        return started[-1]

    yield start_one
    for each in started:
        each.close()


@pytest.fixture
def app(start: Callable[..., App]) -> App:
    return start()


def check(found: Sequence[Any], wanted: Any, **limits: float) -> None:
    wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        if isinstance(b, int):
            assert a == b
        else:
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b.detach(), **limits)


def test_a_convolutional_network(app: App) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    x = torch.randn(2, 3, 13, 11)
    app.load(model, [x])
    check(app.results(x), model(x), rtol=1e-4, atol=1e-5)


def test_dynamic_sizes(app: App) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    length = torch.export.Dim("length", min=2, max=40)
    app.load(layer, [torch.randn(1, 9, 16)], dynamic_shapes=({1: length},))
    for size in (40, 2, 1, 17, 33, 40):
        x = torch.randn(1, size, 16)
        check(app.results(x), layer(x), rtol=1e-4, atol=1e-5)
    assert app.error(torch.randn(1, 41, 16))


class Sum(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


def test_sizes_that_contradict_each_other(app: App) -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    app.load(Sum(), [a, b], dynamic_shapes=({0: rows}, {0: rows}))
    check(app.results(a, b), a + b)
    answer = app.error(a, torch.randn(5, 4))
    assert answer.startswith(f"{INVALID_ARGUMENT} execute of forward: input b")
    assert " (up to [9, 4]), got [5, 4]" in answer


class Counter(nn.Module):
    """A state, an index that may be bad, and results of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("table", torch.arange(12.0).reshape(3, 4))

    def forward(self, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.total += self.table[index].sum(0)
        return self.total * 1, index + 1, index > 0


def test_states_types_and_reports(app: App) -> None:
    model = Counter()
    index = torch.tensor([0, 2])
    app.load(model, [index])
    fresh = Counter()
    for _ in range(2):
        check(app.results(index), fresh(index))
    answer = app.error(torch.tensor([0, 3]))
    assert answer.startswith(f"{INVALID_ARGUMENT} execute of forward: ")
    assert "index must be in [0, 3), got 3" in answer
    check(app.results(index), fresh(index))
    answer = app.error(torch.tensor([0, 1 << 40]))
    assert "int64 values must fit int32, got 1099511627776 at 1" in answer
    assert app.ask("set reset_state bool 1") == "ok"
    check(app.results(index), Counter()(index))


def test_a_fork_cannot_use_the_gpu(app: App) -> None:
    model, x = nn.ReLU(), torch.randn(3)
    app.load(model, [x])
    check(app.results(x), model(x))
    (forked,) = app.call([x], "forked").results
    assert forked.kind == str(INVALID_STATE)
    check(app.results(x), model(x))


def test_options(start: Callable[..., App]) -> None:
    app = start(ET_WEBGPU_TIMEOUT="77", ET_WEBGPU_F16="0")
    assert app.ask("get timeout int") == "ok 77"
    assert app.ask("get f16 bool") == "ok 0"
    assert app.ask("get verify_weights bool") == "ok 1"
    assert app.ask("set timeout int 5") == "ok"
    assert app.ask("get timeout int") == "ok 5"
    assert app.ask("set timeout int 0").endswith("timeout: must be at least 1, got 0")
    assert "timeout: must be of type int, got a bool" in app.ask("set timeout bool 1")
    assert "option must be one of adapter, f16, " in app.ask("set nothing bool 1")
    assert app.ask("set adapter text no-such-adapter") == "ok"
    model, x = nn.ReLU(), torch.randn(3)
    app.load(model, [x])
    assert "adapter: must be part of one of [" in app.error(x)
    assert app.ask("with adapter text vulkan") == "ok"
    assert app.ask("with trust_plans bool 1") == "ok"
    app.load(model, [x])
    check(app.results(x), model(x))


def test_a_program_without_plans(app: App) -> None:
    exported = torch.export.export(nn.ReLU(), (torch.randn(3),))
    lowered = to_edge_transform_and_lower(
        exported, partitioner=[WebGPUPartitioner()]
    ).to_executorch()
    (app.folder / "model.pte").write_bytes(lowered.buffer)
    assert app.ask("load model.pte") == "ok"
    answer = app.error(torch.randn(3))
    assert "export with WebGPUPartitioner(portable=True)" in answer


def test_halves(app: App) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).half()
    x = torch.randn(5, 8).half()
    app.load(model, [x])
    check(app.results(x), model(x), rtol=1e-2, atol=1e-3)


class Cached(nn.Module):
    """Attention over a cache of keys and values, as decoders have it."""

    def __init__(self, context: int = 24) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.register_buffer("keys", torch.zeros(1, 2, context, 8))
        self.register_buffer("values", torch.zeros(1, 2, context, 8))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        q, k, v = (
            each.reshape(1, length, 2, 8).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        )
        self.keys[:, :, position] = k
        self.values[:, :, position] = v
        places = torch.arange(self.keys.shape[2])
        mask = places[None, :] <= position[:, None]
        y = nn.functional.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=mask
        )
        return y.transpose(1, 2).reshape(1, length, 16)


def test_a_cache(app: App) -> None:
    """A prompt, tokens one by one, a position beyond the end, and the next token."""
    torch.manual_seed(0)
    model = Cached()
    length = torch.export.Dim("length", min=1, max=4)
    example = [torch.randn(1, 3, 16), torch.arange(3)]
    app.load(model, example, dynamic_shapes=({1: length}, {0: length}))
    model.keys.zero_()
    model.values.zero_()
    at = 0
    for count in (4, 1, 1, 3):
        x, position = torch.randn(1, count, 16), torch.arange(at, at + count)
        wanted = model(x, position)
        check(app.results(x, position), wanted, rtol=1e-4, atol=1e-5)
        assert "index must be in [0, 24), got 24" in app.error(x, position + 24 - at)
        at += count
