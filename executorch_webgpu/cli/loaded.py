"""A method in ExecuTorch's standard runtime, with errors that say what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import last_error
from ..errors import WebGPUError


class Loaded:
    """A loaded method; it keeps alive what the runtime refers to."""

    def __init__(self, program: Path | bytes, method: str) -> None:
        from executorch.runtime import Runtime

        self.name = method
        source = program if isinstance(program, bytes) else str(program)
        with _own_words(method):
            self._program = Runtime.get().load_program(source)
            self._method = self._program.load_method(method)

    def call(self, inputs: Sequence[Any]) -> list[Any]:
        with _own_words(self.name):
            return list(self._method.execute(list(inputs)))


@contextmanager
def _own_words(method: str) -> Iterator[None]:
    """An error is the backend's own, where it has one, else ExecuTorch's."""
    before = last_error()
    try:
        yield
    except RuntimeError as error:
        ours = last_error()
        said = str(error) if ours is None or ours == before else ours
        raise WebGPUError(f"{method}: {said.strip().splitlines()[-1]}") from error


def as_numpy(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    # numpy has no bfloat16; every value of it is a float32.
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()
