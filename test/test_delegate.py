"""The delegate ABI, through real programs and the standard runtime."""

from __future__ import annotations

import ctypes
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import new_process
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Method, Runtime

import executorch_webgpu
from executorch_webgpu import WebGPUPartitioner, _shim, ir, options
from executorch_webgpu.errors import InvalidInput
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import Caps
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import delegate, device

pytestmark = pytest.mark.usefixtures("nothing_leaks")


class Scale(torch.nn.Module):
    """Two outputs, a weight, and a dynamic first dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(8.0))

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * self.weight + 1, n + 1


def export(path: Path) -> Path:
    rows = torch.export.Dim("rows", min=2, max=64)
    inputs = (torch.ones(4, 8), torch.zeros(4, dtype=torch.int64))
    program = torch.export.export(
        Scale(), inputs, dynamic_shapes={"x": {0: rows}, "n": {0: rows}}
    )
    edge = to_edge_transform_and_lower(program, partitioner=[WebGPUPartitioner()])
    path.write_bytes(edge.to_executorch().buffer)
    return path


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("pte") / "scale.pte")


@pytest.fixture(autouse=True)
def _options_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_overrides", {})


def load(pte: Path) -> Method:
    method = Runtime.get().load_program(pte).load_method("forward")
    assert method is not None
    return method


def last_error() -> str:
    return str(executorch_webgpu.last_error())


def check(method: Method, rows: int, fill: float = 1.0) -> None:
    x, n = torch.full((rows, 8), fill), torch.arange(rows)
    y, m = method.execute([x, n])
    torch.testing.assert_close(y, x * torch.arange(8.0) + 1)
    torch.testing.assert_close(m, n + 1)


@pytest.mark.parametrize("executor", ["native", "wgpu"])
def test_live_shapes(pte: Path, executor: str) -> None:
    _shim.set_option("executor", executor)
    submits = _shim.submissions()
    method = load(pte)
    for rows in (2, 64, 37, 3, 64):
        check(method, rows)
    assert (_shim.submissions() - submits > 0) == (executor == "native")


def test_a_long_plan_is_submitted_in_a_few_parts(tmp_path: Path) -> None:
    """The GPU starts before all is recorded; a bad index in a late part is found."""

    class Long(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8, 8) / 3)

        def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            for _ in range(40):
                x = x @ self.weight
            return torch.embedding(x, i)

    model = Long().eval()
    inputs = (torch.randn(4, 8), torch.tensor([3, 0]))
    edge = to_edge_transform_and_lower(
        torch.export.export(model, inputs), partitioner=[WebGPUPartitioner()]
    )
    path = tmp_path / "long.pte"
    path.write_bytes(edge.to_executorch().buffer)
    method = load(path)
    for index in (3, 4, 2):
        inputs = (torch.randn(4, 8), torch.tensor([index, 0]))
        before = _shim.submissions()
        if index == 4:
            with pytest.raises(RuntimeError):
                method.execute(list(inputs))
            assert "got 4" in (executorch_webgpu.last_error() or "")
        else:
            (result,) = method.execute(list(inputs))
            with torch.no_grad():
                torch.testing.assert_close(result, model(*inputs))
        parts = _shim.submissions() - before
        # Two, but a kernel's first dispatch is submitted alone, and a part that took
        # long, which a busy machine decides, is cut in two for the next call.
        assert 2 <= parts < 8


def test_second_execute_creates_nothing(pte: Path) -> None:
    method = load(pte)
    for rows in (64, 7):
        check(method, rows)
    before = delegate.stats()
    for rows in (7, 64, 7):
        check(method, rows)
    after = delegate.stats()
    for name in ("buffers", "pipelines", "bind_groups"):
        created = f"created_{name}"
        assert getattr(after, created) == getattr(before, created)
    assert after.plans == before.plans


def test_old_plans_are_forgotten(pte: Path) -> None:
    _shim.set_option("plan_cache", 2)
    method = load(pte)
    for rows in (2, 3, 4):
        check(method, rows)
    before = delegate.stats().plans
    check(method, 4)
    check(method, 3)
    assert delegate.stats().plans == before
    check(method, 2)
    assert delegate.stats().plans == before + 1


def test_weights_are_shared_between_copies(pte: Path) -> None:
    others, shared = delegate.stats().buffers, len(device.get_device()._shared)
    one = load(pte)
    alone = delegate.stats().buffers - others
    two = load(pte)
    own = delegate.stats().buffers - others - alone
    constants = len(device.get_device()._shared) - shared
    assert constants > 0
    assert own == alone - constants
    check(one, 5)
    check(two, 5)


def test_int64_that_does_not_fit(pte: Path, capfd: pytest.CaptureFixture[str]) -> None:
    method = load(pte)
    n = torch.tensor([0, 1, 2**40])
    with pytest.raises(RuntimeError, match="0x12"):
        method.execute([torch.ones(3, 8), n])
    lines = [line for line in capfd.readouterr().err.splitlines() if "WebGPU" in line]
    assert len(lines) == 1
    assert (
        "execute of forward: n: int64 values must fit int32, got 1099511627776"
        in (lines[0])
    )
    assert "1099511627776" in str(executorch_webgpu.last_error())
    check(method, 3)


def test_shape_outside_the_exported_range(
    pte: Path, caplog: pytest.LogCaptureFixture
) -> None:
    method = load(pte)
    wrong = [torch.ones(3, 8), torch.zeros(4, dtype=torch.int64)]
    with pytest.raises(RuntimeError):
        method.execute(wrong)
    assert "Traceback" in str(executorch_webgpu.last_error())
    assert not caplog.text, "what ExecuTorch's log has said is not said again"
    caplog.set_level(logging.DEBUG, "executorch_webgpu")
    with pytest.raises(RuntimeError):
        method.execute(wrong)
    assert "InvalidInput" in caplog.text
    check(method, 3)


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (0, "must start with"),
        (4, "format"),
        (8, "must have"),
        (40, "damaged"),
    ],
)
def test_damaged_blob(pte: Path, tmp_path: Path, offset: int, text: str) -> None:
    raw = bytearray(pte.read_bytes())
    raw[raw.index(b"EWGB") + offset] ^= 0x40
    bad = tmp_path / "bad.pte"
    bad.write_bytes(raw)
    with pytest.raises(RuntimeError):
        load(bad)
    assert text in str(executorch_webgpu.last_error())
    check(load(pte), 2)


def test_a_flipped_bit_of_a_weight(pte: Path, tmp_path: Path) -> None:
    raw = bytearray(pte.read_bytes())
    weight = raw.index(torch.arange(8.0).numpy().tobytes())
    raw[weight + 5 * 4] ^= 1
    bad = tmp_path / "bad.pte"
    bad.write_bytes(raw)
    with pytest.raises(RuntimeError):
        load(bad)
    assert "must have the content that its key is the hash of" in last_error()
    check(load(pte), 2)
    _shim.set_option("verify_weights", False)
    wrong = load(bad)
    honest = load(pte)  # as trusting, but the bad one came first
    _shim.set_option("verify_weights", True)
    check(load(pte), 2)
    one = [torch.ones(2, 8), torch.arange(2)]
    assert wrong.execute(one)[0][0, 5] == honest.execute(one)[0][0, 5] != 6


@pytest.fixture(scope="module")
def decreasing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose sizes are largest where its symbol is smallest: buffers, which
    are made for the symbol's upper bound, have room for 2 of 64 rows."""
    write = serialize.write

    def forged(graph: ir.Graph) -> bytes:
        for value in graph.values:
            pairs = list(zip(value.shape, value.bound))
            value.shape = tuple(f"66 - ({n})" if n != 8 else 8 for n, _ in pairs)
            value.bound = tuple(2 if n != 8 else 8 for n, _ in pairs)
        return write(graph)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serialize, "write", forged)
        return export(tmp_path_factory.mktemp("pte") / "decreasing.pte")


@pytest.mark.parametrize("executor", ["native", "wgpu"])
def test_sizes_beyond_their_upper_bound_write_nothing(
    pte: Path, decreasing: Path, executor: str, capfd: pytest.CaptureFixture[str]
) -> None:
    _shim.set_option("executor", executor)
    canaries = [load(pte) for _ in range(6)]
    for canary in canaries:
        check(canary, 64)
    with pytest.raises(RuntimeError):
        load(decreasing).execute([torch.full((64, 8), 7.0), torch.arange(64)])
    assert "Error::DelegateInvalidCompatibility" in capfd.readouterr().err
    for canary in canaries:
        check(canary, 64)


def test_control_characters_are_shown_as_numbers(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names in an error come from a file, and could steer the terminal of a log."""

    def failing(name: str) -> options.Value:
        raise InvalidInput("na\u00efve\x1b[2J\x9b2J\r\x7f\nnext")

    monkeypatch.setattr(delegate, "get_option", failing)
    with pytest.raises(_shim.Failure):
        _shim.get_option("executor")
    shown = "na\u00efve\\x1b[2J\\x9b2J\\x0d\\x7f"
    assert f"get_option: {shown} next (Error::" in capfd.readouterr().err
    assert f"get_option: {shown}\nnext\n" in last_error()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", last_error())


def test_named_data_is_closed_though_closing_fails(
    pte: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ExecuTorch's map of it goes with the method."""
    held: list[_shim.NamedData] = []
    init, close = delegate.init, delegate.Delegate.close

    def watched(
        method: str,
        blob: _shim.Lent,
        specs: Mapping[str, bytes],
        given: Mapping[str, options.Value],
        data: _shim.NamedData,
    ) -> delegate.Delegate:
        held.append(data)
        return init(method, blob, specs, given, data)

    def failing(self: delegate.Delegate) -> None:
        close(self)
        raise RuntimeError("closing failed")

    monkeypatch.setattr(delegate, "init", watched)
    monkeypatch.setattr(delegate.Delegate, "close", failing)
    method = load(pte)
    (data,) = held
    (key,) = set(re.findall(r"webgpu_[0-9a-f]{32}", pte.read_text(errors="replace")))
    assert data.get(key) is not None
    del method
    assert "closing failed" in last_error()
    assert data.get(key) is None


def test_options_are_never_cut() -> None:
    for name, value, text in (
        ("tuning_file", "x" * 256, "tuning_file: an option's value must have fewer"),
        ("x" * 64, 1, "an option's name must have fewer than 64 bytes, got 64"),
    ):
        with pytest.raises(_shim.Failure, match=text):
            _shim.set_option(name, value)
    _shim.set_option("tuning_file", "x" * 255)
    assert _shim.get_option("tuning_file") == "x" * 255
    options.override({"tuning_file": "x" * 256})
    with pytest.raises(_shim.Failure, match="InvalidArgument"):
        _shim.get_option("tuning_file")
    assert "must have fewer than 256 bytes, got 256" in last_error()


def test_unknown_option_is_refused() -> None:
    with pytest.raises(_shim.Failure, match="InvalidArgument"):
        _shim.set_option("speed", 11)
    with pytest.raises(_shim.Failure, match="InvalidArgument"):
        _shim.get_option("speed")
    with pytest.raises(_shim.Failure, match="InvalidArgument"):
        _shim.set_option("plan_cache", "many")
    _shim.set_option("plan_cache", 5)
    assert _shim.get_option("plan_cache") == 5
    assert _shim.get_option("executor") == "native"
    assert _shim.get_option("release_gil") is False


def test_f16_sums_are_chosen_at_export_or_at_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []

    class Watched(Planner):
        def __init__(self, graph: ir.Graph, caps: Caps) -> None:
            planned.append(caps.f16_accumulate)
            super().__init__(graph, caps)

    monkeypatch.setattr(delegate, "Planner", Watched)
    plain, chosen = tmp_path / "plain.pte", tmp_path / "chosen.pte"
    for path in (plain, chosen):
        program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
        partitioner = WebGPUPartitioner(f16_accumulate=path == chosen)
        edge = to_edge_transform_and_lower(program, partitioner=[partitioner])
        path.write_bytes(edge.to_executorch().buffer)
        load(path)
    _shim.set_option("f16_accumulate", True)
    load(plain)
    assert planned == [False, True, True]


@pytest.mark.parametrize("release_gil", [True, False])
@pytest.mark.parametrize("executor", ["native", "wgpu"])
def test_a_method_per_thread(pte: Path, executor: str, release_gil: bool) -> None:
    _shim.set_option("executor", executor)
    _shim.set_option("release_gil", release_gil)
    failures: list[BaseException] = []

    def work(rows: int) -> None:
        try:
            method = load(pte)
            for number in range(10):
                check(method, rows + number % 3, float(rows))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (3, 17, 60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_method_for_all_threads(pte: Path) -> None:
    """As ExecuTorch allows it, unless the GIL is released."""
    method = load(pte)
    failures: list[BaseException] = []

    def work(value: float) -> None:
        try:
            for _ in range(200):
                check(method, 5, value)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(float(n),)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_lost_device(pte: Path) -> None:
    """In a process of its own: other tests' programs live on the same device."""
    code = """
        import sys
        import torch
        from executorch.runtime import Runtime
        from executorch_webgpu import last_error
        from executorch_webgpu.runtime import device

        inputs = [torch.ones(3, 8), torch.zeros(3, dtype=torch.int64)]
        programs = []

        def load():
            programs.append(Runtime.get().load_program(sys.argv[1]))
            return programs[-1].load_method("forward")

        method = load()
        expected = method.execute(inputs)[0].clone()
        device.get_device().raw.destroy()
        for _ in range(2):
            try:
                method.execute(inputs)
            except RuntimeError as error:
                assert "0x32" in str(error), error
            else:
                raise AssertionError("a lost device ran")
            assert "must be alive, got lost; load the method again" in last_error()
        assert torch.equal(load().execute(inputs)[0], expected)
        del method
        assert torch.equal(load().execute(inputs)[0], expected)
        print("went on")
        """
    done = new_process.run(code, pte, cwd="/")
    assert "went on" in done.stdout, done.stderr


def test_no_adapter(pte: Path) -> None:
    code = """
        import sys
        from executorch.runtime import Runtime
        runtime = Runtime.get()
        print(runtime.backend_registry.is_available(sys.argv[2]))
        try:
            runtime.load_program(sys.argv[1]).load_method("forward")
        except RuntimeError:
            import executorch_webgpu
            print(executorch_webgpu.last_error())
    """
    nothing = {
        "VK_ICD_FILENAMES": "/dev/null",
        "VK_DRIVER_FILES": "/dev/null",
        "__EGL_VENDOR_LIBRARY_FILENAMES": "/dev/null",
    }
    done = new_process.run(code, pte, _shim.BACKEND_ID, cwd="/", **nothing)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False")
    assert "apt install mesa-vulkan-drivers" in done.stdout
    assert "apt install mesa-vulkan-drivers" in done.stderr


def test_another_wgpu_native_is_left_to_python(
    pte: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wgpu-native of another version: a warning, and the right numbers."""
    header = (Path(__file__).parents[1] / "csrc" / "player" / "wgpu_api.h").read_text()
    names = set(re.findall(r"X\((wgpu\w+)\)", header)) - {"wgpuGetVersion"}
    source = tmp_path / "other.c"
    lines = [f"void {name}(void) {{}}" for name in sorted(names)]
    lines.append("unsigned wgpuGetVersion(void) { return 0x01020304; }")
    source.write_text("\n".join(lines))
    other = tmp_path / "libother.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    loaded = ctypes.CDLL(str(other))
    assert loaded.wgpuGetVersion() == 0x01020304
    monkeypatch.setattr(device, "native_library", lambda: str(other))
    delegate._is_native_possible.cache_clear()
    submits = _shim.submissions()
    try:
        with pytest.warns(RuntimeWarning, match=r"wgpu-native must be .*, got 1\.2\.3"):
            method = load(pte)
        check(method, 5)
    finally:
        delegate._is_native_possible.cache_clear()
    assert _shim.submissions() == submits


@pytest.mark.parametrize("release_gil", ["0", "1"])
def test_interpreter_exits_while_threads_execute(pte: Path, release_gil: str) -> None:
    code = """
        import sys, threading, time, torch
        from executorch.runtime import Runtime
        method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
        running = threading.Barrier(4)

        def work():
            own = Runtime.get().load_program(sys.argv[1]).load_method("forward")
            own.execute([torch.ones(2, 8), torch.arange(2)])
            running.wait()
            while True:
                for n in range(2, 65):
                    own.execute([torch.ones(n, 8), torch.arange(n)])

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        running.wait()
        time.sleep(0.1)
        print(method.execute([torch.ones(2, 8), torch.arange(2)])[1].tolist())
    """
    done = new_process.run(code, pte, cwd="/", ET_WEBGPU_RELEASE_GIL=release_gil)
    assert done.stdout.strip() == "[1, 2]", done.stderr
    assert done.returncode == 0, done.stderr


def test_calls_after_shutdown_are_refused(pte: Path) -> None:
    code = """
        import atexit, sys, torch
        from executorch.runtime import Runtime

        def late():
            try:
                method.execute([torch.ones(2, 8), torch.arange(2)])
            except RuntimeError as error:
                print("refused", error)

        # Runs after the handlers that were registered later, ours among them.
        atexit.register(late)
        method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
        method.execute([torch.ones(2, 8), torch.arange(2)])
        sys.keep = method
    """
    done = new_process.run(code, pte, cwd="/")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_not_held_twice(tmp_path: Path) -> None:
    layers = [torch.nn.Linear(2048, 2048, bias=False) for _ in range(8)]
    inputs = (torch.zeros(1, 2048),)
    program = torch.export.export(torch.nn.Sequential(*layers), inputs)
    edge = to_edge_transform_and_lower(program, partitioner=[WebGPUPartitioner()])
    pte = tmp_path / "large.pte"
    with pte.open("wb") as file:
        edge.to_executorch().write_to_file(file)
    code = """
        import sys
        from executorch.runtime import Runtime
        from executorch_webgpu.runtime import device

        def kilobytes(name):
            with open("/proc/self/status") as lines:
                return next(int(l.split()[1]) for l in lines if l.startswith(name))

        device.get_device()
        program = Runtime.get().load_program(sys.argv[1])
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = kilobytes("VmRSS")
        method = program.load_method("forward")
        print(kilobytes("VmHWM") - before)
    """
    done = new_process.run(code, pte, cwd="/")
    assert done.returncode == 0, done.stderr
    weights = 8 * 2048 * 2048 * 4
    # llvmpipe's GPU memory is the process's own, so W itself is in the peak.
    assert int(done.stdout) * 1024 <= weights + (64 << 20)
