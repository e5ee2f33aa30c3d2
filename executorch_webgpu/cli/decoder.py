"""How a language model with a cache is called: with tokens [1, S] and where they are.

That is the position of each, [S], as this project's models and transformers' static
cache take it, or the position of the first, [1] or an integer, as ExecuTorch's Llama
takes it. A file tells which by the sizes of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidInput
from .program import Method, is_static, torch_dtype, type_name

_EXPECTED = (
    "--llm: must be a method of tokens, int64 [1, S], and their positions, int64 [S],"
    " [1] or an integer"
)
# Constant methods that tell how many positions there are, the more exact one first.
_CONTEXTS = ("get_max_context_len", "get_max_seq_len")


@dataclass(frozen=True)
class Decoder:
    """What the calls of a program look like."""

    most: int  # tokens of a call
    positions: str  # "each", "first" or "integer"
    vocabulary: int
    context: int | None  # positions in all, if the program tells

    def text(self, length: int, at_once: int, seed: int) -> list[list[Any]]:
        """The inputs of the calls that bring so many tokens from position 0 on."""
        import torch

        numbers = np.random.default_rng(seed)
        tokens = torch.from_numpy(numbers.integers(0, self.vocabulary, (1, length)))
        step = min(at_once, self.most)
        calls: list[list[Any]] = []
        for start in range(0, length, step):
            end = min(start + step, length)
            calls.append([tokens[:, start:end].clone(), self._position(start, end)])
        return calls

    def check(self, length: int) -> None:
        if self.context is not None and length > self.context:
            raise InvalidInput(
                f"--llm: tokens must fit the context of {self.context}, got {length}"
            )

    def _position(self, start: int, end: int) -> Any:
        import torch

        if self.positions == "integer":
            return start
        return torch.arange(start, end if self.positions == "each" else start + 1)


def decoder_of(methods: Mapping[str, Method], name: str) -> Decoder:
    """That of a method; the others tell constants of the model."""
    from executorch.exir.schema import Int, Tensor

    method = methods[name]
    inputs = [method.values[at] for at in method.inputs]
    if len(inputs) != 2 or not isinstance(inputs[0], Tensor):
        raise InvalidInput(f"{_EXPECTED}, got {_told(inputs)}")
    tokens, place = inputs
    sizes = list(tokens.sizes)
    is_right = _is_int64(tokens) and len(sizes) == 2 and sizes[0] == 1
    if isinstance(place, Int):
        positions = "integer"
    elif isinstance(place, Tensor) and _is_int64(place) and list(place.sizes) == [1]:
        positions = "first"
    elif is_right and isinstance(place, Tensor) and list(place.sizes) == sizes[1:]:
        positions = "each"
    else:
        is_right = False
    if not is_right:
        raise InvalidInput(f"{_EXPECTED}, got {_told(inputs)}")
    if is_static(tokens) and sizes[1] != 1:
        raise InvalidInput(
            f"--llm: calls must be of one token or more, got a program whose calls have"
            f" {sizes[1]} always; export with dynamic shapes"
        )
    logits = next(iter(method.values[at] for at in method.outputs), None)
    if not isinstance(logits, Tensor) or not logits.sizes:
        raise InvalidInput("--llm: the first output must be logits, got no tensor")
    return Decoder(sizes[1], positions, logits.sizes[-1], _context(methods))


def _context(methods: Mapping[str, Method]) -> int | None:
    from executorch.exir.schema import Int

    for name in _CONTEXTS:
        if name in methods and methods[name].outputs:
            value = methods[name].values[methods[name].outputs[0]]
            if isinstance(value, Int):
                return int(value.int_val)
    return None


def _is_int64(value: Any) -> bool:
    return type_name(torch_dtype(value)) == "int64"


def _told(inputs: list[Any]) -> str:
    from executorch.exir.schema import Tensor

    return ", ".join(
        f"{type_name(torch_dtype(value))} {list(value.sizes)}"
        if isinstance(value, Tensor)
        else type(value).__name__.lower()
        for value in inputs
    )
