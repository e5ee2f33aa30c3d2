"""What plans in the file cost, and what they save.

    python -m benchmarks portable [--cases ...] [--publish]

Exports each program with plans and without, in a process of its own, and compares: the
time of the export, the size of the file, a new live shape with what planning it takes,
and the start of a C++ process with that of a Python one, up to a loaded method, in
turns. The driver has compiled everything before, so that its time is not in there.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "benchmarks" / "portable"
PAGE = ROOT / "docs" / "portable.md"
TURNS = 5
SHAPES = 40

TITLES = {
    "mobilenet": "MobileNetV2, 224x224",
    "minilm": "MiniLM-L6, batch up to 8, length up to 128",
    "smollm": "SmolLM2-135M 4-bit, prompts up to 256",
}


@dataclass(frozen=True)
class Result:
    """Of one program; times in seconds, memory in bytes."""

    plans: int
    file: int
    profiles: int
    variants: int
    kernels: int
    export: float
    export_with_plans: float
    planned: float  # a new size, by planning; 0 where there is one size only
    served: float  # the same, by a variant
    python: float  # from the start of a process to a loaded method
    cpp: float
    resident: int  # of the C++ process with the method loaded
    driver: int  # of one with a method that computes next to nothing
    buffers: int  # on the GPU, which is the host's memory here


def main(argv: Sequence[str]) -> int:
    if argv and argv[0] == "export":
        _export(argv[1], Path(argv[2]), portable=argv[3] == "1")
        return 0
    parser = argparse.ArgumentParser(
        prog="benchmarks portable",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", nargs="+", choices=TITLES, default=[*TITLES])
    parser.add_argument(
        "--publish", action="store_true", help=f"write into {PAGE.name}"
    )
    options = parser.parse_args(argv)
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = {name: _measure(name) for name in options.cases}
    stored = json.dumps(
        {name: asdict(each) for name, each in results.items()}, indent=1
    )
    (FOLDER / "results.json").write_text(stored)
    print(table(results))
    if options.publish:
        _publish(table(results))
    return 0


# -- exporting, in another process -----------------------------------------------------


def _export(name: str, path: Path, portable: bool) -> None:
    """Writes the program, and prints the CPU seconds that this took."""
    import torch
    from executorch.exir import to_edge_transform_and_lower

    from executorch_webgpu import WebGPUPartitioner

    torch.set_num_threads(1)
    model, inputs, shapes = _MODELS[name]()
    begin = time.process_time()
    exported = torch.export.export(model.eval(), inputs, dynamic_shapes=shapes)
    partitioner = WebGPUPartitioner(portable=portable)
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    path.write_bytes(edge.to_executorch().buffer)
    print(json.dumps(time.process_time() - begin))


def _mobilenet() -> tuple[Any, ...]:
    import torch

    from .models import vision

    return vision("mobilenet_v2"), (torch.randn(1, 3, 224, 224),), None


def _minilm() -> tuple[Any, ...]:
    import torch

    from .models import embedder

    tokens = torch.ones(8, 128, dtype=torch.int64)
    batch = torch.export.Dim("batch", min=1, max=8)
    length = torch.export.Dim("length", min=1, max=128)
    shape = {0: batch, 1: length}
    return embedder(), (tokens, tokens), {"ids": shape, "mask": shape}


def _smollm() -> tuple[Any, ...]:
    import torch

    from .models import smollm

    length = torch.export.Dim("length", min=1, max=256)
    inputs = (torch.ones(1, 256, dtype=torch.int64), torch.arange(256))
    return smollm(1024), inputs, {"tokens": {1: length}, "positions": {0: length}}


def _tiny() -> tuple[Any, ...]:
    import torch

    return torch.nn.ReLU(), (torch.randn(4),), None


_MODELS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "mobilenet": _mobilenet,
    "minilm": _minilm,
    "smollm": _smollm,
    "tiny": _tiny,
}


# -- measuring -------------------------------------------------------------------------


def _measure(name: str) -> Result:
    from executorch_webgpu.cli import delegates
    from executorch_webgpu.plan.load_graph import load_graph
    from executorch_webgpu.portable import serialize

    times, paths = {}, {}
    for portable in (False, True):
        print(f"{TITLES[name]}: export", "with plans" * portable, file=sys.stderr)
        paths[portable] = FOLDER / f"{name}{'-portable' * portable}.pte"
        command = [sys.executable, "-m", "benchmarks.portable", "export", name]
        command += [str(paths[portable]), str(int(portable))]
        times[portable] = json.loads(_output(command).splitlines()[-1])
    data = paths[True].read_bytes()
    ((_, blob),) = delegates(data)
    section = serialize.section(blob)
    assert section is not None
    plans = serialize.read(section)
    planned, served = _new_shapes(load_graph(blob))
    python, cpp, resident = _starts(paths[True])
    first = plans.profiles[0].variants  # a software driver has all features
    bound = {
        b
        for each in first
        for n in each.dispatches
        for b in plans.dispatches[n].buffers
    }
    return Result(
        section.nbytes,
        len(data),
        len(plans.profiles),
        max(len(profile.variants) for profile in plans.profiles),
        len(plans.kernels),
        times[False],
        times[True],
        planned,
        served,
        python,
        cpp,
        resident,
        _driver_resident(),
        sum(plans.buffers[index].size for index in bound),
    )


@functools.cache
def _driver_resident() -> int:
    """What a process holds for the driver, and whatever else every app has."""
    path = FOLDER / "tiny.pte"
    _output(
        [sys.executable, "-m", "benchmarks.portable", "export", "tiny", str(path), "1"]
    )
    return _starts(path)[2]


def _new_shapes(graph: Any) -> tuple[float, float]:
    """CPU seconds of a plan for a new size: made, and of a variant that there is."""
    from executorch_webgpu.plan.caps import AOT_CAPS
    from executorch_webgpu.plan.planner import Planner

    planner = Planner(graph, AOT_CAPS)
    planner.upper_bound()
    if not planner.ranges:
        return 0.0, 0.0
    chosen = random.Random(1)
    made, served = [], []
    for _ in range(SHAPES):
        sizes = {name: chosen.randint(*span) for name, span in planner.ranges.items()}
        made.append(_seconds(lambda sizes=sizes: planner.variant(sizes)))
        planner.plan_at(sizes)  # by now a variant serves these
        served.append(_seconds(lambda sizes=sizes: planner.plan_at(sizes)))
    return statistics.median(made), statistics.median(served)


def _seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def _starts(program: Path) -> tuple[float, float, int]:
    """CPU seconds of a Python process and of a C++ one until a method is loaded, and
    what the second has resident then."""
    sys.path.insert(0, str(ROOT / "test" / "cpp"))
    import driver

    executable = driver.module_driver()
    code = (
        "import sys; from executorch.runtime import Runtime;"
        "program = Runtime.get().load_program(sys.argv[1]);"
        "assert program.load_method('forward') is not None"
    )
    python, cpp, resident = [], [], 0
    for turn in range(TURNS + 1):
        begun = _children()
        _output([sys.executable, "-c", code, str(program)])
        between = _children()
        process = driver.Driver(executable, FOLDER)
        for line in (f"load {program}", "method forward"):
            answer = process.ask(line)
            assert answer == "ok", answer
        resident = process.resident()
        process.close()
        if turn:  # the first has the driver compile
            python.append(between - begun)
            cpp.append(_children() - between)
    return statistics.median(python), statistics.median(cpp), resident


def _children() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(
            f"benchmarks portable: {command[1:4]} must succeed, got an error"
        )
    return done.stdout


# -- showing ---------------------------------------------------------------------------


def table(results: dict[str, Result]) -> str:
    """What the page shows."""
    head = [
        "program",
        "plans",
        "of the file",
        "profiles",
        "variants of each",
        "kernels",
    ]
    head += ["export", "a new size", "start in C++", "resident"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, each in results.items():
        new = each.planned / each.served if each.served else 0.0
        rows.append(
            [
                TITLES[name],
                f"{each.plans / 1000:.0f} KB",
                f"{100 * each.plans / each.file:.1f}%",
                str(each.profiles),
                str(each.variants),
                str(each.kernels),
                f"x {each.export_with_plans / each.export:.2f}",
                f"1/{new:.0f}" if new else "-",
                f"1/{each.python / each.cpp:.1f}",
                f"{(each.resident - each.driver - each.buffers) / 1e6:.0f} MB",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _publish(shown: str) -> None:
    page = PAGE.read_text()
    pattern = r"(<!-- portable:start -->\n).*?(\n<!-- portable:end -->)"
    assert re.search(pattern, page, re.DOTALL)
    text = re.sub(pattern, lambda m: m[1] + shown + m[2], page, flags=re.DOTALL)
    PAGE.write_text(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
