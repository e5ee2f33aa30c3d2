"""Kernels of other sizes are there before a call has them, or a thread makes them."""

from __future__ import annotations

import gc
import itertools
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faults
import new_process
import pytest
import torch
import wgpu
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Method, Runtime
from test_processes import Interrupt, _interruptible  # noqa: F401  a fixture

from executorch_webgpu import WebGPUPartitioner, last_error, options
from executorch_webgpu.cli import delegates
from executorch_webgpu.errors import InvalidInput
from executorch_webgpu.plan.load_graph import load_graph
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.portable.verify import MAX_KERNELS
from executorch_webgpu.runtime import delegate, device, shader_modules
from executorch_webgpu.runtime.compile_ahead import AheadCompiler

LONGEST = 40
WIDTH = 16


class Layers(torch.nn.Module):
    """Products, norms and attention, whose forms depend on the length."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).flip(1).cumsum(1)


def tokens(length: int) -> torch.Tensor:
    return torch.linspace(-1, 1, length * WIDTH).reshape(1, length, WIDTH)


@pytest.fixture(scope="module")
def model() -> Layers:
    torch.manual_seed(0)
    return Layers()


@pytest.fixture(scope="module")
def path(model: Layers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    length = torch.export.Dim("length", min=1, max=LONGEST)
    exported = torch.export.export(model, (tokens(9),), dynamic_shapes=({1: length},))
    partitioner = WebGPUPartitioner(portable=True)
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    made = tmp_path_factory.mktemp("pte") / "layers.pte"
    made.write_bytes(edge.to_executorch().buffer)
    return made


@pytest.fixture(autouse=True)
def _nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nor has an earlier test left options, or a thread."""
    monkeypatch.setattr(options, "_overrides", {})
    gc.collect()
    device.get_device()._kept.clear()
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("executorch_webgpu"):
            thread.join(60)
            assert not thread.is_alive()


def load(path: Path, **given: Any) -> Method:
    options._overrides.update(given)
    method = Runtime.get().load_program(path).load_method("forward")
    assert method is not None, last_error()
    return method


def wait() -> None:
    """Until no thread compiles any more."""
    end = time.monotonic() + 120
    while delegate.stats().compiling:
        assert time.monotonic() < end
        time.sleep(0.01)


def created() -> int:
    return delegate.stats().created_pipelines


def slow(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[str]:
    """Has each kernel take so long to compile; the labels of those that were."""
    create, labels = shader_modules.create_shader_module, []

    def create_slowly(gpu: Any, label: str, code: str, is_checked: bool) -> Any:
        time.sleep(seconds)
        labels.append(label)
        return create(gpu, label, code, is_checked)

    monkeypatch.setattr(shader_modules, "create_shader_module", create_slowly)
    return labels


@pytest.mark.parametrize("plans", ["graph", "file"])
@pytest.mark.parametrize("compile", ["load", "background"])
def test_no_call_compiles_or_plans(
    path: Path,
    model: Layers,
    plans: str,
    compile: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = load(path, plans=plans, compile=compile)
    wait()
    # Nor has the driver put anything off to a kernel's first dispatch.
    kept = device.get_device()._kept.values()
    assert len(kept) > 10
    assert all(each.is_warm for each in kept)

    def refuse(*args: Any) -> Any:
        raise AssertionError("a size is planned")

    monkeypatch.setattr(Planner, "variant", refuse)
    before = created()
    for length in range(1, LONGEST + 1):
        x = tokens(length)
        (y,) = method.execute([x])
        torch.testing.assert_close(y, model(x).detach(), rtol=1e-3, atol=1e-4)
    assert created() == before


@pytest.mark.parametrize("plans", ["graph", "file"])
def test_calls_compile_what_they_need(path: Path, plans: str) -> None:
    """Where that is asked for, and by default where the graph is planned."""
    method = load(path, plans=plans, compile="auto" if plans == "graph" else "call")
    assert delegate.stats().compiling == 0
    before = created()
    method.execute([tokens(LONGEST)])
    assert created() == before
    for length in range(1, LONGEST):
        method.execute([tokens(length)])
    assert created() > before


def test_plans_of_a_file_are_compiled_at_load_by_default(path: Path) -> None:
    method = load(path, plans="file")
    before = created()
    for length in (LONGEST, 1, 7, 17):
        method.execute([tokens(length)])
    assert created() == before


def bound_kernels(path: Path) -> set[str]:
    """The texts that the largest size needs."""
    ((_, blob),) = delegates(path.read_bytes())
    planner = Planner(load_graph(blob), device.get_device().caps)
    return {each.wgsl for each in planner.upper_bound().pipelines}


def test_a_kernel_that_fails_is_the_error_of_its_call(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of no other: not of the load, nor of a call that does not need it."""
    fine, create = bound_kernels(path), shader_modules.create_shader_module

    def create_some(gpu: Any, label: str, code: str, is_checked: bool) -> Any:
        if code not in fine:
            raise wgpu.GPUValidationError(f"{label} is not to be compiled")
        return create(gpu, label, code, is_checked)

    monkeypatch.setattr(shader_modules, "create_shader_module", create_some)
    method = load(path, plans="graph", compile="background")
    wait()
    expected = method.execute([tokens(LONGEST)])[0].clone()
    with pytest.raises(RuntimeError, match="0x32"):
        method.execute([tokens(1)])
    said = last_error() or ""
    assert "aten." in said
    assert "(call " in said
    assert ", kernel " in said
    assert "is not to be compiled" in said
    assert torch.equal(method.execute([tokens(LONGEST)])[0], expected)
    # At load it is an error of that, and nothing is left.
    del method
    gc.collect()
    before = delegate.stats().delegates
    with pytest.raises(RuntimeError, match="0x:32"):
        load(path, compile="load")
    gc.collect()
    assert delegate.stats().delegates == before


def test_calls_go_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits for a kernel that is being compiled, and not for all of them."""
    seconds = 0.3
    method = load(path, plans="file", compile="call")
    method.execute([tokens(LONGEST)])
    del method
    slow(monkeypatch, seconds)
    method = load(path, plans="file", compile="background")
    begin = time.monotonic()
    for _ in range(3):
        method.execute([tokens(LONGEST)])
    assert delegate.stats().compiling == 1
    assert time.monotonic() - begin < 3 * (seconds + 0.5)


@pytest.mark.usefixtures("nothing_leaks")
def test_unloaded_while_a_thread_compiles(
    path: Path, model: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = slow(monkeypatch, 0.05)
    for plans in ("graph", "file"):
        method = load(path, plans=plans, compile="background")
        assert delegate.stats().compiling == 1
        del method
        gc.collect()
        assert delegate.stats().compiling == 0
    made = len(labels)
    time.sleep(0.5)  # each thread may be inside one
    assert len(labels) <= made + 1
    x = tokens(7)
    (y,) = load(path, compile="background").execute([x])
    torch.testing.assert_close(y, model(x).detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("nothing_leaks")
def test_an_interrupted_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch, 0.2)
    Interrupt(3.0).expect(lambda: load(path, plans="graph", compile="load"))
    assert delegate.stats().compiling == 0


def test_a_call_is_interrupted_that_waits_for_the_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = load(path, plans="file", compile="call")
    expected = method.execute([tokens(LONGEST)])[0].clone()
    del method
    slow(monkeypatch, 4.0)
    method = load(path, plans="file", compile="background")
    time.sleep(0.2)  # the thread is inside the driver
    Interrupt(0.3).expect(lambda: method.execute([tokens(LONGEST)]))
    monkeypatch.undo()
    assert torch.equal(method.execute([tokens(LONGEST)])[0], expected)


def test_a_lost_device_ends_the_thread(
    path: Path, model: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = slow(monkeypatch, 0.05)
    method = load(path, plans="file", compile="background")
    faults._lose()
    with pytest.raises(RuntimeError, match="0x32"):
        method.execute([tokens(1)])
    assert "must be alive, got lost" in (last_error() or "")
    wait()
    made = len(labels)
    time.sleep(0.3)
    assert len(labels) == made
    x = tokens(5)
    (y,) = load(path, compile="background").execute([x])
    torch.testing.assert_close(y, model(x).detach(), rtol=1e-3, atol=1e-4)


_SLOW = """
    import os, sys, time, torch
    from executorch.runtime import Runtime
    from executorch_webgpu.runtime import delegate, shader_modules

    create = shader_modules.create_shader_module

    def slow(*args):
        time.sleep(float(sys.argv[2]))
        return create(*args)

    def load():
        return Runtime.get().load_program(sys.argv[1]).load_method("forward")

    x = torch.ones(1, 7, 16)
    method = load()
    expected = method.execute([x])[0].clone()
    del method
    shader_modules.create_shader_module = slow
    os.environ["ET_WEBGPU_COMPILE"] = "background"
    method = load()
    assert delegate.stats().compiling == 1
"""


def run(code: str, path: Path, seconds: float, **env: str) -> Any:
    slow = textwrap.dedent(_SLOW) + textwrap.dedent(code)
    return new_process.run(slow, path, seconds, **env)


@pytest.mark.parametrize("plans", ["graph", "file"])
def test_the_interpreter_exits_while_a_thread_compiles(path: Path, plans: str) -> None:
    """It waits for the kernel that is being compiled, and for no other."""
    code = """
        time.sleep(0.1)
        print(time.time())
    """
    seconds = 3.0
    done = run(code, path, seconds, ET_WEBGPU_PLANS=plans)
    ended = time.time()
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr
    # There are more than ten.
    assert ended - float(done.stdout) < 3 * seconds


def test_the_interpreter_exits_while_the_driver_compiles(path: Path) -> None:
    """Whose exit handlers take away what the thread uses."""
    env = {"ET_WEBGPU_PLANS": "file", "MESA_SHADER_CACHE_DISABLE": "true"}
    done = run("time.sleep(0.1)", path, 0.0, **env)
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr


def test_a_fork_while_a_thread_compiles(path: Path) -> None:
    code = """
        import executorch_webgpu
        pid = os.fork()
        if pid == 0:
            try:
                method.execute([x])
            except RuntimeError:
                said = executorch_webgpu.last_error()
                sys.exit(3 if "got a fork of it" in said else 4)
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        print(torch.equal(method.execute([x])[0], expected))
    """
    done = run(code, path, 0.5, ET_WEBGPU_PLANS="file")
    assert done.stdout.split() == ["3", "True"], done.stderr
    assert done.returncode == 0, done.stderr


def test_the_number_of_kernels_is_limited() -> None:
    class Counting:
        compiled = 0

        def compile(self, kernel: Any) -> None:
            self.compiled += 1

    executor: Any = Counting()
    kernels: Iterator[Any] = itertools.count()
    AheadCompiler(executor, kernels, is_warm=False).run()
    assert executor.compiled == MAX_KERNELS


def test_values_that_are_refused() -> None:
    with pytest.raises(InvalidInput, match="'background' or 'call', got 'never'"):
        options.Options(compile="never")
    with pytest.raises(InvalidInput, match=r"with autotune, .*, got 'load'"):
        options.Options(compile="load", autotune=True)


@pytest.mark.parametrize("name", ["f16", "subgroups"])
def test_features_are_switched_off(
    path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans of the graph and of the file are for a device without them."""
    assert getattr(device.get_device().caps, name)
    seen: list[Any] = []

    def planner(graph: Any, caps: Any) -> Planner:
        seen.append(caps)
        return Planner(graph, caps)

    def fitting(plans: Any, caps: Any, device: Any) -> Any:
        seen.append(caps)
        return fit(plans, caps, device)

    fit = delegate.fitting_profile
    monkeypatch.setattr(delegate, "Planner", planner)
    monkeypatch.setattr(delegate, "fitting_profile", fitting)
    for plans in ("graph", "file"):
        load(path, plans=plans, **{name: False}).execute([tokens(3)])
    assert [getattr(caps, name) for caps in seen] == [False, False]
