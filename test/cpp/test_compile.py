"""When the C++ player compiles: at load, in a thread, or in the call that needs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import driver
import handmade
import numpy as np
import pytest
import torch
from driver import PlayerDriver
from handmade import numbers, packed
from test_module import App, check
from test_player import DEVICE
from torch import nn

INVALID_STATE = 2


def many(fb: ModuleType, count: int = 24, work: int = 60) -> bytes:
    """Plans with a variant, and a kernel that takes long to compile, for each size."""
    root = handmade.plans(fb)
    kernel, dispatch = root.kernels[0], root.dispatches[0]
    base = len(root.dispatches)
    variants = []
    # From the largest size down, as export has them.
    for at, size in enumerate(range(count, 0, -1)):
        lines = [f"    y[at.x] = fma(y[at.x], {size}.0, x[{i}]);" for i in range(work)]
        text = [*(root.lines[line] for line in kernel.lines)]
        text[-2:-2] = [*lines, "    y[at.x] = 2.0 * x[at.x] + w[at.x % 8];"]
        first = len(root.lines)
        root.lines.extend(text)
        root.kernels.append(
            handmade.made(
                fb.KernelT,
                label=f"slow{size}",
                lines=[*range(first, first + len(text))],
                access=kernel.access,
            )
        )
        fields = {name: value for name, value in vars(dispatch).items()}
        fields["kernel"] = len(root.kernels) - 1
        root.dispatches.append(handmade.made(fb.DispatchT, **fields))
        variants.append(
            handmade.made(
                fb.VariantT,
                guards=[handmade.made(fb.GuardT, register=0, low=size, high=size)],
                dispatches=[base + at, 2],
                inputs=[0],
                outputs=[1, 2, 3],
                status=-1,
            )
        )
    root.profiles[0].variants = variants
    return packed(root)


def pipelines(player: PlayerDriver) -> tuple[int, bool]:
    """How many were made, and whether no thread makes more."""
    word, count, *rest = player.ask("pipelines").split()
    assert word == "ok"
    return int(count), rest == ["done"]


def wait(player: PlayerDriver) -> int:
    end = time.monotonic() + 120
    while True:
        count, is_done = pipelines(player)
        if is_done:
            return count
        assert time.monotonic() < end
        time.sleep(0.01)


def right(player: PlayerDriver, rows: int, scale: int = 2) -> None:
    x = numbers(rows)
    wanted = scale * x + handmade.WEIGHTS
    np.testing.assert_allclose(player.call(x)[0], wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("compile", "at_load"),
    [("auto", 3), ("load", 3), ("background", 3), ("call", 2)],
)
def test_when_kernels_are_compiled(
    player: PlayerDriver, good: bytes, compile: str, at_load: int
) -> None:
    """The handmade program has two kernels for its first variant, and a third."""
    assert player.load(good, f"compile={compile}").startswith("ok")
    assert wait(player) == at_load
    for rows in range(1, 49):
        right(player, rows, 2 if rows <= 16 else 3)
    assert wait(player) == 3


def test_no_call_compiles_once_the_thread_is_done(
    player: PlayerDriver, fb: ModuleType
) -> None:
    content = many(fb, work=2)
    assert player.load(content, "compile=background").startswith("ok")
    assert wait(player) == 25
    for rows in range(1, 25):
        right(player, rows)
    assert pipelines(player) == (25, True)


@pytest.mark.parametrize("compile", ["load", "background"])
def test_drivers_put_nothing_off(
    start: Callable[..., PlayerDriver], fb: ModuleType, compile: str
) -> None:
    """llvmpipe compiles a kernel at its first dispatch, which it has had."""
    content, seconds = many(fb, count=4, work=100), {}
    for each in ("call", compile):
        player = start(MESA_SHADER_CACHE_DISABLE="true")
        assert player.load(content, f"compile={each}").startswith("ok")
        wait(player)
        times = []
        for rows in (1, 2, 3):  # each the first of its kernel
            begin = time.monotonic()
            right(player, rows)
            times.append(time.monotonic() - begin)
        seconds[each] = min(times)  # others may have the machine meanwhile
    assert seconds[compile] < seconds["call"] / 3


def test_a_kernel_that_fails_is_the_error_of_its_call(
    player: PlayerDriver, fb: ModuleType
) -> None:
    root = handmade.plans(fb)
    line = next(at for at, text in enumerate(root.lines) if "3.0 * x" in text)
    root.lines[line] = "    y[at.x] = nothing;"
    wanted = f"error {DEVICE} aten.add (call 7, kernel thrice): "
    assert player.load(packed(root), "compile=load").startswith(wanted)
    for compile in ("background", "call"):
        assert player.load(packed(root), f"compile={compile}").startswith("ok")
        wait(player)
        right(player, 16)
        assert player.error(numbers(17)).startswith(wanted)
        right(player, 3)


def test_calls_go_first(player: PlayerDriver, fb: ModuleType) -> None:
    """Also those that need a kernel which the thread has not come to."""
    assert player.load(many(fb), "compile=background").startswith("ok")
    right(player, 24)
    right(player, 1)
    count, is_done = pipelines(player)
    assert not is_done
    assert count < 25


def test_unloaded_while_the_thread_compiles(
    player: PlayerDriver, fb: ModuleType
) -> None:
    content = many(fb)
    for _ in range(3):
        assert player.load(content, "compile=background").startswith("ok")
        assert not pipelines(player)[1]
    right(player, 2)


def test_threads_that_load_and_compile(player: PlayerDriver, fb: ModuleType) -> None:
    assert player.load(many(fb), "compile=background").startswith("ok")
    assert player.race(numbers(9), 4, 1) == "ok 0 different 0 failed"


def test_a_device_that_is_lost_meanwhile(
    player: PlayerDriver, fb: ModuleType, good: bytes
) -> None:
    assert player.load(many(fb), "compile=background").startswith("ok")
    assert player.ask("lose") == "ok"
    wait(player)
    assert "the GPU device must be alive, got lost" in player.error(numbers(3))
    assert player.load(good, "compile=background").startswith("ok")
    right(player, 3)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_the_process_exits_meanwhile(
    start: Callable[..., PlayerDriver], fb: ModuleType, seconds: float
) -> None:
    """By way of the driver's exit handlers, which take away what the thread uses."""
    player = start(MESA_SHADER_CACHE_DISABLE="true")
    assert player.load(many(fb), "compile=background").startswith("ok")
    time.sleep(seconds)
    assert not pipelines(player)[1]
    begin = time.monotonic()
    assert player.end("exit") == 0
    assert time.monotonic() - begin < 10


def test_the_end_of_the_process_waits_for_what_a_thread_does(
    start: Callable[..., PlayerDriver],
) -> None:
    """For one bit of its work, which takes half a second, and for no other."""
    player = start()
    assert player.ask("linger bits") == "ok"
    time.sleep(0.2)
    assert player.end("exit") == 0
    assert (player.folder / "bits").read_text() == "x"


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.fixture
def app(tmp_path: Path) -> Any:
    made = App(driver.module_driver(), tmp_path, ET_WEBGPU_COMPILE="background")
    yield made
    made.close()


def test_an_app(app: App) -> None:
    """Through ExecuTorch's Module: calls at many sizes, and a fork, meanwhile."""
    assert app.ask("get compile text") == "ok background"
    torch.manual_seed(0)
    model = Layer().eval()
    length = torch.export.Dim("length", min=2, max=40)
    app.load(model, [torch.randn(1, 9, 16)], dynamic_shapes=({1: length},))
    x = torch.randn(1, 40, 16)
    check(app.results(x), model(x), rtol=1e-4, atol=1e-5)
    assert app.ask("forked out t6:1x40x16:0x1x2:in0") == f"ok {INVALID_STATE}"
    for size in (2, 1, 17, 33, 40):
        x = torch.randn(1, size, 16)
        check(app.results(x), model(x), rtol=1e-4, atol=1e-5)


def test_values_of_the_option(app: App) -> None:
    assert app.ask("set compile text call") == "ok"
    assert app.ask("get compile text") == "ok call"
    assert app.ask("set compile text auto") == "ok"
    assert app.ask("get compile text") == "ok auto"
    assert app.ask("set compile text never").endswith(
        "compile: must be 'auto', 'load', 'background' or 'call', got 'never'"
    )
    assert app.ask("get subgroups bool") == "ok 1"
    assert app.ask("set subgroups bool 0") == "ok"
    assert app.ask("get subgroups bool") == "ok 0"


def test_a_profile_without_subgroups(player: PlayerDriver, fb: ModuleType) -> None:
    root = handmade.plans(fb)
    root.profiles[0].name, root.profiles[0].subgroups = "with", True
    alone = packed(root)
    root.profiles.append(handmade.plans(fb).profiles[0])
    both = packed(root)
    assert player.load(both).startswith("ok with on ")
    assert player.load(both, "subgroups=0").startswith("ok baseline on ")
    right(player, 5)
    assert "for profile with, subgroups, got it switched off" in player.load(
        alone, "subgroups=0"
    )
