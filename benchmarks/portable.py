"""What plans in the file cost, and what they save.

    python -m benchmarks portable [--cases ...] [--turns N] [--publish]

Exports each program with plans and without, in a process of its own, and compares: the
time of the export, the size of the file, a new live shape with what planning it takes,
and the start of a C++ process with that of a Python one, up to a loaded method, in
turns. The driver has compiled everything before, so that its time is not in there. What
the C++ process then holds is told apart from what the driver holds for the kernels,
which a program of its own compiles (pipelines.c). Last, what the host does in a call
(host_cost.py). With --publish all of it is written into docs/portable.md.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import platform
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

from . import host_cost, report
from .host_cost import Host

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "benchmarks" / "portable"
PAGE = ROOT / "docs" / "portable.md"
MARKER = "portable"
SHAPES = 40

TITLES = {
    "mobilenet": "MobileNetV2, 224x224",
    "minilm": "MiniLM-L6, batch up to 8, length up to 128",
    "smollm": "SmolLM2-135M 4-bit, prompts up to 256",
}
# To see that the command works.
TRIAL = {"layer": "a layer of an encoder, length up to 40"}

HEAD = (
    *("program", "plans", "of the file", "profiles", "variants of each", "kernels"),
    *("export", "a new size", "start in C++", "resident", "driver's for kernels"),
)


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
    resident: int  # of the C++ process, beyond one with a tiny program
    driver: int  # of a process with these kernels, beyond one with the tiny program's
    buffers: int  # on the GPU, which is the host's memory here


@dataclass(frozen=True)
class Measured:
    """All that a run has found."""

    adapter: str
    results: dict[str, Result]
    hosts: list[Host]


def main(argv: Sequence[str]) -> int:
    if argv and argv[0] == "export":
        _export(argv[1], Path(argv[2]), portable=argv[3] == "1")
        return 0
    parser = argparse.ArgumentParser(
        prog="benchmarks portable",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = {**TITLES, **TRIAL}
    parser.add_argument("--cases", nargs="+", choices=names, default=[*TITLES])
    parser.add_argument("--turns", type=int, default=5, help="of starts of processes")
    parser.add_argument(
        "--publish", action="store_true", help=f"write into {PAGE.name}"
    )
    options = parser.parse_args(argv)
    if options.publish and options.cases != [*TITLES]:
        raise SystemExit(
            f"benchmarks portable: --publish must have all cases, got {options.cases}"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    measured = measure(options.cases, options.turns)
    (FOLDER / "results.json").write_text(json.dumps(asdict(measured), indent=1))
    print(section(measured))
    if options.publish and not report.publish(PAGE, MARKER, section(measured)):
        raise SystemExit(f"benchmarks portable: {PAGE} must have markers, got none")
    return 0


# -- exporting, in another process -----------------------------------------------------


def _export(name: str, path: Path, portable: bool) -> None:
    """Writes the program, and prints the CPU seconds that this took."""
    import torch
    from executorch.exir import to_edge_transform_and_lower

    from executorch_webgpu import WebGPUPartitioner

    torch.set_num_threads(1)
    model, inputs, shapes = _model(name)
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


def _layer() -> tuple[Any, ...]:
    import torch

    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    length = torch.export.Dim("length", min=2, max=40)
    return layer, (torch.randn(1, 9, 16),), ({1: length},)


def _tiny() -> tuple[Any, ...]:
    import torch

    return torch.nn.ReLU(), (torch.randn(4),), None


def _model(name: str) -> tuple[Any, ...]:
    models: dict[str, Callable[[], tuple[Any, ...]]] = {
        "mobilenet": _mobilenet,
        "minilm": _minilm,
        "smollm": _smollm,
        "layer": _layer,
        "tiny": _tiny,
    }
    kind, _, count = name.partition("-")
    return host_cost.chain(int(count)) if kind == "chain" else models[name]()


# -- measuring -------------------------------------------------------------------------


def measure(names: Sequence[str], turns: int) -> Measured:
    """Everything, one program after the other."""
    tiny = _exported("tiny", portable=True)[0]
    _, _, resident = _starts(tiny, turns)
    held, adapter = _kernels_alone(tiny, turns)
    results = {name: _measure(name, turns, resident, held) for name in names}
    print("the host's cost of a call", file=sys.stderr)
    chains = {
        count: _exported(f"chain-{count}", portable=True)[0]
        for count in host_cost.DISPATCHES
    }
    host = host_cost.measure(chains, _loaded_in_python, _loaded_in_cpp)
    return Measured(adapter, results, host)


def _exported(name: str, portable: bool) -> tuple[Path, float]:
    """The program, and the CPU seconds that its export took."""
    path = FOLDER / f"{name}{'-portable' * portable}.pte"
    command = [sys.executable, "-m", "benchmarks.portable", "export", name]
    said = _output([*command, str(path), str(int(portable))])
    return path, float(json.loads(said.splitlines()[-1]))


def _plans(program: Path) -> tuple[Any, Any, int]:
    """The program's only graph, its plans, and how many bytes these have."""
    from executorch_webgpu.cli import delegates
    from executorch_webgpu.plan.load_graph import load_graph
    from executorch_webgpu.portable import serialize

    ((_, blob),) = delegates(program.read_bytes())
    found = serialize.section(blob)
    assert found is not None
    return load_graph(blob), serialize.read(found), found.nbytes


def _measure(name: str, turns: int, tiny: int, tiny_kernels: int) -> Result:
    """`tiny` is what a C++ process holds with a program that computes next to nothing,
    and `tiny_kernels` what one holds that only compiles its kernels."""
    title = {**TITLES, **TRIAL}[name]
    print(f"{title}: export", file=sys.stderr)
    _, without = _exported(name, portable=False)
    print(f"{title}: export with plans", file=sys.stderr)
    path, export = _exported(name, portable=True)
    graph, plans, size = _plans(path)
    print(f"{title}: new sizes, starts, memory", file=sys.stderr)
    planned, served = _new_shapes(graph)
    python, cpp, resident = _starts(path, turns)
    kernels, _ = _kernels_alone(path, turns)
    first = plans.profiles[0].variants  # a software driver has all features
    bound = {
        buffer
        for each in first
        for at in each.dispatches
        for buffer in plans.dispatches[at].buffers
    }
    return Result(
        size,
        path.stat().st_size,
        len(plans.profiles),
        max(len(profile.variants) for profile in plans.profiles),
        len(plans.kernels),
        without,
        export,
        planned,
        served,
        python,
        cpp,
        resident - tiny,
        kernels - tiny_kernels,
        sum(plans.buffers[index].size for index in bound),
    )


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


@functools.cache
def _driver() -> Any:
    """The module that starts C++ processes."""
    sys.path.insert(0, str(ROOT / "test" / "cpp"))
    import driver

    return driver


def _loaded_in_python(program: Path) -> Any:
    """A process of host_cost.py with the program's method loaded."""
    command = (Path(sys.executable), ROOT, "-m", host_cost.__name__, str(program))
    return _driver().Driver(*command, ET_WEBGPU_PLANS="file")


def _loaded_in_cpp(program: Path) -> Any:
    """A C++ process with the program's method loaded."""
    driver = _driver()
    process = driver.Driver(driver.module_driver(), FOLDER)
    for line in (f"load {program}", "method forward"):
        answer = process.ask(line)
        assert answer == "ok", answer
    return process


def _starts(program: Path, turns: int) -> tuple[float, float, int]:
    """CPU seconds of a Python process and of a C++ one until a method is loaded, and
    what the second has resident then."""
    code = (
        "import sys; from executorch.runtime import Runtime;"
        "program = Runtime.get().load_program(sys.argv[1]);"
        "assert program.load_method('forward') is not None"
    )
    _driver().module_driver()  # built before anything is timed
    python, cpp, resident = [], [], []
    for turn in range(turns + 1):
        begun = _children()
        _output([sys.executable, "-c", code, str(program)])
        between = _children()
        process = _loaded_in_cpp(program)
        resident.append(process.resident())
        process.close()
        if turn:  # the first has the driver compile
            python.append(between - begun)
            cpp.append(_children() - between)
    return (
        statistics.median(python),
        statistics.median(cpp),
        int(statistics.median(resident[1:])),
    )


def _kernels_alone(program: Path, turns: int) -> tuple[int, str]:
    """What a process has resident that compiles the kernels of a program's first
    profile and does nothing else, and the adapter that it does so for."""
    _, plans, _ = _plans(program)
    used = dict.fromkeys(
        plans.dispatches[at].kernel
        for variant in plans.profiles[0].variants
        for at in variant.dispatches
    )
    digits = {"read": "0", "write": "1", "uniform": "2"}
    lines = []
    for number in used:
        kernel = plans.kernels[number]
        path = FOLDER / f"kernel{number}.wgsl"
        path.write_text("\n".join(plans.lines[at] for at in kernel.lines))
        lines.append(f"{path} {''.join(digits[each] for each in kernel.access)}\n")
    executable = _build_pipelines()
    found, adapter = [], ""
    for _ in range(turns + 1):
        with subprocess.Popen(
            [executable], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("".join(lines) + "\n")
            process.stdin.flush()
            word, _, adapter = process.stdout.readline().strip().partition(" ")
            assert word == "ok", f"pipelines must compile {program.name}"
            found.append(_driver().resident(process.pid))
            process.stdin.close()
    return int(statistics.median(found[1:])), adapter


def _build_pipelines() -> Path:
    from executorch_webgpu.runtime import device

    library = Path(device.native_library())
    target = FOLDER / "pipelines"
    source = Path(__file__).with_name("pipelines.c")
    _output(
        ["cc", "-O2", f"-I{library.parent}", str(source), str(library)]
        + [f"-Wl,-rpath,{library.parent}", "-o", str(target)]
    )
    return target


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


def section(measured: Measured) -> str:
    """What the page shows."""
    run = (
        f"Measured on {datetime.date.today()} with `python -m benchmarks portable`, on"
        f" {measured.adapter}, {os.cpu_count()} cores, {platform.system()}"
        f" {platform.machine()}."
    )
    titles = {**TITLES, **TRIAL}
    rows = [[titles[name], *_cells(each)] for name, each in measured.results.items()]
    return "\n\n".join([run, report.table(HEAD, rows), *map(_sentence, measured.hosts)])


def _cells(each: Result) -> list[str]:
    new = each.planned / each.served if each.served else 0.0
    return [
        f"{each.plans / 1000:.0f} KB",
        f"{100 * each.plans / each.file:.1f}%",
        str(each.profiles),
        str(each.variants),
        str(each.kernels),
        f"x {each.export_with_plans / each.export:.2f}",
        f"1/{new:.0f}" if new else "-",
        f"1/{each.python / each.cpp:.1f}",
        f"{(each.resident - each.buffers - each.driver) / 1e6:.0f} MB",
        f"{each.driver / 1e6:.0f} MB",
    ]


def _sentence(host: Host) -> str:
    count = "1 dispatch" if host.dispatches == 1 else f"{host.dispatches} dispatches"
    beyond = (each - host.bare for each in (host.cpp, host.replay, host.method))
    cpp, replay, method = (f"{each:+.0f}" for each in beyond)
    return (
        f"A call of {count} takes {host.cpp:.0f} us in C++:"
        f" {host.cpp / host.replay:.2f} of the replay's time in Python, and"
        f" {host.cpp / host.method:.2f} of that with ExecuTorch's bindings. Beyond a"
        f" bare C loop, which takes {host.bare:.0f} us, these are {cpp}, {replay} and"
        f" {method} us."
    )


def read(page: str) -> tuple[str, list[list[str]], list[str]]:
    """Of a page: the line that says when and on what it was measured, the cells of the
    table, its header first, and the sentences below it. ValueError if a part is not
    what this command writes."""
    start, end = (f"<!-- {MARKER}:{each} -->" for each in ("start", "end"))
    parts = page.split(start)[1].split(end)[0].strip().split("\n\n")
    run, shown, *sentences = parts if len(parts) > 1 else (parts[0], "")
    if not re.fullmatch(
        r"Measured on \d{4}-\d\d-\d\d with `python -m benchmarks portable`, on .+,"
        r" \d+ cores, .+\.",
        run,
    ):
        raise ValueError(f"the first line must say when and on what, got {run!r}")
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in shown.split("\n")
    ]
    del cells[1]
    return run, cells, sentences


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
