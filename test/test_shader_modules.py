"""Kernels whose loops wgpu does not count: how they are made, and why that is safe.

Indices are confined as before, and all loops end. That results are those of kernels
with all checks is in `test_dawn.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu
from test_dawn import play_wgpu
from test_tint import Builder, filled, real
from wgpu.backends.wgpu_native import _api
from wgsl_compilers import CAPS

from executorch_webgpu import ir, options
from executorch_webgpu.errors import DeviceError, Unsupported
from executorch_webgpu.plan.plan import Pipeline
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import (
    delegate,
    device,
    shader_modules,
    tuning,
    tuning_file,
)

ROOT = Path(__file__).parent.parent
PLAIN = "wgpuDeviceCreateShaderModule"
TRUSTED = f"{PLAIN}Trusted"


# -- how modules are made ----------------------------------------------------------

# The first element is the index of what is read, of what is set in `few`, and of what
# is written. `few` and `others` are next to each other in workgroup memory.
_ASTRAY = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> few: array<u32, 4>;
var<workgroup> others: array<u32, 4>;
@compute @workgroup_size(1)
fn main() {
  for (var i = 0; i < 4; i++) { few[i] = 1u; others[i] = 2u; }
  few[x[0]] = 3u;
  y[0] = x[x[0] + 95u];
  for (var i = 0; i < 4; i++) { y[1 + i] = few[i]; y[5 + i] = others[i]; }
  y[x[0] + 95u] = 9u;
}
"""
ASTRAY = Pipeline("astray", _ASTRAY, ("read", "write"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int | None]]]:
    """The functions of wgpu-native by which modules are made, with their flags."""
    calls: list[tuple[str, int | None]] = []

    def noting(name: str) -> Any:
        real_function = getattr(_api.libf, name)

        def call(device: Any, descriptor: Any, *flags: int) -> Any:
            calls.append((name, *flags) if flags else (name, None))
            return real_function(device, descriptor, *flags)

        return call

    for name in (PLAIN, TRUSTED):
        monkeypatch.setattr(_api.libf, name, noting(name))
    monkeypatch.setattr(device, "_devices", {})
    yield calls
    shader_modules.can_omit_counters.cache_clear()


BOUNDS = 1  # WGPUShaderRuntimeChecks_BoundsChecks
WITHOUT_COUNTERS = (TRUSTED, BOUNDS)
CHECKED = (PLAIN, None)


def softmax(rows: int, columns: int) -> ir.Graph:
    """Along the first dimension."""
    name = "aten._softmax.default"
    return Builder(name, filled(name, [real(rows, columns), 0, False])).graph


def load(chosen: options.Options) -> None:
    gpu = device.get_device()
    bound = Planner(softmax(8, 16), gpu.caps).upper_bound()
    with gpu.lock:
        loaded = delegate.Delegate(
            "test", gpu, chosen, bound, lambda live: bound, lambda key: None
        )
    loaded.close()


def test_an_option_has_everything_checked(
    made: list[tuple[str, int | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(options.current())
    assert set(made) == {WITHOUT_COUNTERS}
    count = len(made)
    monkeypatch.setenv("ET_WEBGPU_CHECK_KERNELS", "1")
    load(options.current())
    # Compiled again, though the texts were known, and kept apart.
    assert made[count:] == [CHECKED] * count
    load(options.current({"check_kernels": False}))
    load(options.current())
    assert len(made) == 2 * count


@pytest.mark.parametrize("is_checked", [False, True])
def test_autotune_measures_the_kernels_that_will_run(
    is_checked: bool, made: list[tuple[str, int | None]], tmp_path: Path
) -> None:
    gpu = device.get_device()
    path = tmp_path / "tuning.json"
    planner = tuning.TunedPlanner(softmax(8, 16), gpu, gpu.caps, path, is_checked)
    with gpu.lock:
        planner.upper_bound()
    assert set(made) == {CHECKED if is_checked else WITHOUT_COUNTERS}
    (key,) = tuning_file.read(path)
    assert key.endswith(" | checked") == is_checked


@pytest.mark.parametrize("lacks", ["the version", "the function"])
def test_another_wgpu_checks_everything(
    lacks: str,
    made: list[tuple[str, int | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if lacks == "the version":
        monkeypatch.setattr(wgpu, "version_info", (0, 33, 0))
    else:
        monkeypatch.delattr(_api.libf, TRUSTED)
    shader_modules.can_omit_counters.cache_clear()
    load(options.Options())
    assert set(made) == {CHECKED}
    gpu = device.get_device()
    assert tuning.device_key(gpu) == tuning.device_key(gpu, True)


@pytest.mark.parametrize("is_checked", [False, True])
def test_an_error_says_where_and_why(is_checked: bool) -> None:
    bad = replace(ASTRAY, wgsl=_ASTRAY.replace("= 9u", "= nope"))
    with pytest.raises(DeviceError) as caught:
        device.get_device().pipeline(bad, "aten.bad (call 3)", is_checked)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith("aten.bad (call 3): Shader 'astray' parsing error: no def")
    assert any("95u] = nope" in line for line in rest)


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_lost_device_is_noticed(is_checked: bool) -> None:
    gpu = device.Device(device._choose_adapter(""))
    _api.libf.wgpuDeviceDestroy(gpu.raw._internal)
    with pytest.raises(DeviceError, match="must be alive, got lost"):
        gpu.pipeline(ASTRAY, "aten.late (call 3)", is_checked)
    assert gpu.is_lost


@pytest.mark.parametrize("is_checked", [False, True])
def test_no_index_leaves_its_binding_or_array(is_checked: bool) -> None:
    gpu = device.get_device()
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST
    x, y = (gpu.buffer(n, 1024, usage | wgpu.BufferUsage.COPY_SRC) for n in "xy")
    # 7 is beyond the binding of 64 elements, in which there is none.
    gpu.write(x, 0, np.repeat(np.uint32([5, 7]), [64, 192]))
    pipeline = gpu.pipeline(ASTRAY, "test", is_checked)
    group = gpu.bind_group(pipeline, [(x, 0, 256), (y, 0, 256)], "test")
    encoder = gpu.raw.create_command_encoder()
    encoding = encoder.begin_compute_pass()
    encoding.set_pipeline(pipeline.raw)
    encoding.set_bind_group(0, group.raw)
    encoding.dispatch_workgroups(1)
    encoding.end()
    gpu.queue.submit([encoder.finish()])
    written = np.frombuffer(gpu.queue.read_buffer(y.raw), np.uint32)
    # A driver gives 0 for what is outside, or wgpu takes the last element instead.
    assert written[0] in (0, 5)
    assert written[1:9].tolist() == [1, 1, 1, 3, 2, 2, 2, 2]
    assert not written[64:].any()


# -- loops -------------------------------------------------------------------------

_LOOP = re.compile(r"\b(?:for|while|loop)\b *(?:\(.*\))? *\{")

# Counts up by a constant or down to 0, or halves or doubles. A name in braces is a
# number in the text that Python makes.
_STEP = r"(?:\+\+| \+= (?:[A-Z0-9_ */]|\{[\w.]+\})+)"
_COUNTED = (
    rf"for \((?:var \w+ = .+)?; (\w+) (?:< [^|]+|<= \d[^|]*); \1{_STEP}\)",
    r"for \(var (\w+) = .+; \1 >=? 0; \1(?:--| -= 1| /= 2)\)",
    r"for \(var (\w+) = 1u; \1 < min\(u32\(WG\), 128u\); \1 \*= 2u\)",
)

# The files that have other loops, and why those end.
_OTHER_LOOPS = {
    "arithmetic": "bits, a shift or a remainder get fewer",
    "exact": "bits get fewer",
    "lane_fold": "rows of at most MAX_ELEMENTS, in steps of at least 1",
    "lane_moments": "rows of at most MAX_ELEMENTS, in steps of at least 1",
    "lane_softmax": "rows of at most MAX_ELEMENTS, in steps of at least 1",
    "medians": "a binary search of at most MAX_ELEMENTS",
    "nonzero_places": "a binary search of at most MAX_ELEMENTS",
    "pool_max": "a dilation is at least 1 and at most 2^24 (check_windows)",
    "product": "a binary search of at most MAX_ELEMENTS",
    "run_lengths": "a binary search of at most MAX_ELEMENTS",
    "running_subgroups": "bits get fewer",
    "scatter_search": "a binary search of at most MAX_ELEMENTS",
    "search_sorted": "a binary search of at most MAX_ELEMENTS",
    "softmax_serial": "a step is a row's stride, a block some of its strides",
    "sort_merge": "a binary search of at most MAX_ELEMENTS",
}


def loops_of(text: str) -> Iterator[tuple[str, str]]:
    """The head and the body of every loop."""
    for match in _LOOP.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield match[0].rstrip("{ "), text[match.end() : end]


def counts(head: str, body: str) -> bool:
    """Whether a loop has a counter that nothing else changes."""
    for form in _COUNTED:
        if match := re.fullmatch(form, head):
            return not re.search(rf"\b{match[1]}(?:\+\+|--| [-+*/]?= )", body)
    return False


def test_every_loop_ends() -> None:
    """Each counts; where one does not, a reader has to find why it ends."""
    files = [*(ROOT / "wgsl").rglob("*.wgsl")]
    for room in ("ops", "plan"):
        files += (ROOT / "executorch_webgpu" / room).rglob("*.py")
    others: dict[str, list[str]] = {}
    total = 0
    for path in files:
        # In Python, the text of a kernel is a format, in which braces are doubled.
        text = path.read_text().replace("{{", "{").replace("}}", "}")
        for head, body in loops_of(text):
            total += 1
            if not counts(head, body):
                others.setdefault(path.stem, []).append(head)
    assert total > 100
    assert others.keys() == _OTHER_LOOPS.keys(), others


def test_a_loop_that_may_not_end_is_noticed() -> None:
    assert counts("for (var i = 0; i < p.n; i++)", "{ y += i; }")
    assert not counts("for (var i = 0; i < p.n; i++)", "{ i -= 1; }")
    assert not counts("for (var i = 0; i < p.n; i += p.step)", "")
    assert not counts("for (var i = 0; i <= p.n; i++)", "")
    assert not counts("for (var i = 0; i < p.n || p.more; i++)", "")
    assert not counts("while (low < high)", "")


@pytest.mark.parametrize("dilation", [0, -1, 2**30 + 1])
def test_a_step_that_a_file_gives_is_checked(dilation: int) -> None:
    name = "aten.max_pool2d_with_indices.default"
    args = [real(1, 2, 8, 8), [3, 3], [1, 1], [1, 1], [1, 1]]
    graph = Builder(name, filled(name, args)).graph
    graph.calls[0].args[4] = [1, dilation]
    with pytest.raises(Unsupported, match=rf"dilation must be .*\[1, {dilation}\]"):
        Planner(graph, CAPS["llvmpipe"]).upper_bound()


def test_softmax_along_one_of_very_many_elements_ends() -> None:
    """A block of 64 elements with this stride is more than 32 bits hold."""
    plan = Planner(softmax(1, 1 << 25), CAPS["llvmpipe"]).upper_bound()
    # The first workgroup, on buffers for the elements that it reads.
    few = replace(
        plan,
        buffers=tuple(replace(b, size=min(b.size, 1024)) for b in plan.buffers),
        dispatches=tuple(replace(d, groups=(1, 1, 1)) for d in plan.dispatches),
        inputs=tuple(replace(port, shape=(8,)) for port in plan.inputs),
        outputs=tuple(replace(port, shape=(8,)) for port in plan.outputs),
    )
    (result,), _ = play_wgpu(few, [np.zeros(8, np.float32)], {})
    assert np.frombuffer(result, np.float32).tolist() == [1.0] * 8
