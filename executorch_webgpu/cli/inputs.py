"""Inputs of a method: arrays and pictures from files, or random numbers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput, WebGPUError
from .program import Method, file_shape, is_static, torch_dtype, type_name

RANDOM = "random"
_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".webp")


def add_input(parser: argparse.ArgumentParser) -> None:
    """The options that say what a method is called with."""
    parser.add_argument(
        "--input",
        nargs="+",
        help="one for each input: an array x.npy; a picture, red, green and blue in 0"
        " to 1, scaled to the input's size; `random`, at the largest sizes, which alone"
        " is for all inputs, and is the default",
    )
    parser.add_argument("--method", default="forward")
    parser.add_argument("--seed", type=int, default=0, help="of random numbers")


def shape_of(text: str) -> tuple[int, ...]:
    """The sizes in a text such as 1x128; none for a scalar's, which is empty."""
    parts = [part for part in text.split("x") if part]
    if not all(part.isdecimal() for part in parts):
        raise InvalidInput(f"--shapes: must be sizes such as 1x128, got {text}")
    return tuple(map(int, parts))


def _resized(
    method: Method, wanted: Sequence[Any], given: Sequence[str], shapes: Sequence[str]
) -> list[Any]:
    """The inputs, tensors with these sizes instead of the largest."""
    from executorch.exir.schema import Tensor

    if set(given) != {RANDOM}:
        raise InvalidInput(
            "--shapes: are for random inputs, got files; they have their shapes"
        )
    tensors = [value for value in wanted if isinstance(value, Tensor)]
    if len(shapes) != len(tensors):
        raise InvalidInput(
            f"--shapes: {method.name} must get one for each of its {len(tensors)}"
            f" tensors, got {len(shapes)}"
        )
    live = iter(map(shape_of, shapes))
    made = []
    for number, value in enumerate(wanted):
        if isinstance(value, Tensor):
            shape = next(live)
            if not _fits(shape, value):
                most = ", ".join(map(str, file_shape(value)))
                raise InvalidInput(
                    f"--shapes: input {number} must have shape [{most}],"
                    f" got {list(shape)}"
                )
            value = replace(value, sizes=list(shape))
        made.append(value)
    return made


def inputs_of(
    method: Method,
    given: Sequence[str] | None,
    seed: int = 0,
    shapes: Sequence[str] | None = None,
) -> list[Any]:
    """What a method is called with; `shapes` are those of random tensors, which all are
    if nothing is given."""
    given = [RANDOM] if given is None else given
    wanted = [method.values[at] for at in method.inputs]
    if shapes is not None:
        wanted = _resized(method, wanted, given, shapes)
    if list(given) == [RANDOM]:
        given = [RANDOM] * len(wanted)
    if len(given) != len(wanted):
        raise InvalidInput(
            f"--input: {method.name} must get {len(wanted)} inputs, got {len(given)}"
        )
    numbers = np.random.default_rng(seed)
    return [_input(value, text, numbers) for value, text in zip(wanted, given)]


def check_inputs(method: Method, flat: Sequence[Any]) -> None:
    """Those of the eager model, which may be another than the program's."""
    from executorch.exir.schema import Tensor

    wanted = [method.values[at] for at in method.inputs]
    if len(flat) != len(wanted):
        raise InvalidInput(
            f"--eager: the model must take the program's {len(wanted)} inputs, got"
            f" {len(flat)}"
        )
    for number, (value, given) in enumerate(zip(wanted, flat)):
        if not isinstance(value, Tensor):
            continue
        kind, shape = type_name(torch_dtype(value)), file_shape(value)
        got = _type_and_shape(given)
        if got is None or got[0] != kind or not _fits(got[1], value):
            told = type(given).__name__ if got is None else f"{got[0]} {got[1]}"
            most = ", ".join(map(str, shape))
            raise InvalidInput(
                f"--eager: input {number} of the model must be the program's {kind}"
                f" [{most}], got {told}"
            )


def _type_and_shape(value: Any) -> tuple[str, list[int]] | None:
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    return type_name(value.dtype), list(value.shape)


def _input(value: Any, text: str, numbers: np.random.Generator) -> Any:
    """What a method is called with for one input."""
    import torch
    from executorch.exir.schema import Tensor

    if not isinstance(value, Tensor):
        return 1 if text == RANDOM else int(np.load(text).item())
    dtype = torch_dtype(value)
    if text == RANDOM:
        # Small integers are good indices, too.
        shape = tuple(value.sizes)
        if not dtype.is_floating_point:
            return torch.from_numpy(numbers.integers(0, 2, shape)).to(dtype)
        return torch.from_numpy(numbers.standard_normal(shape)).to(dtype)
    if Path(text).suffix.lower() in _PICTURES:
        return _picture(Path(text), list(value.sizes)).to(dtype)
    try:
        array = np.load(text, allow_pickle=False)
    except ValueError as error:
        raise InvalidInput(
            f"--input: {text} must be an .npy file or a picture, got {error}"
        ) from error
    if not isinstance(array, np.ndarray):
        raise InvalidInput(f"--input: {text} must be one array, got an archive of them")
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if tensor.dtype is not dtype:
        raise InvalidInput(
            f"--input: {text} must be of type {type_name(dtype)},"
            f" got {type_name(tensor.dtype)}"
        )
    if not _fits(tensor.shape, value):
        wanted = ", ".join(map(str, file_shape(value)))
        raise InvalidInput(
            f"--input: {text} must have shape [{wanted}], got {list(tensor.shape)}"
        )
    return tensor


def _fits(shape: Sequence[int], value: Any) -> bool:
    """Whether ExecuTorch would take it, which says only that it does not."""
    sizes = list(value.sizes)
    if is_static(value) or len(shape) != len(sizes):
        return list(shape) == sizes
    return all(size <= most for size, most in zip(shape, sizes))


def _picture(path: Path, sizes: Sequence[int]) -> Any:
    """[1, 3, height, width] of a file, in the input's size."""
    import torch

    try:
        from PIL import Image
    except ImportError:
        raise WebGPUError(
            "--input: a picture needs Pillow, got none; run `pip install pillow`"
        ) from None
    if len(sizes) != 4 or list(sizes[:2]) != [1, 3]:
        raise InvalidInput(
            f"--input: a picture is for an input [1, 3, height, width], got {sizes}"
        )
    with Image.open(path) as image:
        scaled = image.convert("RGB").resize((sizes[3], sizes[2]))
    pixels = torch.from_numpy(np.array(scaled))
    return pixels.permute(2, 0, 1).unsqueeze(0).contiguous() / 255
