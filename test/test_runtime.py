"""The executors, and the delegate's Python half, on hand-written plans."""

from __future__ import annotations

import functools
import gc
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from executorch_webgpu import _shim, options
from executorch_webgpu.errors import (
    DeviceError,
    InvalidBlob,
    InvalidInput,
    LimitExceeded,
    MissingData,
    NoAdapter,
)
from executorch_webgpu.ir.dtypes import DType, Storage
from executorch_webgpu.ir.named_data import content_key
from executorch_webgpu.plan.plan import (
    PARAMS_ALIGN,
    Buffer,
    Constant,
    Dispatch,
    Pipeline,
    Plan,
    Port,
    PortKind,
    Role,
)
from executorch_webgpu.runtime import delegate as runtime
from executorch_webgpu.runtime import device, upload
from executorch_webgpu.runtime.executor import Program, WgpuExecutor
from executorch_webgpu.runtime.upload import Uploader

# y[i] = x[i] * w[i] + p.add, and count[i] = state[i], which counts the calls.
AXPY = """
struct P { n: u32, add: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> state: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read_write> count: array<f32>;
@group(0) @binding(5) var<uniform> p: P;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  if (i >= p.n) { return; }
  state[i] += 1.0;
  count[i] = state[i];
  y[i] = x[i] * w[i] + p.add;
}
"""
COPY = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) { y[id.x] = x[id.x]; }
"""
# Reports index 7 where 5 is the limit, as a kernel that gathers would.
REPORT = """
@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> status: array<i32>;
@compute @workgroup_size(1)
fn main() {
  if (x[0] >= 5) {
    status[0] = 1; status[1] = 3; status[2] = x[0]; status[3] = 5;
  }
}
"""
BOUND = 300
WEIGHTS = np.arange(BOUND, dtype=np.float32)
W = content_key(DType.FLOAT32, WEIGHTS.shape, [WEIGHTS.data])
DATA = {W: WEIGHTS.tobytes()}


def axpy(n: int, add: float = 1.0) -> Plan:
    """A plan of two equal dispatches over `n` of at most BOUND elements."""
    size = BOUND * 4
    buffers = (
        Buffer(Role.INPUT, size, "in0"),
        Buffer(Role.CONSTANT, size, "w|f32"),
        Buffer(Role.STATE, size, "count"),
        Buffer(Role.OUTPUT, size, "out0"),
        Buffer(Role.OUTPUT, size, "out1"),
        Buffer(Role.PARAMS, 512, "params512"),
    )
    block = struct.pack("<If", n, add)
    block += bytes(PARAMS_ALIGN - len(block))
    steps = tuple(
        Dispatch(0, (0, 1, 2, 3, 4, 5), at, 8, (-(-n // 64), 1, 1), "aten.axpy", 0)
        for at in (0, PARAMS_ALIGN)
    )
    f32 = (DType.FLOAT32, Storage.F32)
    return Plan(
        buffers,
        (
            Constant(1, W, *f32, (BOUND,)),
            Constant(2, "", *f32, (BOUND,)),
        ),
        (Pipeline("axpy", AXPY, ("read", "read", *["write"] * 3, "uniform")),),
        steps,
        block * 2,
        (Port("x", PortKind.TENSOR, 0, *f32, (n,)),),
        (
            Port("y", PortKind.TENSOR, 3, *f32, (n,)),
            Port("count", PortKind.TENSOR, 4, *f32, (n,)),
        ),
    )


def copy_plan(dtype: DType, storage: Storage, n: int) -> Plan:
    """The output has the input's words, so only conversion happens."""
    port = Port("x", PortKind.TENSOR, 0, dtype, storage, (n,))
    size = 4 * n + 16
    buffers = (Buffer(Role.INPUT, size, "in0"), Buffer(Role.OUTPUT, size, "out0"))
    step = Dispatch(0, (0, 1), -1, 0, (-(-n // 64), 1, 1), "copy", 0)
    out = replace(port, name="y", buffer=1)
    copy = Pipeline("copy", COPY, ("read", "write"))
    return Plan(buffers, (), (copy,), (step,), b"", (port,), (out,))


@functools.cache
def with_own_memory() -> device.Device:
    """A device that cannot map the buffers of inputs and outputs."""
    return device.Device(device._choose_adapter(""), may_share=False)


@pytest.fixture(params=["mapped", "staged"])
def gpu(request: pytest.FixtureRequest) -> Iterator[device.Device]:
    """The process's device, and one that needs staging buffers; the test must leave
    as much on it as it found."""
    gpu = device.get_device() if request.param == "mapped" else with_own_memory()
    assert gpu.is_shared == (request.param == "mapped")
    gc.collect()
    before = alive(gpu)
    yield gpu
    # A caught exception may still hold the frames that hold a program.
    gc.collect()
    assert alive(gpu) == before


def alive(gpu: device.Device) -> tuple[int, int, int]:
    now = gpu.counters
    return now.buffers, now.buffer_bytes, now.bind_groups


@pytest.fixture
def executor(gpu: device.Device) -> Iterator[WgpuExecutor]:
    executor = WgpuExecutor(gpu, "test", DATA.get)
    yield executor
    executor.close()


def play(program: Program, *inputs: np.ndarray, native: bool) -> list[np.ndarray]:
    """Plays with either executor, in host types where native converts."""
    plan, executor = program.plan, program.executor
    if native:
        assert runtime._is_native_possible()
        outputs = [np.zeros(p.shape, p.dtype.numpy) for p in plan.outputs]
        replay = program.replay or program.native_replay(executor.session)
        replay.run(executor.device.lock, list(inputs), outputs)
        return outputs
    outputs = [np.zeros(p.shape, p.storage.numpy) for p in plan.outputs]
    program.play(
        [memoryview(x).cast("B") for x in inputs],
        [memoryview(y).cast("B") for y in outputs],
    )
    return outputs


def play_or_diagnose(program: Program, x: np.ndarray, native: bool) -> None:
    """As the shim does it: Python knows the names that C++ does not."""
    try:
        play(program, x, native=native)
    except _shim.Failure as failure:
        program.diagnose(str(failure))


def counts(gpu: device.Device) -> tuple[int, int, int]:
    made = gpu.counters
    return made.created_buffers, made.created_pipelines, made.created_bind_groups


@pytest.mark.parametrize("native", [True, False])
def test_plays_a_plan(executor: WgpuExecutor, native: bool) -> None:
    program = executor.prepare(axpy(BOUND))
    x = np.random.default_rng(0).standard_normal(BOUND).astype(np.float32)
    y, count = play(program, x, native=native)
    np.testing.assert_allclose(y, x * WEIGHTS + 1, rtol=1e-6)
    np.testing.assert_array_equal(count, 2)


def test_outputs_above_a_buffer_are_read_in_turns(
    gpu: device.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fits a buffer, but not all of them one staging buffer."""
    monkeypatch.setattr(gpu, "caps", replace(gpu.caps, max_buffer=BOUND * 4))
    made = make_delegate(gpu, axpy(BOUND), DATA)
    try:
        program = made.prepare([(BOUND,)])
        assert (program.replay is None) is not gpu.is_shared
        x = np.random.default_rng(0).standard_normal(BOUND).astype(np.float32)
        y, count = play(program, x, native=False)
        np.testing.assert_allclose(y, x * WEIGHTS + 1, rtol=1e-6)
        np.testing.assert_array_equal(count, 2)
    finally:
        made.close()


def test_executors_agree_and_share_state(executor: WgpuExecutor) -> None:
    program = executor.prepare(axpy(113))
    x = np.random.default_rng(1).standard_normal(113).astype(np.float32)
    first = play(program, x, native=True)
    second = play(program, x, native=False)
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1] + 2, second[1])


@pytest.mark.parametrize("native", [True, False])
def test_known_shape_creates_nothing(executor: WgpuExecutor, native: bool) -> None:
    big, small = executor.prepare(axpy(BOUND, 1.0)), executor.prepare(axpy(7, 2.0))
    x = np.ones(BOUND, np.float32)
    play(big, x, native=native)
    play(small, x[:7], native=native)
    before = counts(executor.device)
    for _ in range(3):
        # Parameters follow the plan that is played.
        assert play(big, x, native=native)[0][0] == 1
        assert play(small, x[:7], native=native)[0][0] == 2
    executor.prepare(axpy(BOUND, 1.0))
    assert counts(executor.device) == before


def test_players_take_turns(executor: WgpuExecutor) -> None:
    """Both write the parameters of their plan into one buffer."""
    big, small = executor.prepare(axpy(BOUND, 1.0)), executor.prepare(axpy(7, 2.0))
    x = np.ones(BOUND, np.float32)
    for native in (True, False):
        assert play(big, x, native=native)[0][0] == 1
        assert play(small, x[:7], native=not native)[0][0] == 2
        assert play(big, x, native=native)[0][0] == 1


def test_bind_groups_are_shared_between_plans(executor: WgpuExecutor) -> None:
    big, small = executor.prepare(axpy(BOUND)), executor.prepare(axpy(7))
    assert [g.handle for g in big.groups] == [g.handle for g in small.groups]
    assert [b.handle for b in big.buffers] == [b.handle for b in small.buffers]


@pytest.mark.parametrize(
    ("dtype", "storage"),
    [
        (DType.FLOAT32, Storage.F32),
        (DType.FLOAT16, Storage.F16),
        (DType.FLOAT16, Storage.F32),
        (DType.INT32, Storage.I32),
        (DType.INT64, Storage.I32),
        (DType.INT16, Storage.I32),
        (DType.INT8, Storage.I32),
        (DType.UINT8, Storage.I32),
        (DType.BOOL, Storage.I32),
        (DType.BFLOAT16, Storage.F32),
    ],
)
@pytest.mark.parametrize("n", [0, 1, 3, 4097])
def test_every_value_survives_the_boundary(
    executor: WgpuExecutor, dtype: DType, storage: Storage, n: int
) -> None:
    rng = np.random.default_rng(n)
    kind = dtype.numpy
    if kind == np.bool_:
        x = rng.integers(0, 2, n).astype(kind)
    else:
        raw = rng.integers(0, 256, n * kind.itemsize, np.uint8)
        x = raw.view(kind)
        if dtype is DType.INT64:
            x = (x >> 32).copy()
    (y,) = play(executor.prepare(copy_plan(dtype, storage, n)), x, native=True)
    if dtype is DType.BFLOAT16:
        # bfloat16 shows as its bits: a NaN may come back as another NaN.
        nan = (x & 0x7FFF) > 0x7F80
        x, y = np.where(nan, 0x7FC0, x), np.where(nan, 0x7FC0 | (y & 0), y)
    np.testing.assert_array_equal(x, y)


def test_all_halves_convert_exactly(executor: WgpuExecutor) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    plan = copy_plan(DType.FLOAT16, Storage.F32, x.size)
    (y,) = play(executor.prepare(plan), x, native=True)
    np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(np.signbit(x), np.signbit(y))


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_rounds_to_nearest_even(executor: WgpuExecutor, dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x = rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    ties = (np.arange(1 << 12, dtype=np.uint32) * 0x1000 + 0x38000000).view(np.float32)
    edges = [0, -0.0, np.inf, -np.inf, 65504, 65519.996, 65520, 1e-8, 6e-8, 5.96e-8]
    x = np.concatenate([x, ties, np.array(edges, np.float32)])
    x = x[~np.isnan(x)]
    plan = copy_plan(DType.FLOAT32, Storage.F32, x.size)
    (out,) = plan.outputs
    program = executor.prepare(replace(plan, outputs=(replace(out, dtype=dtype),)))
    (y,) = play(program, x, native=True)
    kind = torch.float16 if dtype is DType.FLOAT16 else torch.bfloat16
    expected = torch.from_numpy(x).to(kind).view(torch.int16).numpy()
    np.testing.assert_array_equal(y.view(np.int16), expected)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_int64_that_does_not_fit_is_refused(executor: WgpuExecutor, value: int) -> None:
    program = executor.prepare(copy_plan(DType.INT64, Storage.I32, 5000))
    x = np.zeros(5000, np.int64)
    x[[0, 1, 2]] = [2**31 - 1, -(2**31), 5]
    play(program, x, native=True)
    x[4321] = value
    with pytest.raises(_shim.Failure, match=rf"x: int64 .* got {value} at 4321"):
        play(program, x, native=True)


@pytest.mark.parametrize("native", [True, False])
def test_reported_index_is_an_error(executor: WgpuExecutor, native: bool) -> None:
    i32 = (DType.INT32, Storage.I32)
    plan = Plan(
        (Buffer(Role.INPUT, 16, "in0"), Buffer(Role.STATUS, 16, "status")),
        (),
        (Pipeline("report", REPORT, ("read", "write")),),
        (Dispatch(0, (0, 1), -1, 0, (1, 1, 1), "aten.embedding.default", 3),),
        b"",
        (Port("ids", PortKind.TENSOR, 0, *i32, (1,)),),
        (),
        status=1,
    )
    program = executor.prepare(plan)
    for bad, good in ((7, 4), (9, 0)):
        text = rf"aten.embedding.default: index must be in \[0, 5\), got {bad}"
        with pytest.raises((InvalidInput, _shim.Failure), match=text):
            play(program, np.array([bad], np.int32), native=native)
        play(program, np.array([good], np.int32), native=native)


def test_state_is_reset(executor: WgpuExecutor) -> None:
    program = executor.prepare(axpy(5))
    x = np.zeros(5, np.float32)
    for _ in range(2):
        assert play(program, x, native=True)[1][0] == 2
        assert play(program, x, native=True)[1][0] == 4
        executor.reset_state()


def test_constants_are_shared_and_freed(gpu: device.Device) -> None:
    asked: list[str] = []

    def get(key: str) -> bytes:
        asked.append(key)
        return DATA[key]

    first, second = (WgpuExecutor(gpu, name, get) for name in "ab")
    try:
        one, two = first.prepare(axpy(9)), second.prepare(axpy(9))
        assert one.buffers[1] is two.buffers[1]
        assert one.buffers[2] is not two.buffers[2]
        assert asked == [W]
        first.close()
        y, _ = play(two, np.ones(9, np.float32), native=True)
        np.testing.assert_array_equal(y, WEIGHTS[:9] + 1)
    finally:
        second.close()
    # What nobody uses is not kept: it is uploaded again.
    third = WgpuExecutor(gpu, "c", get)
    third.prepare(axpy(9))
    third.close()
    assert asked == [W, W]


def test_one_key_has_one_content(gpu: device.Device) -> None:
    """A program that comes first with another's key cannot choose its content."""
    forged = {W: (WEIGHTS + 1).tobytes()}
    with pytest.raises(InvalidBlob, match=rf"'{W}' must have .* got 'webgpu_.*damaged"):
        make_delegate(gpu, axpy(BOUND), forged)
    first = make_delegate(gpu, axpy(BOUND), forged, verify_weights=False)
    honest = make_delegate(gpu, axpy(BOUND), DATA)
    try:
        x = np.ones(BOUND, np.float32)
        for made, added in ((first, 2), (honest, 1)):
            y, _ = play(made.prepare([(BOUND,)]), x, native=True)
            np.testing.assert_array_equal(y, WEIGHTS + added)
    finally:
        first.close()
        honest.close()


@pytest.mark.parametrize("count", [1 << 10, 3 << 20])
def test_a_flipped_bit_is_found_whether_hashed_in_a_thread_or_not(
    gpu: device.Device, count: int
) -> None:
    data = np.zeros(count, np.float32)
    key = content_key(DType.FLOAT32, data.shape, [data.data])
    spec = Buffer(Role.CONSTANT, data.nbytes, key)
    constant = Constant(0, key, DType.FLOAT32, Storage.F32, data.shape)
    buffer = gpu.storage_buffer(spec)
    asked = Uploader(lambda _: data.data, "test", True)
    asked.fill(gpu, buffer, constant)
    asked.verify()
    data.view(np.uint8)[-3] ^= 4
    for wrong in (constant, replace(constant, dtype=DType.INT32)):
        asked = Uploader(lambda _: data.data, "test", True)
        asked.fill(gpu, buffer, wrong)
        for _ in range(2):
            with pytest.raises(InvalidBlob, match="the file is damaged"):
                asked.verify()
        asked.give_up()
        asked.verify()
    buffer.free()


def test_few_bytes_are_uploaded_and_not_yet_hashed(
    gpu: device.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "_BEHIND", 0)
    data = np.zeros(1 << 16, np.float32)
    constant = Constant(0, "another key", DType.FLOAT32, Storage.F32, data.shape)
    buffer = gpu.storage_buffer(Buffer(Role.CONSTANT, data.nbytes, "another key"))
    asked = Uploader(lambda _: data.data, "test", True)
    with pytest.raises(InvalidBlob, match="the file is damaged"):
        asked.fill(gpu, buffer, constant)
    asked.give_up()
    buffer.free()


@pytest.mark.parametrize(
    "view",
    [
        ((2, 2), (-BOUND, BOUND + 1), 0),  # first and last element are inside
        ((2, 2), (BOUND + 1, -BOUND), BOUND - 1),
        ((3,), (-1,), 1),
        ((1,), (1,), -1),
        ((2,), (1,), BOUND - 1),
        ((2,), (2**62,), 0),
        ((-3, 2), (1, 1), 5),
    ],
)
def test_a_view_beyond_its_data_is_refused(
    executor: WgpuExecutor, view: tuple[tuple[int, ...], tuple[int, ...], int]
) -> None:
    plan = axpy(BOUND)
    first, *rest = plan.constants
    wrong = replace(plan, constants=(replace(first, view=view), *rest))
    with pytest.raises(InvalidBlob, match=f"must lie in {BOUND} elements"):
        executor.prepare(wrong)


def test_a_view_may_go_backwards(executor: WgpuExecutor) -> None:
    plan = axpy(BOUND)
    first, *rest = plan.constants
    # The stride of a dimension of one element does not matter.
    view = ((1, 100, 3), (2**62, -3, 1), 297)
    program = executor.prepare(
        replace(plan, constants=(replace(first, view=view), *rest))
    )
    y, _ = play(program, np.ones(BOUND, np.float32), native=True)
    turned = WEIGHTS.reshape(100, 3)[::-1].reshape(-1)
    np.testing.assert_array_equal(y, turned + 1)


def larger(plan: Plan, what: str) -> Plan:
    """A plan that needs more than the buffers of `axpy(BOUND)` hold."""
    step, *rest = plan.dispatches
    wide = (BOUND * 4 + 16,)
    match what:
        case "x":
            ports = tuple(replace(port, shape=wide) for port in plan.inputs)
            return replace(plan, inputs=ports)
        case "count":
            y, count = plan.outputs
            return replace(plan, outputs=(y, replace(count, shape=wide)))
        case "parameters":
            return replace(plan, params=bytes(1024))
        case "state count":
            buffers = list(plan.buffers)
            buffers[2] = replace(buffers[2], size=2 * BOUND * 4)
            return replace(plan, buffers=tuple(buffers))
        case _:
            ranges = (None, None, None, (256, BOUND * 4), None)
            return replace(plan, dispatches=(replace(step, ranges=ranges), *rest))


@pytest.mark.parametrize(
    "what", ["x", "count", "parameters", "state count", "aten.axpy"]
)
def test_what_does_not_fit_its_buffer_is_refused_when_it_is_planned(
    executor: WgpuExecutor, what: str
) -> None:
    program = executor.prepare(axpy(BOUND))
    x = np.ones(BOUND, np.float32)
    before = play(program, x, native=True)[0]
    with pytest.raises(InvalidBlob, match=rf"{what}: must fit its buffer of \d+ bytes"):
        executor.prepare(larger(axpy(BOUND), what))
    np.testing.assert_array_equal(play(program, x, native=True)[0], before)


@pytest.mark.parametrize("what", ["x", "count", "parameters"])
def test_a_replay_holds_its_ports_to_their_buffers(
    executor: WgpuExecutor, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C++ writes into mapped memory, and does not rely on Python for its size."""
    executor.prepare(axpy(BOUND))
    monkeypatch.setattr(Program, "_check_sizes", lambda self: None)
    program = executor.prepare(larger(axpy(BOUND), what))
    with pytest.raises(_shim.Failure, match=rf"{what} must fit a buffer of \d+ bytes"):
        program.native_replay(executor.session)


def test_pipelines_are_freed_but_for_the_last(
    gpu: device.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(executor: WgpuExecutor, number: int) -> Program:
        plan = axpy(BOUND)
        text = f"const number = {number};{AXPY}"
        return executor.prepare(
            replace(plan, pipelines=(replace(plan.pipelines[0], wgsl=text),))
        )

    monkeypatch.setattr(device, "KEPT_PIPELINES", 2)
    monkeypatch.setattr(gpu, "_kept", OrderedDict())
    gc.collect()
    before = gpu.counters.pipelines
    executor = WgpuExecutor(gpu, "test", DATA.get)
    try:
        programs = [compiled(executor, number) for number in range(4)]
        assert gpu.counters.pipelines == before + 4
        made = gpu.counters.created_pipelines
        assert compiled(executor, 0).pipelines[0] is programs[0].pipelines[0]
        del programs
    finally:
        executor.close()
    gc.collect()
    assert gpu.counters.pipelines == before + 2
    executor = WgpuExecutor(gpu, "test", DATA.get)
    try:
        compiled(executor, 3)  # loaded again soon after
        assert gpu.counters.created_pipelines == made
    finally:
        executor.close()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, f"named data '{W}' must exist"),
        ({W: b"1234"}, f"named data '{W}' must have 1200 bytes, got 4"),
    ],
)
def test_bad_named_data_leaves_nothing(
    gpu: device.Device, data: Mapping[str, bytes], text: str
) -> None:
    with pytest.raises(MissingData, match=text):
        make_delegate(gpu, axpy(BOUND), data)


def test_binding_above_the_limit_is_refused(gpu: device.Device) -> None:
    plan = axpy(BOUND)
    size = gpu.caps.max_binding + 16
    buffers = (replace(plan.buffers[0], size=size), *plan.buffers[1:])
    text = rf"max-storage-buffer-binding-size .* {gpu.caps.max_binding} .* {size}"
    with pytest.raises(LimitExceeded, match=text):
        make_delegate(gpu, replace(plan, buffers=buffers), DATA)


def test_buffer_above_the_limit_is_refused(gpu: device.Device) -> None:
    plan = axpy(BOUND)
    size = gpu.caps.max_buffer + 1
    buffers = (*plan.buffers, Buffer(Role.SCRATCH, size, "s0"))
    text = rf"max-buffer-size .* {gpu.caps.max_buffer} .* {size}"
    with pytest.raises(LimitExceeded, match=text):
        make_delegate(gpu, replace(plan, buffers=buffers), DATA)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nope[i]", "Shader 'axpy' parsing error: no definition in scope for id"),
        ("1i", "Operation Multiply can't work with"),
    ],
)
def test_wgsl_error_names_op_call_and_kernel(
    gpu: device.Device, text: str, said: str
) -> None:
    plan = axpy(BOUND)
    bad = replace(plan.pipelines[0], wgsl=AXPY.replace("x[i]", text))
    with pytest.raises(DeviceError) as caught:
        make_delegate(gpu, replace(plan, pipelines=(bad,)), DATA)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"aten.axpy (call 0, kernel axpy): {said}")
    assert any(f"{text} * w[i]" in line for line in rest)


@pytest.mark.parametrize("native", [True, False])
def test_dispatch_error_names_op_and_creates_no_crash(
    executor: WgpuExecutor, native: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = axpy(BOUND)
    good, bad = plan.dispatches
    bad = replace(bad, groups=(1 << 20, 1, 1), label="aten.bad", call=17)
    program = executor.prepare(replace(plan, dispatches=(good, bad)))
    x = np.zeros(BOUND, np.float32)
    with pytest.raises(DeviceError, match=r"aten.bad \(call 17, kernel axpy\)"):
        play_or_diagnose(program, x, native)
    assert "Validation" not in capfd.readouterr().err
    play(executor.prepare(plan), x, native=native)


def test_threads_play_together(executor: WgpuExecutor) -> None:
    programs = [executor.prepare(axpy(n, float(n))) for n in (3, 113, BOUND)]
    failures: list[BaseException] = []

    def work(program: Program) -> None:
        n = program.plan.inputs[0].numel
        x = np.full(n, 0.5, np.float32)
        try:
            for _ in range(20):
                y, _ = play(program, x, native=True)
                np.testing.assert_array_equal(y, x * WEIGHTS[:n] + n)
        except BaseException as error:
            failures.append(error)

    for program in programs:
        program.replay = program.native_replay(executor.session)
    threads = [threading.Thread(target=work, args=(p,)) for p in programs * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def make_delegate(
    gpu: device.Device,
    bound: Plan,
    data: Mapping[str, bytes],
    verify_weights: bool = True,
) -> runtime.Delegate:
    def plan(live: Sequence[runtime.Live]) -> Plan:
        (shape,) = live
        assert isinstance(shape, tuple)
        return axpy(shape[0])

    chosen = options.Options(verify_weights=verify_weights)
    return runtime.Delegate("test", gpu, chosen, bound, plan, data.get)


def test_delegate_reuses_the_upper_bound(gpu: device.Device) -> None:
    others = runtime.stats().delegates
    delegate = make_delegate(gpu, axpy(BOUND), DATA)
    assert delegate.int_is_key == [False]
    assert delegate.output_count == 2
    bound = delegate.prepare([(BOUND,)])
    assert bound is delegate.prepare([(BOUND,)])
    assert delegate.prepare([(7,)]).plan.inputs[0].shape == (7,)
    assert runtime.stats().delegates == others + 1
    delegate.close()
    assert runtime.stats().delegates == others
    del bound


def test_adapter_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NoAdapter, match="got 'no such adapter'"):
        device.get_device("no such adapter")


def test_options_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options.current({"executor": "wgpu"}).executor == "wgpu"
    with pytest.raises(InvalidInput, match="option must be one of"):
        options.current({"nonsense": 1})
    with pytest.raises(InvalidInput, match="must be 'native' or 'wgpu', got 'gpu'"):
        options.current({"executor": "gpu"})
    with pytest.raises(InvalidInput, match="plan_cache: must be of type int, got 'x'"):
        options.current({"plan_cache": "x"})
    monkeypatch.setenv("ET_WEBGPU_PLAN_CACHE", "3")
    assert options.current().plan_cache == 3
    monkeypatch.setenv("ET_WEBGPU_RELEASE_GIL", "maybe")
    with pytest.raises(InvalidInput, match="ET_WEBGPU_RELEASE_GIL: must be 0 or 1"):
        options.current()


def test_a_program_gives_the_weakest_options(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = {"f16_accumulate": b"1", "external_weights": b"weights"}
    assert options.current(specs=specs).f16_accumulate
    assert not options.current({"f16_accumulate": False}, specs).f16_accumulate
    monkeypatch.setenv("ET_WEBGPU_F16_ACCUMULATE", "0")
    assert not options.current(specs=specs).f16_accumulate
    with pytest.raises(InvalidBlob, match="f16_accumulate: must be 0 or 1, got b'yes'"):
        options.current(specs={"f16_accumulate": b"yes"})


def test_an_adapter_that_was_found_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    choose = device._choose_adapter

    def watch(name: str) -> Any:
        looked.append(name)
        return choose(name)

    monkeypatch.setattr(device, "_choose_adapter", watch)
    monkeypatch.setattr(device, "_devices", {})
    monkeypatch.setattr(device, "_adapters", {})
    device.check_available()
    device.check_available()
    made = device.get_device()
    assert device.get_device() is made
    device.check_available()
    assert len(looked) == 1
