"""One case as files: python -m benchmarks.prepare [--reuse] CASE FOLDER PEER...

Leaves inputs.npz, expected.npz (eager results), webgpu.pte, xnnpack.pte and
model.onnx, as far as the given peers need them, and facts.json: what our program
holds and dispatches, and why a file could not be made. With --reuse, files of peers
that exist are kept.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import cases
from .peers import OURS, use_packages


def main(name: str, folder: Path, peers: Sequence[str], reuse: bool) -> None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import numpy as np
    import torch
    from torch.utils import _pytree as pytree

    folder.mkdir(parents=True, exist_ok=True)
    case = cases.find(name)
    model, inputs = case.build()
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*inputs))
    np.savez(folder / "inputs.npz", *[t.numpy() for t in inputs])
    np.savez(folder / "expected.npz", *[t.numpy() for t in expected])
    (folder / "case").write_text(name)
    facts: dict[str, Any] = {"title": case.title, "failed": {}}

    # Ours first: for the peers, `dequantized` replaces the weights by floats.
    def floats() -> Any:
        return model.dequantized() if hasattr(model, "dequantized") else model

    exports = {
        OURS: lambda: _ours(model, inputs, folder, facts),
        "xnnpack": lambda: _xnnpack(floats(), inputs, folder),
        "onnx": lambda: _onnx(floats(), inputs, folder),
    }
    wanted = {
        "onnx" if p in ("ort-webgpu", "ort-cpu", "tinygrad") else p for p in peers
    }
    files = {"xnnpack": "xnnpack.pte", "onnx": "model.onnx"}
    for export, make in exports.items():
        is_there = export in files and (folder / files[export]).exists()
        if export not in wanted or (reuse and is_there):
            continue
        try:
            with torch.no_grad():
                make()
        # A peer's exporter may fail in any way; the table shows how.
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            facts["failed"][export] = reason.splitlines()[0][:200]
    (folder / "facts.json").write_text(json.dumps(facts))


def _ours(
    model: Any, inputs: tuple[Any, ...], folder: Path, facts: dict[str, Any]
) -> None:
    import torch
    from executorch.exir import to_edge_transform_and_lower

    from executorch_webgpu import WebGPUPartitioner

    partitioner = WebGPUPartitioner()
    exported = torch.export.export(model, inputs)
    lowered = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    program = bytes(lowered.to_executorch().buffer)
    (folder / "webgpu.pte").write_bytes(program)
    facts["fallbacks"] = len(partitioner.report.fallbacks)
    facts |= account(program)


def account(program: bytes) -> dict[str, int]:
    """Dispatches of a program, and the bytes that it cannot do without.

    Those are its weights and states as they are in the program, its inputs and
    outputs, and the largest set of the model's intermediate results alive at once.
    Temporaries of our kernels, such as copies in another layout, are not needed.
    """
    from executorch_webgpu.cli import delegates
    from executorch_webgpu.ir import serialize
    from executorch_webgpu.plan.planner import Planner
    from executorch_webgpu.runtime import device

    caps = device.get_device().caps
    found = {"delegates": 0, "dispatches": 0, "kernels": 0, "needed_bytes": 0}
    weights: dict[str, int] = {}
    for _, blob in delegates(program):
        graph = serialize.read(blob)
        plan = Planner(graph, caps).upper_bound()
        found["delegates"] += 1
        found["dispatches"] += len(plan.dispatches)
        found["kernels"] += len(plan.pipelines)
        found["needed_bytes"] += live_bytes(graph, caps)
        for constant in plan.constants:
            # Small integers, such as 4-bit weights, can stay packed.
            size = min(constant.storage.size, constant.dtype.numpy.itemsize)
            key = constant.data_key or plan.buffers[constant.buffer].key
            weights[key] = size * math.prod(constant.shape)
        for port in (*plan.inputs, *plan.outputs):
            found["needed_bytes"] += port.numel * port.storage.size
    found["needed_bytes"] += sum(weights.values())
    return found


def live_bytes(graph: Any, caps: Any) -> int:
    """The most bytes of intermediate results that calls in this order need at once.

    A result that is a view of another costs nothing, and one that was fused into a
    call does not exist.
    """
    from executorch_webgpu.plan.inline_producers import deferred, last_uses
    from executorch_webgpu.plan.plan import Role
    from executorch_webgpu.plan.planner import Planner
    from executorch_webgpu.plan.scratch import LiveRange, peak
    from executorch_webgpu.plan.tensor import Store

    class Watching(Planner):
        def record(self, env: dict[str, int]) -> Any:
            self.recorded = super().record(env)
            return self.recorded

    planner = Watching(graph, caps)
    planner.upper_bound()
    recorded = planner.recorded
    used = last_uses(graph, deferred(graph))
    lives: dict[Store, LiveRange] = {}
    for index, call in enumerate(graph.calls):
        for value in call.outputs:
            tensor = recorded.tensors.get(value)  # None: nobody reads it
            store = tensor.store if tensor else None
            if tensor is None or store is None or store in recorded.outputs:
                continue
            if store.role is Role.SCRATCH:
                size = tensor.bound * tensor.storage.size
                life = lives.get(store, LiveRange(size, index, index))
                last = max(life.last, used.get(value, -1))
                lives[store] = replace(life, last=last)
    return peak(list(lives.values()))


def _xnnpack(model: Any, inputs: tuple[Any, ...], folder: Path) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackPartitioner,
    )
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model, inputs)
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    (folder / "xnnpack.pte").write_bytes(lowered.to_executorch().buffer)


def _onnx(model: Any, inputs: tuple[Any, ...], folder: Path) -> None:
    use_packages()
    import torch

    torch.onnx.export(
        model, inputs, str(folder / "model.onnx"), dynamo=True, verbose=False
    )


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--reuse"]
    main(arguments[0], Path(arguments[1]), arguments[2:], "--reuse" in sys.argv)
