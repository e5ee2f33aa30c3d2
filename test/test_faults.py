"""Calls that fail, or lose the device: each one of a load, a first and a second run.

Every fault ends in an error with a sentence and its code. Nothing is left of the method
once it is unloaded, another method computes the same bits as before, and the next load
works.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Method, Runtime
from faults import COMPILING, Calls, PythonCalls, ReplayCalls

from executorch_webgpu import WebGPUPartitioner, _shim, last_error, options
from executorch_webgpu.runtime import delegate, device
from executorch_webgpu.runtime.device import Device

# Of the runs. The load has planned neither.
ROWS = (5, 3)

_LOST = "the GPU device must be alive, got lost; load the method again"


class Victim(torch.nn.Module):
    """A weight, a state, a dynamic dimension, an int64 input, an index to check."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))
        self.register_buffer("total", torch.ones(8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ self.weight
        self.total.add_(y.sum(0))
        return torch.embedding(y, at) + self.total, at + 1


class Canary(torch.nn.Module):
    """Other kernels than the victim's, and no state."""

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.softmax(x / 8, -1), at * 3


def _inputs(rows: int) -> list[torch.Tensor]:
    return [torch.arange(rows * 8.0).reshape(rows, 8), torch.arange(rows).flip(0)]


def _export(model: torch.nn.Module, path: Path) -> Path:
    rows = torch.export.Dim("rows", min=2, max=16)
    shapes = {"x": {0: rows}, "at": {0: rows}}
    program = torch.export.export(model, tuple(_inputs(4)), dynamic_shapes=shapes)
    edge = to_edge_transform_and_lower(program, partitioner=[WebGPUPartitioner()])
    path.write_bytes(edge.to_executorch().buffer)
    return path


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _export(Victim(), tmp_path_factory.mktemp("pte") / "victim.pte")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _export(Canary(), tmp_path_factory.mktemp("pte") / "canary.pte")


@pytest.fixture(scope="module")
def adapter() -> Any:
    return device._choose_adapter(options.Options().adapter)


@pytest.fixture(autouse=True)
def _own_devices(monkeypatch: pytest.MonkeyPatch, adapter: Any) -> Iterator[None]:
    """Not the device of other tests' methods."""
    monkeypatch.setattr(options, "_overrides", {})
    monkeypatch.setattr(device, "_devices", {})
    monkeypatch.setattr(device, "_adapters", {})
    _offer(adapter)
    yield
    delegate._is_native_possible.cache_clear()


def _offer(adapter: Any) -> None:
    """Spares the next new device the search for an adapter, which takes long."""
    device._adapters[options.current().adapter] = adapter


def _load(pte: Path) -> Method:
    method = Runtime.get().load_program(pte).load_method("forward")
    assert method is not None
    return method


def _run(method: Method, rows: int) -> bytes:
    return b"".join(y.numpy().tobytes() for y in method.execute(_inputs(rows)))


def _load_and_run(pte: Path, runs: int) -> list[bytes]:
    method = _load(pte)
    return [_run(method, rows) for rows in ROWS[:runs]]


def _live(gpu: Device) -> list[int]:
    gc.collect()
    counters = gpu.counters
    counts = [counters.buffers, counters.buffer_bytes, counters.bind_groups]
    return [len(delegate._delegates), *counts]


def _meet(calls: Calls, number: int, pte: Path, runs: int) -> str:
    """The error that call `number` leads to; "" if so many calls are not made."""
    calls.choose(number)
    method, text = None, ""
    try:
        method = _load(pte)
        for rows in ROWS[:runs]:
            _run(method, rows)
    except RuntimeError as error:
        text = f"{error}\n{last_error()}"
    assert calls.was_met() == bool(text), "a call failed, and nobody noticed"
    calls.choose(-1)
    if text:
        # NotFound, MemoryAllocationFailed or DelegateInvalidHandle, and what is wrong.
        assert re.search(r"error:? 0x:?(20|21|32)\n.* of forward: \S+", text), text
    if method is not None:
        # The last output, which depends on no state.
        last = _inputs(3)[1] + 1
        assert _run(method, 3).endswith(last.numpy().tobytes()), text
    return text


@pytest.mark.parametrize(
    ("made", "executor", "shares"),
    [
        (PythonCalls, "wgpu", False),
        (PythonCalls, "native", True),
        (ReplayCalls, "native", False),
    ],
)
def test_a_call_that_fails(
    victim: Path,
    other: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: type[PythonCalls] | type[ReplayCalls],
    executor: str,
    shares: bool,
) -> None:
    """On one device; `shares`: the other method has the victim's weights."""
    calls = made(monkeypatch, tmp_path)
    _shim.set_option("executor", executor)
    gpu = device.get_device()
    expected = _load_and_run(victim, 2)
    canary = _load(other)
    song = _run(canary, 3)
    shared = _load(victim) if shares else None
    before = _live(gpu)
    number = 0
    while text := _meet(calls, number, victim, 2):
        number += 1
        assert _live(gpu) == before, text
        assert _run(canary, 3) == song, text
        assert _load_and_run(victim, 2) == expected, text
    assert number > 20
    if shared is not None:
        assert [_run(shared, 5), _run(shared, 3)] == expected


def test_a_kernel_that_is_not_compiled(
    victim: Path,
    other: Path,
    adapter: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On new devices, which have compiled nothing of the victim's."""
    calls = PythonCalls(monkeypatch, tmp_path, COMPILING)
    expected = _load_and_run(victim, 1)
    text, number = "first", 0
    while text:
        device._devices.clear()
        _offer(adapter)
        gpu = device.get_device()
        canary = _load(other)
        song = _run(canary, 3)
        before = _live(gpu)
        text = _meet(calls, number, victim, 0)
        number += 1
        assert _live(gpu) == before, text
        assert _run(canary, 3) == song, text
        assert _load_and_run(victim, 1) == expected, text
    assert number > 10


@pytest.mark.parametrize(
    ("made", "executor"), [(PythonCalls, "wgpu"), (ReplayCalls, "native")]
)
def test_a_lost_device(
    victim: Path,
    other: Path,
    adapter: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: type[PythonCalls] | type[ReplayCalls],
    executor: str,
) -> None:
    """Every method of the device says so; what is loaded then has a new device."""
    calls = made(monkeypatch, tmp_path)
    _shim.set_option("executor", executor)
    expected, song = _load_and_run(victim, 1), _run(_load(other), 3)
    others = len(delegate._delegates)
    was_met, number = True, 0
    while was_met:
        _offer(adapter)
        gpu = device.get_device()
        canary = _load(other)
        assert _run(canary, 3) == song
        calls.choose(number, loses=True)
        try:
            # Lost after the results have arrived, the device is not missed yet.
            assert _load_and_run(victim, 1) == expected
        except RuntimeError:
            assert _LOST in (last_error() or "")
        was_met = calls.was_met()
        calls.choose(-1)
        if was_met:
            with pytest.raises(RuntimeError):
                _run(canary, 3)
            assert _LOST in (last_error() or "")
        number += 1
        del canary
        assert _live(gpu) == [others, 0, 0, 0]
    assert number > 20
    assert _load_and_run(victim, 1) == expected
