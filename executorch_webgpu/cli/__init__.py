"""The command line, `etwgpu` or `python -m executorch_webgpu`: results are on stdout,
all else on stderr, and the exit status is 1 if something failed.

etwgpu export module:function | FOLDER | model.gguf -o model.pte [--recipe fp16 ...]
etwgpu inspect model.pte [--json]
etwgpu run model.pte [--input x.npy ... | random] [--output y.npz] [--json]
etwgpu bench model.pte [--against PEERS --eager module:function] [--llm] [--json]
etwgpu profile model.pte [--by op|kernel|module] [--trace t.json] [--html report.html]
etwgpu compare model.pte --eager module:function | --bundle b.bpte [--layers] [--json]
etwgpu dump model.pte [--wgsl] [--shapes 1x3 ... | --variants | --plans]
etwgpu serve [model.pte] [--port 8000] [--gallery DIR]
etwgpu tuning [--export FILE | --import FILE | --clear]
etwgpu adapter
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from ..errors import WebGPUError
from ..serve import serve
from . import adapter, bench, compare, dump, export, inspect, profile, run, tuning
from .program import cpu_ops, delegates

__all__ = ["cpu_ops", "delegates", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="etwgpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show where an error comes from"
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in (export, inspect, run, bench, profile, compare, dump):
        command.add_to(commands)
    _add_serve(commands)
    for command in (tuning, adapter):
        command.add_to(commands)
    args = parser.parse_args(argv)
    try:
        args.run(args)
    except (WebGPUError, OSError) as error:
        if args.verbose:
            traceback.print_exc()
        print(f"etwgpu: {error}", file=sys.stderr)
        return 1
    return 0


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("serve", help="serve pages that run programs")
    parser.add_argument("program", type=Path, nargs="?", help="a .pte to run in a page")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument(
        "--gallery", type=Path, help="what examples/gallery has written"
    )
    parser.set_defaults(run=lambda args: serve(args.program, args.port, args.gallery))
