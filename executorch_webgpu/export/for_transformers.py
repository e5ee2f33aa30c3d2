"""This backend for transformers' own ExecuTorch exporter.

    from transformers.exporters.exporter_executorch import ExecutorchExporter
    import executorch_webgpu

    executorch_webgpu.register_with_transformers()
    exporter = ExecutorchExporter()
    program = exporter.export(model, inputs, config={"backend": "webgpu"})

transformers keeps its backends in a table that is not part of its interface: if it is
not as it is known, nothing is registered, and an error says so.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import MutableMapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import WebGPUError
from .partitioner import WebGPUPartitioner

NAME = "webgpu"
_MODULE = "transformers.exporters.exporter_executorch"
_TABLE = "_BACKEND_PREPARE"


def register_with_transformers() -> None:
    """Makes `webgpu` a backend of transformers' ExecutorchExporter."""
    try:
        module = importlib.import_module(_MODULE)
    except ImportError as error:
        raise WebGPUError(
            f"register_with_transformers: {_MODULE} must be there, got {error};"
            " run `pip install 'transformers>=5.22'`"
        ) from error
    table: Any = getattr(module, _TABLE, None)
    known = table.get("xnnpack") if isinstance(table, dict) else None
    if known is None or list(inspect.signature(known).parameters) != _ARGUMENTS:
        version = importlib.import_module("transformers").__version__
        raise WebGPUError(
            f"register_with_transformers: {_MODULE}.{_TABLE} must be a dict of"
            f" functions of ({', '.join(_ARGUMENTS)}), got another in transformers"
            f" {version}; 5.22 is known to have it"
        )
    table[NAME] = prepare_for_webgpu


def prepare_for_webgpu(
    model: Any, sample_inputs: MutableMapping[str, Any]
) -> tuple[Any, Any, list[WebGPUPartitioner]]:
    """What transformers asks of a backend: the model and inputs to trace, and who
    takes what of the program."""
    model.requires_grad_(False)
    model = model.to(device="cpu")
    experts = getattr(model, "_can_set_experts_implementation", None)
    if experts is not None and experts():
        # The other implementation is one op that nobody but CUDA has.
        model.set_experts_implementation("batched_mm")
    # ExecuTorch has no broadcast strides.
    inputs = pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, sample_inputs)
    return model, inputs, [WebGPUPartitioner()]


_ARGUMENTS = list(inspect.signature(prepare_for_webgpu).parameters)
