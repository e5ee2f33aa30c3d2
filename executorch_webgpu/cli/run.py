"""`run`: one call of a program in ExecuTorch's standard runtime, on files or on random
numbers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import last_error
from ..errors import InvalidInput, WebGPUError
from .program import (
    Method,
    file_shape,
    is_static,
    methods,
    read,
    torch_dtype,
    type_name,
)

RANDOM = "random"
_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".webp")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("run", help="run a program once")
    parser.add_argument("program", type=Path)
    parser.add_argument(
        "--input",
        nargs="+",
        default=[RANDOM],
        help="one for each input: an array x.npy; a picture, red, green and blue in 0"
        " to 1, scaled to the input's size; `random`, at the largest sizes, which alone"
        " is for all inputs",
    )
    parser.add_argument("--method", default="forward")
    parser.add_argument("--seed", type=int, default=0, help="of random numbers")
    parser.add_argument("--output", type=Path, help="an .npz file with all outputs")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    found = {each.name: each for each in methods(read(args.program))}
    if args.method not in found:
        raise InvalidInput(
            f"--method: must be one of {', '.join(found)}, got {args.method}"
        )
    inputs = method_inputs(found[args.method], args.input, args.seed)
    outputs = _call(args.program, args.method, inputs)
    arrays = [np.asarray(each) for each in outputs]
    if args.output is not None:
        with args.output.open("wb") as file:
            named: dict[str, Any] = {f"output{n}": a for n, a in enumerate(arrays)}
            np.savez(file, **named)
        print(f"etwgpu: wrote {args.output}", file=sys.stderr)
    told = [_summary(each) for each in arrays]
    if args.json:
        print(json.dumps({"method": args.method, "outputs": told}, indent=1))
        return
    for number, each in enumerate(told):
        numbers = " ".join(f"{key} {each[key]:.6g}" for key in _MEASURES if key in each)
        shape = f"{each['type']} {each['shape']}"
        print(f"output {number}: {shape} {numbers}".rstrip())


def _call(path: Path, method: str, inputs: Sequence[Any]) -> list[Any]:
    """The results; an error is the backend's own, where it has one."""
    from executorch.runtime import Runtime

    before = last_error()
    try:
        program = Runtime.get().load_program(str(path))
        loaded = program.load_method(method)
        return [_as_numpy(each) for each in loaded.execute(list(inputs))]
    except RuntimeError as error:
        ours = last_error()
        said = str(error) if ours is None or ours == before else ours
        raise WebGPUError(f"{method}: {said.strip().splitlines()[-1]}") from error


def _as_numpy(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    # numpy has no bfloat16; every value of it is a float32.
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()


def method_inputs(method: Method, given: Sequence[str], seed: int) -> list[Any]:
    """What a method is called with, as `--input` says."""
    wanted = [method.values[at] for at in method.inputs]
    if list(given) == [RANDOM]:
        given = [RANDOM] * len(wanted)
    if len(given) != len(wanted):
        raise InvalidInput(
            f"--input: {method.name} must get {len(wanted)} inputs, got {len(given)}"
        )
    numbers = np.random.default_rng(seed)
    return [_input(value, text, numbers) for value, text in zip(wanted, given)]


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


_MEASURES = ("min", "max", "mean")


def _summary(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"type": str(array.dtype), "shape": list(array.shape)}
    if array.size:
        told |= {name: float(getattr(array, name)()) for name in _MEASURES}
    return told
