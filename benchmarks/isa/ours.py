"""Our side: cases as programs, and their plans' kernels on a null device.

    python -m benchmarks.isa.ours export FOLDER CASE...     on any machine
    python -m benchmarks.isa.ours capture FOLDER CASE...    in `tools.environment`

The first leaves CASE.graph; the second compiles every kernel of its plan for the
device's own limits and features, and writes dispatches.json where the layer writes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from executorch_webgpu.plan import scratch

from . import cases
from .capture import Dispatch, count_pipelines, write


def _matmul(n: int) -> Any:
    import torch

    return _function(torch.matmul), (torch.randn(n, n), torch.randn(n, n))


def _linear(rows: int) -> Any:
    import torch

    module = torch.nn.Linear(cases.HIDDEN, cases.HIDDEN)
    return module, (torch.randn(rows, cases.HIDDEN),)


def _conv(channels: int, filters: int, kernel: int, groups: int) -> Any:
    import torch

    module = torch.nn.Conv2d(
        channels, filters, kernel, padding=kernel // 2, groups=groups
    )
    return module, (torch.randn(1, channels, cases.SIZE, cases.SIZE),)


def _softmax(*shape: int) -> Any:
    import torch

    return torch.nn.Softmax(-1), (torch.randn(shape),)


def _layernorm(*shape: int) -> Any:
    import torch

    return torch.nn.LayerNorm(shape[-1]), (torch.randn(shape),)


def _gelu(*shape: int) -> Any:
    import torch

    return torch.nn.GELU(), (torch.randn(shape),)


def _add(*shape: int) -> Any:
    import torch

    return _function(torch.add), (torch.randn(shape), torch.randn(shape))


def _attention(queries: int, keys: int) -> Any:
    import torch

    shapes = [(1, cases.HEADS, rows, cases.HEAD) for rows in (queries, keys, keys)]
    function = torch.nn.functional.scaled_dot_product_attention
    return _function(function), tuple(torch.randn(shape) for shape in shapes)


def _packed(rows: int) -> Any:
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
    import torch
    from executorch.backends.vulkan.patterns import weight_packing_utils

    codes = torch.randint(-8, 8, (cases.HIDDEN, cases.HIDDEN), dtype=torch.int8)
    words = weight_packing_utils.pack_4bit_weight_tensor(codes)
    scales = torch.rand(cases.HIDDEN // cases.GROUP, cases.HIDDEN) + 0.1
    linear = torch.ops.et_vk.linear_q4gsw

    def run(x: Any, words: Any, scales: Any) -> Any:
        return linear(x, words, scales, cases.GROUP, None)

    return _function(run, words=words, scales=scales), (
        torch.randn(rows, cases.HIDDEN),
    )


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


def capture(folder: Path, names: Sequence[str]) -> None:
    from executorch_webgpu.ir import serialize
    from executorch_webgpu.plan.planner import Planner
    from executorch_webgpu.runtime.device import get_device

    device = get_device()
    output = Path(os.environ["ISA_OUT"])
    # By text: a kernel that two cases share is compiled once.
    known: dict[object, int] = {}
    made = []
    for name in names:
        graph = serialize.read((folder / f"{name}.graph").read_bytes())
        # As ONNX Runtime does.
        caps = replace(device.caps, f16_accumulate=cases.find(name).half)
        plan = Planner(graph, caps).upper_bound()
        for step in plan.dispatches:
            spec = plan.pipelines[step.pipeline]
            if spec not in known:
                known[spec] = count_pipelines(output)
                device.pipeline(spec, name)
            bindings = []
            for binding, index in enumerate(step.buffers):
                _, size = step.bound(binding, plan.buffers[index].size)
                content = b""
                if spec.access[binding] == "uniform":
                    size = step.params_size
                    content = plan.params[step.params : step.params + size]
                bindings.append((size, content))
            made.append(
                Dispatch(name, spec.label, known[spec], step.groups, tuple(bindings))
            )
    write(output, made)


def _apart(pool: scratch.Pool, stores: Sequence[scratch.LiveRange]) -> Any:
    """`Pool.assign` with a buffer for every store: of one that is shared, more would be
    bound than a dispatch moves."""
    pool.sizes = [store.size for store in stores]
    return {store: slot for slot, store in enumerate(stores)}


def main() -> None:
    what, folder, *names = sys.argv[1:]
    scratch.Pool.assign = _apart  # type: ignore[method-assign]
    {"export": export, "capture": capture}[what](Path(folder), names)
    sys.stdout.flush()
    # Libraries that take a null device down at exit may crash, and all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
