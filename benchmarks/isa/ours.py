"""Our side: cases as programs, and their plans' kernels on a null device.

    python -m benchmarks.isa.ours export FOLDER CASE...         on any machine
    python -m benchmarks.isa.ours capture FOLDER CASE...        in `tools.environment`
    python -m benchmarks.isa.ours tint FOLDER PACKAGES CASE...  there, afterwards

The first leaves CASE.graph; the second compiles every kernel of its plan for the
device's own limits and features, and writes dispatches.json where the layer writes. The
third compiles the same plans by Tint, as Chrome does; PACKAGES has dawn-python.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from executorch_webgpu.ir import serialize
from executorch_webgpu.ir.dtypes import to_storage
from executorch_webgpu.plan import scratch
from executorch_webgpu.plan.caps import Caps
from executorch_webgpu.plan.plan import Dispatch as PlannedDispatch
from executorch_webgpu.plan.plan import Pipeline, Plan
from executorch_webgpu.plan.planner import Planner

from . import cases, tint
from .capture import Dispatch, count_pipelines, write


def _matmul(m: int, k: int, n: int) -> Any:
    import torch

    return _function(torch.matmul), (torch.randn(m, k), torch.randn(k, n))


def _linear(rows: int, k: int, n: int) -> Any:
    import torch

    return torch.nn.Linear(k, n), (torch.randn(rows, k),)


def _conv(
    channels: int, filters: int, kernel: int, groups: int, stride: int, size: int
) -> Any:
    import torch

    module = torch.nn.Conv2d(
        channels, filters, kernel, stride, padding=kernel // 2, groups=groups
    )
    return module, (torch.randn(1, channels, size, size),)


def _softmax(*shape: int) -> Any:
    import torch

    return torch.nn.Softmax(-1), (torch.randn(shape),)


def _layernorm(*shape: int) -> Any:
    import torch

    return torch.nn.LayerNorm(shape[-1]), (torch.randn(shape),)


def _rmsnorm(*shape: int) -> Any:
    import torch

    return torch.nn.RMSNorm(shape[-1], 1e-5), (torch.randn(shape),)


def _gelu(*shape: int) -> Any:
    import torch

    return torch.nn.GELU(), (torch.randn(shape),)


def _add(*shape: int) -> Any:
    import torch

    return _function(torch.add), (torch.randn(shape), torch.randn(shape))


def _attention(queries: int, keys: int, heads: int, shared: int, size: int) -> Any:
    import torch

    shapes = [(heads, queries), (shared, keys), (shared, keys)]
    function = functools.partial(
        torch.nn.functional.scaled_dot_product_attention, enable_gqa=shared < heads
    )
    return _function(function), tuple(torch.randn(1, *two, size) for two in shapes)


def _packed(rows: int, k: int, n: int) -> Any:
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
    import torch
    from executorch.backends.vulkan.patterns import weight_packing_utils

    codes = torch.randint(-8, 8, (n, k), dtype=torch.int8)
    words = weight_packing_utils.pack_4bit_weight_tensor(codes)
    scales = torch.rand(k // cases.GROUP, n) + 0.1
    linear = torch.ops.et_vk.linear_q4gsw

    def run(x: Any, words: Any, scales: Any) -> Any:
        return linear(x, words, scales, cases.GROUP, None)

    return _function(run, words=words, scales=scales), (torch.randn(rows, k),)


def _int8conv(channels: int) -> Any:
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
    import torch

    weights = {
        "codes": torch.randint(-127, 128, (channels, 9 * channels), dtype=torch.int8),
        "sums": torch.zeros(channels, dtype=torch.int32),
        "scales": torch.rand(channels) + 0.1,
        "bias": torch.randn(channels),
    }
    conv = torch.ops.et_vk.q8ta_conv2d
    window = ([3, 3], [1, 1], [1, 1], [1, 1], 1, "none")

    def run(x: Any, codes: Any, sums: Any, scales: Any, bias: Any) -> Any:
        return conv(x, 0.05, 3, codes, sums, scales, 0.2, -4, bias, *window)

    shape = (1, channels, cases.SIZE, cases.SIZE)
    return _function(run, **weights), (torch.randint(-127, 128, shape).to(torch.int8),)


_FAMILIES: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "linear": _linear,
    "conv": _conv,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "gelu": _gelu,
    "add": _add,
    "attention": _attention,
    "packed": _packed,
    "int8conv": _int8conv,
}


def _function(run: Callable[..., Any], **constants: Any) -> Any:
    """A module that calls a function with its inputs and some constants."""
    import torch

    class Function(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, tensor in constants.items():
                self.register_buffer(name, tensor)

        def forward(self, *inputs: Any) -> Any:
            return run(*inputs, *(getattr(self, name) for name in constants))

    return Function()


def _program(case: cases.Case) -> bytes:
    import torch
    from executorch.exir import to_edge_transform_and_lower

    from executorch_webgpu import WebGPUPartitioner

    torch.manual_seed(0)
    module, inputs = _FAMILIES[case.family](*case.args)
    if case.half:
        module, inputs = module.half(), tuple(x.half() for x in inputs)
    with torch.no_grad():
        exported = torch.export.export(module.eval(), inputs)
        edge = to_edge_transform_and_lower(exported, partitioner=[WebGPUPartitioner()])
    return bytes(edge.to_executorch().buffer)


def export(folder: Path, names: Sequence[str]) -> None:
    """Models were exported by benchmarks.prepare, into folders of their names."""
    from executorch_webgpu.cli import delegates

    for case in map(cases.find, names):
        prepared = folder / case.name / "webgpu.pte"
        program = prepared.read_bytes() if case.is_model else _program(case)
        ((_, blob),) = delegates(program)
        (folder / f"{case.name}.graph").write_bytes(blob)


# As much of a buffer as the layer shows of ONNX Runtime's.
_SHOWN_BYTES = 1024


def _contents(plan: Plan, folder: Path) -> dict[int, bytes]:
    """By buffer, as on the GPU: what kernels branch on. Small integer inputs of a model
    are its own, such as positions, which say how far a kernel goes; and the status says
    that no kernel has reported anything."""
    known = {}
    if plan.status >= 0:
        known[plan.status] = bytes(plan.buffers[plan.status].size)
    if not (folder / "inputs.npz").exists():
        return known
    with np.load(folder / "inputs.npz") as stored:
        arrays = [stored[name] for name in stored.files]
    for port, array in zip(plan.inputs, arrays, strict=True):
        if not port.dtype.is_float and port.nbytes <= _SHOWN_BYTES:
            data = to_storage(array.reshape(-1), port.dtype, port.storage)
            known[port.buffer] = data.tobytes()
    return known


def _bindings(
    plan: Plan, step: PlannedDispatch, contents: Mapping[int, bytes]
) -> tuple[tuple[int, bytes], ...]:
    made = []
    for binding, index in enumerate(step.buffers):
        _, size = step.bound(binding, plan.buffers[index].size)
        content = contents.get(index, b"")
        if plan.pipelines[step.pipeline].access[binding] == "uniform":
            size = step.params_size
            content = plan.params[step.params : step.params + size]
        made.append((size, content))
    return tuple(made)


def capture(folder: Path, names: Sequence[str]) -> None:
    from executorch_webgpu.runtime.device import get_device

    device = get_device()
    (folder / "caps.json").write_text(json.dumps(asdict(device.caps)))
    _compile_all(folder, names, device.caps, device.pipeline)


def capture_tint(folder: Path, arguments: Sequence[str]) -> None:
    packages, *names = arguments
    sys.path.append(packages)
    caps = Caps(**json.loads((folder / "caps.json").read_text()))
    _compile_all(folder, names, caps, tint.compiler())


def _compile_all(
    folder: Path,
    names: Sequence[str],
    caps: Caps,
    compile_kernel: Callable[[Pipeline, str], object],
) -> None:
    output = Path(os.environ["ISA_OUT"])
    # By text: a kernel that two cases share is compiled once.
    known: dict[object, int] = {}
    made = []
    for name in names:
        graph = serialize.read((folder / f"{name}.graph").read_bytes())
        # As ONNX Runtime does.
        given = replace(caps, f16_accumulate=cases.find(name).half)
        plan = Planner(graph, given).upper_bound()
        contents = _contents(plan, folder / name)
        for step in plan.dispatches:
            spec = plan.pipelines[step.pipeline]
            key = (spec.wgsl, spec.access)
            if key not in known:
                known[key] = count_pipelines(output)
                compile_kernel(spec, name)
            bound = _bindings(plan, step, contents)
            made.append(Dispatch(name, spec.label, known[key], step.groups, bound))
    write(output, made)


def _apart(pool: scratch.Pool, stores: Sequence[scratch.LiveRange]) -> Any:
    """`Pool.assign` with a buffer for every store: of one that is shared, more would be
    bound than a dispatch moves."""
    pool.sizes = [store.size for store in stores]
    return {store: slot for slot, store in enumerate(stores)}


def main() -> None:
    what, folder, *names = sys.argv[1:]
    scratch.Pool.assign = _apart  # type: ignore[method-assign]
    act = {"export": export, "capture": capture, "tint": capture_tint}[what]
    act(Path(folder), names)
    sys.stdout.flush()
    # Libraries that take a null device down at exit may crash, and all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
