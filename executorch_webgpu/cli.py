"""The command line: the adapter, the plans of a program, measured kernels, and pages.

python -m executorch_webgpu adapter
python -m executorch_webgpu dump model.pte [--wgsl] [--shapes 1x3 ... | --variants]
python -m executorch_webgpu dump model.pte --plans
python -m executorch_webgpu tuning [--export FILE | --import FILE | --clear]
python -m executorch_webgpu serve [model.pte] [--port 8000] [--gallery DIR]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import _shim, options
from .errors import NoAdapter, WebGPUError
from .plan.caps import AOT_CAPS
from .plan.load_graph import load_graph
from .plan.planner import Planner
from .plan.traced_int import plain
from .plan.variants import Cover, cover
from .portable import serialize
from .portable.text import lines
from .portable.verify import verify
from .runtime import device, tuning_file
from .serve import serve


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="executorch_webgpu", description=__doc__)
    commands = parser.add_subparsers(required=True)
    adapter = commands.add_parser("adapter", help="name the GPU adapter in use")
    adapter.set_defaults(run=lambda args: show_adapter())
    dump = commands.add_parser("dump", help="print the plans of a program")
    dump.add_argument("program", type=Path)
    dump.add_argument("--wgsl", action="store_true", help="print the kernels too")
    dump.add_argument("--shapes", nargs="*", help="live input shapes, such as 1x128")
    dump.add_argument(
        "--variants",
        action="store_true",
        help="print the plans for all sizes, as expressions",
    )
    dump.add_argument(
        "--plans",
        action="store_true",
        help="print the plans that the file carries, or why it runs with Python only",
    )
    dump.set_defaults(run=lambda args: show_program(args))
    tuning = commands.add_parser("tuning", help="print what autotune has measured")
    act = tuning.add_mutually_exclusive_group()
    act.add_argument("--export", type=Path, help="write the measurements to a file")
    act.add_argument("--import", type=Path, dest="more", help="add those of a file")
    act.add_argument("--clear", action="store_true", help="forget all of them")
    tuning.set_defaults(run=lambda args: show_tuning(args))
    pages = commands.add_parser("serve", help="serve pages that run programs")
    pages.add_argument("program", type=Path, nargs="?", help="a .pte to run in a page")
    pages.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    pages.add_argument("--gallery", type=Path, help="what examples/gallery has written")
    pages.set_defaults(run=lambda args: serve(args.program, args.port, args.gallery))
    args = parser.parse_args(argv)
    try:
        args.run(args)
    except (WebGPUError, OSError) as error:
        print(f"executorch_webgpu: {error}", file=sys.stderr)
        return 1
    return 0


def show_adapter() -> None:
    print(device.get_device().caps.name)


def show_program(args: argparse.Namespace) -> None:
    """Every delegate's plan, for the largest shapes unless others are given.

    No GPU is needed: without one, the plan is for an adapter with a browser's limits.
    """
    if args.plans:
        show_plans(args.program.read_bytes())
        return
    try:
        caps = device.get_device().caps
    except NoAdapter:
        caps = AOT_CAPS
    for method, blob in delegates(args.program.read_bytes()):
        graph = load_graph(blob)
        planner = Planner(graph, caps)
        plan = planner.upper_bound()
        if args.shapes is not None:
            plan = planner.plan([_shape(shape) for shape in args.shapes])
        print(f"{method}: {len(graph.calls)} ops for {caps.name}")
        for name, (low, high) in planner.ranges.items():
            print(f"{name} in [{low}, {high}]")
        if args.variants:
            show_variants(cover(planner))
        else:
            print(plan)
        for pipeline in plan.pipelines if args.wgsl else ():
            print(f"\n// {pipeline.label}\n{pipeline.wgsl}")


def show_plans(program: bytes) -> None:
    """What a player without Python finds, and what it would miss."""
    for method, ops in cpu_ops(program).items():
        if ops:
            print(f"{method}: runs on the CPU, by kernels of the app: {', '.join(ops)}")
    for method, blob in delegates(program):
        section = serialize.section(blob)
        if section is None:
            print(
                f"{method}: carries no plans, so it needs Python; export with"
                " WebGPUPartitioner(portable=True)"
            )
            continue
        plans = serialize.read(section)
        verify(plans)
        print(f"{method}: {section.nbytes} bytes of plans")
        print("\n".join(lines(plans)))


def show_variants(found: Cover) -> None:
    """The plans that serve all sizes, with what decides between them."""
    for number, variant in enumerate(found.variants, 1):
        sizes = {name: plain(size) for name, size in variant.plan.symbols.items()}
        print(f"variant {number} of {len(found.variants)}, made for {sizes}, holds if")
        for text in variant.guard_texts():
            print(f"  {text}")
        print(variant.plan)
    for refused in found.refused:
        print(f"no variant for {refused.sizes}: {refused.reason}")


def show_tuning(args: argparse.Namespace) -> None:
    path = options.current().tuning_path
    if args.clear:
        path.unlink(missing_ok=True)
    elif args.export is not None:
        tuning_file.write(args.export, tuning_file.read(path))
    elif args.more is not None:
        print(f"{tuning_file.merge(path, args.more)} measurements added to {path}")
    else:
        print(path)
        for name, entries in tuning_file.read(path).items():
            print(name)
            for key, measured in sorted(entries.items()):
                times = ", ".join(
                    f"{n} {t} us" for n, t in measured.microseconds.items()
                )
                print(f"  {key}: {measured.best} ({times})")


def delegates(program: bytes) -> list[tuple[str, bytes]]:
    """The bytes of our delegates in a program, with their methods' names."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    content = deserialize_pte_binary(program).program
    return [
        (plan.name, content.backend_delegate_data[delegate.processed.index].data)
        for plan in content.execution_plan
        for delegate in plan.delegates
        if delegate.id == _shim.BACKEND_ID
    ]


def cpu_ops(program: bytes) -> dict[str, list[str]]:
    """By method, the ops of a program that no delegate computes."""
    from executorch.exir._serialize._program import deserialize_pte_binary
    from executorch.exir.schema import KernelCall

    content = deserialize_pte_binary(program).program
    found = {}
    for plan in content.execution_plan:
        calls = [i.instr_args for chain in plan.chains for i in chain.instructions]
        ops = [plan.operators[c.op_index] for c in calls if isinstance(c, KernelCall)]
        found[plan.name] = sorted(
            {f"{op.name}.{op.overload}".rstrip(".") for op in ops}
        )
    return found


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x") if part)
