"""Other processes and signals: fork, spawn, and Ctrl-C at any time of a call."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import new_process
import pytest
import torch
from executorch.runtime import Method, Runtime
from torch.nn import functional as F

from executorch_webgpu import _shim, last_error, options
from executorch_webgpu.runtime import delegate, device, shader_modules, signals

# Seconds. Half a second is the aim; a machine whose cores are taken needs longer.
_SLACK = 2.5


class Products(torch.nn.Module):
    """`count` dispatches of `size` cubed multiply-adds."""

    def __init__(self, size: int, count: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size) / size**0.5)
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.count):
            x = x @ self.weight
        return x


def export(model: torch.nn.Module, x: torch.Tensor, path: Path) -> Path:
    from executorch.exir import to_edge_transform_and_lower

    from executorch_webgpu import WebGPUPartitioner

    exported = torch.export.export(model, (x,))
    edge = to_edge_transform_and_lower(exported, partitioner=[WebGPUPartitioner()])
    path.write_bytes(edge.to_executorch().buffer)
    return path


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Python's own handler of SIGINT: a shell has background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pte") / "short.pte"
    return export(Products(8, 2), torch.ones(8, 8), path)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pte") / "long.pte"
    return export(Products(640, 60), torch.ones(640, 640), path)


@pytest.fixture(autouse=True)
def _options_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_overrides", {})


def load(path: Path | str) -> Method:
    method = Runtime.get().load_program(path).load_method("forward")
    assert method is not None, last_error()
    return method


def result(path: Path | str) -> list[float]:
    """What the short program gives: loads it and runs it once."""
    return [float(x) for x in load(path).execute([torch.ones(8, 8)])[0].flatten()]


class Interrupt:
    """Sends SIGINT after `delay` seconds, from a process that needs no GIL of ours."""

    def __init__(self, delay: float) -> None:
        command = f"sleep {delay}; kill -INT {os.getpid()}"
        self._sender = subprocess.Popen(["sh", "-c", command])
        self._due = time.monotonic() + delay

    def expect(self, call: Callable[[], Any]) -> None:
        """Has `call` interrupted, soon after the signal."""
        with pytest.raises(KeyboardInterrupt):
            call()
        late = time.monotonic() - self._due
        self._sender.wait()
        assert late < _SLACK


# What a forked child may be made to do, and how it ends.
_SERVER = """
    import os, sys, torch
    from executorch.runtime import Runtime
    import executorch_webgpu

    def load():
        return Runtime.get().load_program(sys.argv[1]).load_method("forward")

    def run(method):
        return method.execute([torch.ones(8, 8)])[0].clone()

    def child(work):
        \"\"\"The exit status of a child that does `work` and ends as Python does.\"\"\"
        pid = os.fork()
        if pid == 0:
            try:
                work()
            except RuntimeError as error:
                text = "must be used by the process that opened it, got a fork of it"
                told = f"{error} {executorch_webgpu.last_error()}"
                sys.exit(3 if text in told else 4)
            sys.exit(5)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    class Numbers(torch.utils.data.Dataset):
        def __init__(self, method):
            self.method = method

        def __len__(self):
            return 4

        def __getitem__(self, index):
            if index == 3:
                return run(self.method)
            return torch.tensor(index)

    print(child(lambda: run(load())), child(lambda: run(load())))
    method = load()
    expected = run(method)
    print(child(lambda: run(method)), child(load), child(lambda: None))
    print(child(lambda: executorch_webgpu.reset_state()))

    def drop():
        global method
        del method

    print(child(drop))
    loader = torch.utils.data.DataLoader(
        Numbers(method), batch_size=None, num_workers=1, sampler=[0, 1, 2]
    )
    print([int(x) for x in loader])
    loader = torch.utils.data.DataLoader(
        Numbers(method), batch_size=None, num_workers=1, sampler=[0, 3]
    )
    try:
        list(loader)
    except RuntimeError as error:
        print("worker:", "execute() failed with error 0x2" in str(error))
    print(torch.equal(run(method), expected), torch.equal(run(load()), expected))
"""


def test_fork(short: Path) -> None:
    """A server that forks before it loads and after, and a DataLoader's workers."""
    done = new_process.run(_SERVER, short)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "5 5",
        "3 3 5",
        "3",
        "5",
        "[0, 1, 2]",
        "worker: True",
        "True True",
    ], done.stderr


def test_fork_while_another_thread_is_in_a_call(long: Path) -> None:
    """Locks that the thread holds are held forever in the child."""
    _shim.set_option("release_gil", True)
    method = load(long)
    thread = threading.Thread(target=method.execute, args=([torch.ones(640, 640)],))
    thread.start()
    while device.get_device().counters.bind_groups == 0:
        time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            device.get_device()
        except _shim.Failure:
            try:
                with delegate._delegates.copy().pop().lock:
                    os._exit(4)
            except _shim.Failure:
                delegate.stats()
                os._exit(3)
        os._exit(5)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    thread.join()


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_new_processes_load_for_themselves(short: Path, way: str) -> None:
    expected = result(short)
    context = multiprocessing.get_context(way)
    with ProcessPoolExecutor(1, context) as pool:
        assert pool.submit(result, str(short)).result(120) == expected


@pytest.mark.usefixtures("nothing_leaks")
@pytest.mark.parametrize("where", ["plan", "pipeline", "buffer", "finalizer"])
def test_interrupted_load(
    short: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Wherever it comes, also where Python would print and lose an exception."""
    expected = result(short)

    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def interrupted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if where == "finalizer":
                Finalized()
            else:
                signal.raise_signal(signal.SIGINT)
            return function(*args)

        return call

    owner, name = {
        "plan": (delegate.Planner, "upper_bound"),
        "pipeline": (device.Device, "pipeline"),
        "buffer": (device.Device, "buffer"),
        "finalizer": (device.Device, "bind_group"),
    }[where]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted(getattr(owner, name)))
        with pytest.raises(KeyboardInterrupt):
            load(short)
    assert result(short) == expected
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("nothing_leaks")
def test_interrupted_compilation_of_a_load(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is compiled behind the interrupt, once, and the next load has it."""
    expected = result(short)
    device.get_device()._kept.clear()
    compiled: list[str] = []
    create = shader_modules.create_shader_module

    def slow(gpu: Any, label: str, code: str, is_checked: bool) -> Any:
        if not compiled:
            time.sleep(_SLACK + 0.5)
        compiled.append(code)
        return create(gpu, label, code, is_checked)

    monkeypatch.setattr(shader_modules, "create_shader_module", slow)
    Interrupt(0.2).expect(lambda: load(short))
    assert not compiled
    assert result(short) == expected
    assert len(compiled) == len(set(compiled)) > 0


@pytest.mark.usefixtures("nothing_leaks")
def test_interrupted_close(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method is freed, then the interrupt comes."""
    methods = [load(short)]
    close = delegate.WgpuExecutor.close

    def interrupted(executor: delegate.WgpuExecutor) -> None:
        signal.raise_signal(signal.SIGINT)
        close(executor)

    monkeypatch.setattr(delegate.WgpuExecutor, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        methods.clear()


def test_exit_from_a_signal_handler_is_kept(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = delegate.Planner.upper_bound

    def stopped(planner: Any) -> Any:
        sys.exit(7)
        return plan(planner)

    monkeypatch.setattr(delegate.Planner, "upper_bound", stopped)
    with pytest.raises(SystemExit, match="7"):
        load(short)


def test_handlers_that_raise_nothing_stop_nothing(short: Path) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with signals.held():
            signal.raise_signal(signal.SIGINT)
            assert not seen
            signals.check()
            assert seen == [signal.SIGINT]
            result(short)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("release_gil", [False, True])
def test_interrupted_execute(long: Path, release_gil: bool) -> None:
    """In the first call, which compiles, and in later ones; then it is right."""
    _shim.set_option("release_gil", release_gil)
    method = load(long)
    x = torch.ones(640, 640)
    for delay in (0.1, 0.5):
        Interrupt(delay).expect(lambda: method.execute([x]))
    (y,) = method.execute([x])
    assert torch.equal(y, load(long).execute([x])[0])


# Two programs whose kernels take a software driver seconds to compile.
_COMPILING = """
    import os, signal, subprocess, sys, time, torch
    from dataclasses import replace
    from executorch.runtime import Runtime
    from executorch_webgpu.runtime import device

    def interrupted(method):
        \"\"\"How late it is that the first call, which compiles, ends by Ctrl-C.\"\"\"
        command = f"sleep 0.5; date +%s.%N; kill -INT {os.getpid()}"
        sender = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE)
        try:
            method.execute([x])
        except KeyboardInterrupt:
            return time.time() - float(sender.communicate()[0])
        sys.exit("compiled within half a second")

    signal.signal(signal.SIGINT, signal.default_int_handler)
    x = torch.load(sys.argv[1])
    gpu = device.get_device()
    gpu.caps = replace(gpu.caps, is_cpu=False)
    first, other = (
        Runtime.get().load_program(path).load_method("forward")
        for path in sys.argv[2:]
    )
    print(interrupted(first))
    print(float((first.execute([x])[0] - torch.load(sys.argv[1] + ".y")).abs().max()))
    print(interrupted(other))
"""


class Attention(torch.nn.Module):
    """A dispatch that takes long to compile, and one behind it."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.scaled_dot_product_attention(x, x, x, is_causal=self.is_causal)
        return torch.softmax(y, -1)


def test_interrupted_compilation(tmp_path: Path) -> None:
    """It goes on behind the interrupt: the method works, and the process can end."""
    x = torch.randn(1, 2, 64, 32)
    paths = [
        str(export(Attention(causal), x, tmp_path / f"{causal}.pte"))
        for causal in (False, True)
    ]
    given = str(tmp_path / "x")
    torch.save(x, given)
    torch.save(Attention(False)(x), f"{given}.y")
    cold = {"MESA_SHADER_CACHE_DIR": str(tmp_path)}
    done = new_process.run(_COMPILING, given, *paths, **cold)
    assert done.returncode == 0, done.stderr
    late, error, late_again = map(float, done.stdout.split())
    assert max(late, late_again) < _SLACK
    assert error < 1e-5


def test_other_threads_are_not_interrupted(long: Path) -> None:
    """Ctrl-C stops the main thread, which waits for the device."""
    _shim.set_option("release_gil", True)
    method, other = load(long), load(long)
    x = torch.ones(640, 640)
    expected = method.execute([x])[0].clone()
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.extend(other.execute([x])))
    thread.start()
    Interrupt(0.3).expect(lambda: method.execute([x]))
    thread.join()
    assert torch.equal(found[0], expected)


def test_timeout(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(_shim.Failure, match="InvalidArgument"):
        _shim.set_option("timeout", 0)
    # Let it be 0 all the same: a fast machine is done within a second.
    monkeypatch.setattr(options.Options, "__post_init__", lambda options: None)
    _shim.set_option("timeout", 0)
    method = load(long)
    with pytest.raises(RuntimeError, match="0x32"):
        method.execute([torch.ones(640, 640)])
    assert "the GPU must finish within 0 s, got no answer" in (last_error() or "")
