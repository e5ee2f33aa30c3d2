"""`inspect`: what a program takes and gives, what of it is on the GPU, what it needs
there, and where it runs."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import ir
from ..errors import WebGPUError
from ..plan.caps import AOT_CAPS, Caps
from ..plan.load_graph import load_graph
from ..plan.planner import Planner
from ..portable import serialize
from ..portable.at_sizes import fitting_profile
from ..portable.verify import verify
from .adapter import caps_here
from .markdown import byte_count
from .program import Method, file_shape, methods, read, torch_dtype, type_name

_YES = "yes"
_BROWSERS = {"browser": AOT_CAPS, "browser without f16": replace(AOT_CAPS, f16=False)}


@dataclass(frozen=True)
class Argument:
    """An input or output: a tensor's type and sizes, or the kind of a scalar."""

    type: str
    # Numbers; names or expressions where they vary, or "up to N" where the delegate
    # does not see them.
    shape: list[int | str] | None


@dataclass(frozen=True)
class OnGpu:
    """What one delegate is, at its largest sizes."""

    ops: int
    dispatches: int
    kernels: int
    weight_bytes: int
    buffer_bytes: int  # of all buffers, weights and states included
    plan_bytes: int  # in the file, for players without Python


@dataclass(frozen=True)
class Description:
    """What is told of a method."""

    name: str
    inputs: list[Argument]
    outputs: list[Argument]
    sizes: dict[str, tuple[int, int]]  # by name, from the smallest to the largest
    on_gpu: list[OnGpu]
    on_cpu: list[str]
    other_delegates: list[str]
    # By place, "yes", or "no: " and the first thing that is missing there.
    runs_in: dict[str, str] = field(default_factory=dict)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "inspect", help="tell what a program takes, needs and where it runs"
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=show)


def show(args: argparse.Namespace) -> None:
    program, caps = read(args.program), caps_here()
    found = [describe(method, caps) for method in methods(program)]
    if args.json:
        print(
            json.dumps(
                {
                    "file": str(args.program),
                    "bytes": len(program),
                    "adapter": caps.name,
                    "methods": [asdict(each) for each in found],
                },
                indent=1,
            )
        )
        return
    print(f"{args.program}: {byte_count(len(program))}, planned for {caps.name}")
    for each in found:
        print("\n".join(["", *_lines(each)]))


def describe(method: Method, caps: Caps) -> Description:
    planners = [Planner(load_graph(blob), caps) for blob in method.blobs]
    known = _known(method, [each.graph for each in planners])
    return Description(
        name=method.name,
        inputs=[_argument(method.values[at], known.get(at)) for at in method.inputs],
        outputs=[_argument(method.values[at], known.get(at)) for at in method.outputs],
        sizes={name: span for each in planners for name, span in each.ranges.items()},
        on_gpu=[_on_gpu(p, b) for p, b in zip(planners, method.blobs)],
        on_cpu=method.computed_on_cpu,
        other_delegates=method.others,
        runs_in=dict(_places(method)),
    )


def _known(method: Method, graphs: Sequence[ir.Graph]) -> dict[int, ir.graph.Value]:
    """By the method's own index, what delegates know of their arguments."""
    found: dict[int, ir.graph.Value] = {}
    for graph, call in zip(graphs, method.calls):
        ids = [*graph.inputs, *graph.outputs]
        found |= {at: graph.values[id_] for at, id_ in zip(call, ids)}
    return found


def _argument(value: Any, known: ir.graph.Value | None) -> Argument:
    from executorch.exir.schema import Tensor

    if not isinstance(value, Tensor):
        return Argument(type(value).__name__.lower(), None)
    kind = type_name(torch_dtype(value))
    if known is not None and not known.is_int:
        return Argument(kind, list(known.shape))
    return Argument(kind, file_shape(value))


def _on_gpu(planner: Planner, blob: bytes) -> OnGpu:
    graph, plan = planner.graph, planner.upper_bound()
    section = serialize.section(blob)
    weights = {
        value.data_key: math.prod(value.bound) * value.dtype.size
        for value in graph.values
        if value.data_key
    }
    return OnGpu(
        ops=len(graph.calls),
        dispatches=len(plan.dispatches),
        kernels=len(plan.pipelines),
        weight_bytes=sum(weights.values()),
        buffer_bytes=sum(buffer.size for buffer in plan.buffers),
        plan_bytes=0 if section is None else section.nbytes,
    )


def _places(method: Method) -> Iterator[tuple[str, str]]:
    """Where a method runs; what it needs of the CPU is in the Python package and is
    for an app to link."""
    yield "Python", _YES
    sections = [serialize.section(blob) for blob in method.blobs]
    if None in sections:
        missing = "no: it carries no plans; export with portable=True"
        yield from ((place, missing) for place in ("C++", *_BROWSERS))
        return
    yield "C++", _YES
    plans = [serialize.read(each) for each in sections if each is not None]
    for each in plans:
        verify(each)
    for place, caps in _BROWSERS.items():
        foreign = [*method.computed_on_cpu, *method.others]
        if foreign:
            yield place, f"no: it has nothing that computes {foreign[0]}"
            continue
        try:
            for each in plans:
                fitting_profile(each, replace(caps, name=place))
            yield place, _YES
        except WebGPUError as error:
            yield place, f"no: {error}"


def _lines(told: Description) -> Iterator[str]:
    yield told.name
    for title, arguments in (("input", told.inputs), ("output", told.outputs)):
        for number, each in enumerate(arguments):
            shape = "" if each.shape is None else f" {_shape(each.shape)}"
            yield f"  {title} {number}: {each.type}{shape}"
    for name, (low, high) in told.sizes.items():
        yield f"  {name} in [{low}, {high}]"
    for part in told.on_gpu:
        yield (
            f"  on the GPU: {_count(part.ops, 'op')}"
            f" in {_count(part.dispatches, 'dispatch')}"
            f" of {_count(part.kernels, 'kernel')};"
            f" weights {byte_count(part.weight_bytes)},"
            f" all buffers {byte_count(part.buffer_bytes)}"
        )
    if not told.on_gpu:
        yield "  on the GPU: nothing"
    if told.on_cpu:
        yield f"  on the CPU: {', '.join(told.on_cpu)}"
        yield "    (why: the partitioner's report at export says it for each)"
    if told.other_delegates:
        yield f"  by other backends: {', '.join(told.other_delegates)}"
    for place, answer in told.runs_in.items():
        yield f"  runs in {place}: {answer}"


def _shape(extents: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, extents))}]"


def _count(number: int, name: str) -> str:
    if number == 1:
        return f"1 {name}"
    return f"{number} {name}{'es' if name.endswith('ch') else 's'}"
