"""`dump`: the plans of a program, buffer by buffer and dispatch by dispatch."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..plan.load_graph import load_graph
from ..plan.planner import Planner
from ..plan.traced_int import plain
from ..plan.variants import Cover, cover
from ..portable import serialize
from ..portable.text import lines
from ..portable.verify import verify
from .adapter import caps_here
from .inputs import shape_of
from .program import cpu_ops, delegates, read


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("dump", help="print the plans of a program")
    parser.add_argument("program", type=Path)
    parser.add_argument("--wgsl", action="store_true", help="print the kernels too")
    parser.add_argument("--shapes", nargs="*", help="live input shapes, such as 1x128")
    parser.add_argument(
        "--variants",
        action="store_true",
        help="print the plans for all sizes, as expressions",
    )
    parser.add_argument(
        "--plans",
        action="store_true",
        help="print the plans that the file carries, or why it runs with Python only",
    )
    parser.set_defaults(run=show_program)


def show_program(args: argparse.Namespace) -> None:
    """Every delegate's plan, for the largest shapes unless others are given.

    No GPU is needed: without one, the plan is for an adapter with a browser's limits.
    """
    program = read(args.program)
    if args.plans:
        show_plans(program)
        return
    caps = caps_here()
    for method, blob in delegates(program):
        graph = load_graph(blob)
        planner = Planner(graph, caps)
        plan = planner.upper_bound()
        if args.shapes is not None:
            plan = planner.plan([shape_of(shape) for shape in args.shapes])
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
