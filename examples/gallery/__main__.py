"""Exports the gallery's models: python examples/gallery OUT [NAMES...] [--onnx]

Each gets a folder with its program, what a page must know of it, samples, and what
Python gives for these; docs/web.md says more. What is up to date is left as it is.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path = [p for p in sys.path if Path(p) != Path(__file__).resolve().parent]

from gallery import shared
from gallery.catalogue import CATALOGUE


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="gallery", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CATALOGUE)}")
    parser.add_argument(
        "--onnx", action="store_true", help="write the models for the benchmark, too"
    )
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in CATALOGUE]
    if unknown:
        parser.error(f"names must be of {', '.join(CATALOGUE)}, got {unknown[0]}")
    if args.jobs > 1:
        sys.exit(in_processes(args))
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    for name in args.names or CATALOGUE:
        folder, seconds = shared.write(args.out, name, args.onnx)
        size = (folder / shared.PROGRAM).stat().st_size
        print(f"{folder}: {size / 1e6:.1f} MB, {seconds:.1f} s", flush=True)


def in_processes(args: argparse.Namespace) -> int:
    """Each in a process of its own, the large ones first; gives the worst exit code."""
    rest = ["--onnx"] if args.onnx else []

    def one(name: str) -> int:
        own = [sys.executable, str(Path(__file__).parent), str(args.out), name]
        return subprocess.run([*own, *rest], check=False).returncode

    with ThreadPoolExecutor(args.jobs) as pool:
        return max(pool.map(one, args.names or reversed(list(CATALOGUE))))


if __name__ == "__main__":
    main()
