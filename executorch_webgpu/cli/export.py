"""`export`: a model in, a program out; what of it is on the GPU, its size, and what to
type next."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, WebGPUError
from .markdown import byte_count

if TYPE_CHECKING:
    from ..export.report import Report
    from .sources import Source

# What users type, and the recipe that it is.
RECIPES = {
    "fp32": "FP32",
    "fp16": "FP16",
    "int8": "INT8_STATIC",
    "int8_dynamic": "INT8_DYNAMIC",
    "int4": "INT4_WEIGHT_ONLY",
    "8da4w": "8DA4W",
}
# Of the stages of executorch.export; all others are ExecuTorch's, and ours in them.
_NAMES = {
    "SOURCE_TRANSFORM": "quantize",
    "QUANTIZE": "quantize",
    "TORCH_EXPORT": "torch.export",
}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="export a model to a program",
        description="`module:function` returns (module, inputs) or (module, inputs,"
        " dynamic_shapes). Of a folder of transformers, language models get a cache,"
        " encoders of text and models of pictures are exported as they are.",
    )
    parser.add_argument(
        "model", help="module:function, a folder of transformers, or a .gguf"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="the .pte")
    parser.add_argument("--recipe", choices=RECIPES, default="fp32")
    parser.add_argument(
        "--dynamic",
        nargs="+",
        default=[],
        metavar="INPUT:DIM=MIN..MAX",
        help="dimensions that vary, of inputs by name or number",
    )
    parser.add_argument(
        "--portable", action="store_true", help="for C++ and browsers, too"
    )
    parser.add_argument(
        "--context", type=int, default=1024, help="tokens that a cache holds"
    )
    parser.add_argument(
        "--prompt", type=int, default=256, help="tokens of a call, at most"
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument(
        "--verbose",
        action="store_true",
        default=argparse.SUPPRESS,
        help="tell where the CPU time went, and where an error comes from",
    )
    parser.set_defaults(run=export)


def export(args: argparse.Namespace) -> None:
    if not args.output.parent.is_dir():
        raise InvalidInput(f"-o: must be in a folder that exists, got {args.output}")
    for name in ("context", "prompt"):
        if getattr(args, name) < 1:
            raise InvalidInput(f"--{name}: must be at least 1, got 0 or less")
    if not args.verbose:
        _quiet()
    from ..export.stages import ExportProgress

    with ExportProgress("export") as progress:
        progress.stage("read the model")
        began = time.process_time()
        from . import sources

        half = args.recipe == "fp16"
        options = sources.Options(half, args.context, args.prompt)
        source = sources.load(args.model, options)
        source.dynamic_shapes = _shapes(source, args.dynamic)
        seconds = {"model": time.process_time() - began}
        session, report = _session(source, args)
        _run(session, args.model, seconds)
        _write(session, args.output)
    if source.tokenizer is not None:
        path = args.output.with_name("tokenizer.json")
        source.tokenizer.save(str(path))
        print(f"etwgpu: wrote {path}", file=sys.stderr)
    split = _split(seconds, report)
    _tell(args, report, split, _next(args.output, source))


def _quiet() -> None:
    """What torch, torchao and ExecuTorch say while they are imported and used."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)


# -- sizes that vary -------------------------------------------------------------------


def _shapes(source: Source, given: list[str]) -> Any:
    """The source's dynamic shapes; what the command line gives replaces them."""
    import torch

    if not given:
        return source.dynamic_shapes
    shapes: list[Any] = [None] * len(source.inputs)
    for text in given:
        number, dim, low, high = _parsed(source, text)
        size = source.inputs[number].shape[dim]
        if not low <= size <= high:
            raise InvalidInput(
                f"--dynamic: {text} must hold the example's size, got {size}"
            )
        if low < high:
            varies = torch.export.Dim.DYNAMIC(min=low, max=high)
            shapes[number] = {**(shapes[number] or {}), dim: varies}
    named = [name for name in source.names if not name.isdigit()]
    behind = tuple(shapes[len(named) :])
    return (*shapes[: len(named)], *([behind] if behind else []))


def _parsed(source: Source, text: str) -> tuple[int, int, int, int]:
    """Input, dimension and bounds of `name:dim=min..max`."""
    import torch

    name, colon, rest = text.partition(":")
    dim, equals, bounds = rest.partition("=")
    low, dots, high = bounds.partition("..")
    numbers = (dim, low, high)
    if not (colon and equals and dots and all(each.isdigit() for each in numbers)):
        raise InvalidInput(f"--dynamic: must be input:dim=min..max, got {text}")
    names = source.names
    if name in names:
        number = names.index(name)
    elif name.isdigit() and int(name) < len(names):
        number = int(name)
    else:
        raise InvalidInput(
            f"--dynamic: {text} must name one of {', '.join(names)}, got {name}"
        )
    example = source.inputs[number]
    if not isinstance(example, torch.Tensor) or int(dim) >= example.dim():
        raise InvalidInput(
            f"--dynamic: {text} must be of a tensor with that dimension, got"
            f" {list(getattr(example, 'shape', [])) or type(example).__name__}"
        )
    if not 1 <= int(low) <= int(high):
        raise InvalidInput(f"--dynamic: must be 1 <= min <= max, got {text}")
    return number, int(dim), int(low), int(high)


# -- the export itself -----------------------------------------------------------------


def _session(source: Source, args: argparse.Namespace) -> tuple[Any, Report]:
    """ExecuTorch's pipeline for the recipe, and the report that it will fill."""
    from .sources import foreign

    with foreign("export: the packages torchao and executorch must be there"):
        from executorch.export import ExportRecipe, ExportSession

        from ..export.recipes import WebGPURecipeType
    name = args.recipe
    if name == "int8" and source.dynamic_shapes is not None:
        raise InvalidInput(
            "--recipe: int8 is calibrated at fixed sizes, got sizes that vary;"
            " take int8_dynamic"
        )
    if name == "fp16" and source.generates:
        name = "fp32"  # its weights and cache were read as halves
    recipe = ExportRecipe.get_recipe(
        WebGPURecipeType.__members__[RECIPES[name]], portable=args.portable
    )
    # Nobody else has the module, and two copies of a large one may not fit.
    recipe.source_transform_in_place = True
    # As transformers exports them: torch cannot lower their cache otherwise.
    recipe.strict = source.generates
    session = ExportSession(
        source.module,
        [source.inputs],
        recipe,
        dynamic_shapes={"forward": source.dynamic_shapes},
        constant_methods=source.constants or None,
    )
    (partitioner,) = recipe.lowering_recipe.partitioners
    return session, partitioner.report


class _Clocked:
    """A stage of ExecuTorch's pipeline that keeps its CPU seconds."""

    def __init__(
        self, stage: Any, seconds: dict[str, float], name: str, what: str
    ) -> None:
        self._stage = stage
        self._seconds = seconds
        self._name = name
        self._what = what

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def run(self, artifact: Any) -> None:
        from .sources import foreign

        began = time.process_time()
        if self._name in _NAMES.values():
            # It runs the model's own code.
            with foreign(f"{self._name}: {self._what} must be a model for it"):
                self._stage.run(artifact)
        else:
            self._stage.run(artifact)
        took = time.process_time() - began
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + took


def _run(session: Any, what: str, seconds: dict[str, float]) -> None:
    for kind, stage in list(session.get_all_registered_stages().items()):
        name = _NAMES.get(kind.name, "ExecuTorch")
        session.register_stage(kind, _Clocked(stage, seconds, name, what))
    import torch

    with torch.no_grad():
        session.export()


def _write(session: Any, path: Path) -> None:
    program = session.get_executorch_program_manager()
    try:
        with path.open("wb") as file:
            program.write_to_file(file)
    except OSError as error:
        if path.is_file():
            path.unlink()  # a part of a program is none
        raise WebGPUError(
            f"-o: {path} must be written whole, got: {error.strerror}; make room or"
            " choose another place"
        ) from error


# -- what is told ----------------------------------------------------------------------


def _split(seconds: dict[str, float], report: Report) -> dict[str, float]:
    """CPU seconds by whose they are; ours are spent inside of ExecuTorch's."""
    ours = sum(report.seconds.values())
    return {**seconds, "ExecuTorch": seconds["ExecuTorch"] - ours, "WebGPU": ours}


def _next(path: Path, source: Source) -> list[str]:
    run = f"etwgpu run {path}"
    return [f"etwgpu bench {path} --llm", run] if source.generates else [run]


def _tell(
    args: argparse.Namespace, report: Report, seconds: dict[str, float], then: list[str]
) -> None:
    size = args.output.stat().st_size
    if args.json:
        on_cpu = Counter((each.op, each.reason) for each in report.fallbacks)
        told = {
            "program": str(args.output),
            "bytes": size,
            "on_gpu": dict(report.delegated),
            "on_cpu": [
                {"op": op, "count": count, "reason": reason}
                for (op, reason), count in on_cpu.items()
            ],
            "summary": report.summary,
            "notes": report.notes,
            "cpu_seconds": seconds,
            "next": then,
        }
        print(json.dumps(told, indent=1))
        return
    print(report)
    if args.verbose:
        total = sum(seconds.values())
        print(f"\nCPU seconds: {total:.1f}")
        for name, each in seconds.items():
            print(f"  {name:<14}{each:8.1f}  {100 * each / total:4.1f}%")
        for name, each in report.seconds.items():
            print(f"    {name:<22}{each:6.2f}")
    print(f"\n{args.output}: {byte_count(size)}")
    print(f"next: {then[0]}")
