"""The peers: each loads one prepared case and gives a function that runs it.

Every peer takes its inputs from host memory and leaves its outputs there, and is
set up as its documentation says, with no tuning of ours. A peer lives in a
process of its own (worker.py); nothing of it is imported before `setup`.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / ".venv" / "peers"

Arrays = list[np.ndarray]
Run = Callable[[], Arrays]


@dataclass(frozen=True)
class Peer:
    """One column of the table."""

    name: str
    title: str
    kind: str  # "gpu": runs on the same Vulkan driver; "cpu": the machine's limit
    setup: Callable[[], Any]  # imports all Python modules that a run needs
    load: Callable[[Any, Path, Arrays], Run]  # what `setup` gave, folder, inputs


def use_packages() -> None:
    """Makes the peers' packages importable, behind those of the environment."""
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))


def _setup_executorch() -> Any:
    import torch
    from executorch.runtime import Runtime

    return torch, Runtime.get()


def _load_executorch(file: str) -> Callable[[Any, Path, Arrays], Run]:
    def load(modules: Any, folder: Path, inputs: Arrays) -> Run:
        torch, runtime = modules
        buffer = (folder / file).read_bytes()
        program = runtime.load_program(buffer)
        method = program.load_method("forward")
        if method is None:
            raise RuntimeError("load_method gave nothing")
        tensors = [torch.from_numpy(array) for array in inputs]

        def run() -> Arrays:
            # The method refers to the program, which refers to the bytes.
            _ = (program, buffer)
            return [t.numpy() for t in method.execute(tensors)]

        return run

    return load


def _setup_ours() -> Any:
    import wgpu.backends.auto  # noqa: F401

    from executorch_webgpu.plan import registry

    registry.all_ops()  # imports them
    return _setup_executorch()


def _setup_tuned() -> Any:
    # Measures anew in every process, as on a machine that sees the program first.
    folder = tempfile.mkdtemp(prefix="tuning")
    os.environ["ET_WEBGPU_TUNING_FILE"] = str(Path(folder) / "forms.json")
    os.environ["ET_WEBGPU_AUTOTUNE"] = "1"
    return _setup_ours()


def _setup_onnx() -> Any:
    use_packages()
    import onnxruntime

    return onnxruntime


def _load_onnx(provider: str) -> Callable[[Any, Path, Arrays], Run]:
    def load(onnxruntime: Any, folder: Path, inputs: Arrays) -> Run:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=[provider]
        )
        # Without a usable adapter it takes the CPU and says nothing.
        chosen = session.get_providers()[0]
        if chosen != provider:
            raise RuntimeError(f"provider must be {provider}, got {chosen}")
        feed = {i.name: array for i, array in zip(session.get_inputs(), inputs)}
        return lambda: session.run(None, feed)

    return load


def _setup_tinygrad() -> Any:
    use_packages()
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    library = PACKAGES / "pydawn" / "lib" / f"libwebgpu_dawn_{machine}.so"
    os.environ.update(DEV="WEBGPU", WEBGPU="1", WEBGPU_PATH=str(library))
    import tinygrad
    from tinygrad.nn import onnx
    from tinygrad.runtime import ops_webgpu  # noqa: F401

    # Reading a constant that is on no device goes through its CPU device, which
    # wants clang; through the GPU it is the same constant.
    read = onnx._to_python_const

    def read_constant(value: Any) -> Any:
        if isinstance(value, tinygrad.Tensor) and value.uop.device is None:
            value = value.clone("WEBGPU")
        return read(value)

    onnx._to_python_const = read_constant
    if tinygrad.Device.DEFAULT != "WEBGPU":
        raise RuntimeError(f"device must be WEBGPU, got {tinygrad.Device.DEFAULT}")
    return tinygrad, onnx.OnnxRunner


def _load_tinygrad(modules: Any, folder: Path, inputs: Arrays) -> Run:
    tinygrad, runner_type = modules
    runner = runner_type(str(folder / "model.onnx"))
    runner.to("WEBGPU")
    names = list(runner.graph_inputs)

    @tinygrad.TinyJit
    def forward(*tensors: Any) -> list[Any]:
        results = runner(dict(zip(names, tensors)))
        return [result.contiguous().realize() for result in results.values()]

    # Straight copies into and out of its buffers: making a tensor from an array
    # and back would add ten milliseconds of Python to every run.
    tensors = [tinygrad.Tensor(array).clone().realize() for array in inputs]
    targets = [tensor._buffer() for tensor in tensors]
    bytes_in = [memoryview(np.ascontiguousarray(a)).cast("B") for a in inputs]

    def run() -> Arrays:
        for buffer, content in zip(targets, bytes_in):
            buffer.allocator._copyin(buffer._buf, content)
        outputs = []
        for result in forward(*tensors):
            made = np.empty(result.shape, result.dtype.fmt)
            buffer = result.uop.buffer
            buffer.allocator._copyout(memoryview(made).cast("B"), buffer._buf)
            outputs.append(made)
        return outputs

    return run


def _setup_torch() -> Any:
    import torch

    return torch


def _load_torch(torch: Any, folder: Path, inputs: Arrays) -> Run:
    from torch.utils import _pytree as pytree

    from . import cases

    model, _ = cases.find((folder / "case").read_text()).build()
    tensors = [torch.from_numpy(array) for array in inputs]

    def run() -> Arrays:
        with torch.no_grad():
            return [t.numpy() for t in pytree.tree_leaves(model(*tensors))]

    return run


OURS, TUNED = "ours", "ours-tuned"

PEERS = [
    Peer(
        OURS,
        "executorch-webgpu",
        "gpu",
        _setup_ours,
        _load_executorch("webgpu.pte"),
    ),
    Peer(
        "ort-webgpu",
        "ONNX Runtime WebGPU",
        "gpu",
        _setup_onnx,
        _load_onnx("WebGpuExecutionProvider"),
    ),
    Peer("tinygrad", "tinygrad WebGPU", "gpu", _setup_tinygrad, _load_tinygrad),
    Peer(
        "xnnpack",
        "XNNPACK delegate",
        "cpu",
        _setup_executorch,
        _load_executorch("xnnpack.pte"),
    ),
    Peer(
        "ort-cpu",
        "ONNX Runtime CPU",
        "cpu",
        _setup_onnx,
        _load_onnx("CPUExecutionProvider"),
    ),
    Peer("torch", "eager PyTorch", "cpu", _setup_torch, _load_torch),
]


# Compared with ourselves only: see report.tuned_table.
VARIANTS = [
    Peer(
        TUNED,
        "executorch-webgpu, autotuned",
        "gpu",
        _setup_tuned,
        _load_executorch("webgpu.pte"),
    ),
]


def find(name: str) -> Peer:
    for peer in (*PEERS, *VARIANTS):
        if peer.name == name:
            return peer
    names = ", ".join(peer.name for peer in PEERS)
    raise SystemExit(f"benchmarks: peer must be one of {names}, got {name!r}")
