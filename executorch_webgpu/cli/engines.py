"""What a program is compared with, and the program itself: each is prepared, loaded and
called in a process of its own.

Enters: a Task. An engine leaves its outputs in host memory, flat. Exporting is part of
`prepare`, which nobody times, and so is importing.
"""

from __future__ import annotations

import functools
import importlib
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import WebGPUError
from . import eager, loaded
from .decoder import Decoder

OURS = "webgpu"


@dataclass(frozen=True)
class Task:
    """What is measured: a method, on inputs that all engines get alike."""

    program: Path
    method: str
    inputs: bytes  # as `stored` makes them
    folder: Path  # for files of engines; whoever made the task removes it
    eager: str | None = None
    # Of a language model, whose calls are of several sizes.
    decoder: Decoder | None = None


def stored(flat: Sequence[Any]) -> bytes:
    """Inputs for another process, of any type that torch has."""
    import torch

    file = io.BytesIO()
    torch.save(list(flat), file)
    return file.getvalue()


class Engine(ABC):
    """One way to run a model."""

    is_loaded = True  # whether `load` is what a user waits for

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def prepare(self) -> None:
        """Everything that a user does once, before there is something to load."""

    @abstractmethod
    def load(self) -> None: ...

    @abstractmethod
    def call(self, flat: Sequence[Any]) -> list[Any]: ...

    @functools.cached_property
    def flat(self) -> list[Any]:
        """The inputs."""
        import torch

        return list(torch.load(io.BytesIO(self.task.inputs)))

    @functools.cached_property
    def model(self) -> eager.Eager:
        if self.task.eager is None:
            raise WebGPUError("needs the model: give --eager module:function")
        return eager.load(self.task.eager)


class Ours(Engine):
    """The program, in the standard runtime."""

    def prepare(self) -> None:
        import executorch.runtime
        import wgpu.backends.auto  # noqa: F401

        from ..plan import registry

        registry.all_ops()  # imports them
        executorch.runtime.Runtime.get()

    def load(self) -> None:
        self._method = loaded.Loaded(self.task.program, self.task.method)

    def call(self, flat: Sequence[Any]) -> list[Any]:
        return self._method.call(flat)


class Torch(Engine):
    """The model as it is, on the CPU."""

    is_loaded = False

    def prepare(self) -> None:
        _ = self.model

    def load(self) -> None:
        """The model is there since it was made."""

    def call(self, flat: Sequence[Any]) -> list[Any]:
        return self.model.call(flat)


class Xnnpack(Engine):
    """The model, lowered with ExecuTorch's XnnpackPartitioner, on the CPU."""

    def prepare(self) -> None:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
            XnnpackPartitioner,
        )
        from executorch.exir import to_edge_transform_and_lower

        made = to_edge_transform_and_lower(
            self._exported(), partitioner=[XnnpackPartitioner()]
        )
        self._program = bytes(made.to_executorch().buffer)

    def _exported(self) -> Any:
        """At the sizes that are measured, or at all that the model is said to take."""
        import torch

        model = self.model
        with torch.no_grad():
            if self.task.decoder is not None:
                return torch.export.export(
                    model.module,
                    model.arguments(model.flat),
                    dynamic_shapes=model.dynamic_shapes,
                )
            return torch.export.export(model.module, model.arguments(self.flat))

    def load(self) -> None:
        self._method = loaded.Loaded(self._program, "forward")

    def call(self, flat: Sequence[Any]) -> list[Any]:
        return self._method.call(flat)


class Ort(Engine):
    """The model as ONNX, by ONNX Runtime's WebGPU provider."""

    _PROVIDER = "WebGpuExecutionProvider"

    def prepare(self) -> None:
        if self.task.decoder is not None:
            raise WebGPUError("keeps no cache between calls, which --llm needs")
        self._onnxruntime = self._provided()
        import torch

        self._path = self.task.folder / "model.onnx"
        try:
            with torch.no_grad():
                torch.onnx.export(
                    self.model.module,
                    self.model.arguments(self.flat),
                    str(self._path),
                    dynamo=True,
                    verbose=False,
                )
        except ImportError as error:
            raise WebGPUError(
                f"needs onnxscript to export ({error}); run `pip install onnxscript`"
            ) from error

    def _provided(self) -> Any:
        try:
            onnxruntime = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise WebGPUError(
                f"needs ONNX Runtime with WebGPU ({error}); run `pip install"
                " onnxruntime-webgpu`"
            ) from error
        has = onnxruntime.get_available_providers()
        if self._PROVIDER not in has:
            raise WebGPUError(
                f"needs ONNX Runtime with WebGPU, got one with {', '.join(has)}; run"
                " `pip install onnxruntime-webgpu` where no other onnxruntime is"
            )
        return onnxruntime

    def load(self) -> None:
        options = self._onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = self._onnxruntime.InferenceSession(
            str(self._path), options, providers=[self._PROVIDER]
        )
        # Without a usable adapter it takes the CPU and says nothing.
        chosen = self._session.get_providers()[0]
        if chosen != self._PROVIDER:
            raise WebGPUError(f"must run on {self._PROVIDER}, got {chosen}")
        self._names = [each.name for each in self._session.get_inputs()]

    def call(self, flat: Sequence[Any]) -> list[Any]:
        arrays = [each.numpy() for each in flat]
        return list(self._session.run(None, dict(zip(self._names, arrays))))


PEERS: dict[str, type[Engine]] = {"xnnpack": Xnnpack, "eager": Torch, "ort": Ort}
ENGINES: dict[str, type[Engine]] = {OURS: Ours, **PEERS}
