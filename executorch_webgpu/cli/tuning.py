"""`tuning`: what autotune has measured, and where it is kept."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import options
from ..runtime import tuning_file


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("tuning", help="print what autotune has measured")
    act = parser.add_mutually_exclusive_group()
    act.add_argument("--export", type=Path, help="write the measurements to a file")
    act.add_argument("--import", type=Path, dest="more", help="add those of a file")
    act.add_argument("--clear", action="store_true", help="forget all of them")
    parser.set_defaults(run=show_tuning)


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
