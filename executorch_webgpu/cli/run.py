"""`run`: one call of a program in ExecuTorch's standard runtime, on files or on random
numbers."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .inputs import add_input, inputs_of
from .loaded import Loaded, as_numpy
from .program import find_method, read


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("run", help="run a program once")
    parser.add_argument("program", type=Path)
    add_input(parser)
    parser.add_argument("--output", type=Path, help="an .npz file with all outputs")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    method = find_method(read(args.program), args.method)
    inputs = inputs_of(method, args.input, args.seed)
    outputs = Loaded(args.program, method.name).call(inputs)
    arrays = [np.asarray(as_numpy(each)) for each in outputs]
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


_MEASURES = ("min", "max", "mean")


def _summary(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"type": str(array.dtype), "shape": list(array.shape)}
    if array.size:
        told |= {name: float(getattr(array, name)()) for name in _MEASURES}
    return told
