"""`adapter`: which GPU programs run on here."""

from __future__ import annotations

import argparse

from ..errors import NoAdapter
from ..plan.caps import AOT_CAPS, Caps
from ..runtime import device


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("adapter", help="name the GPU adapter in use")
    parser.set_defaults(run=lambda args: print(device.get_device().caps.name))


def caps_here() -> Caps:
    """What the adapter has; where there is none, what any browser has."""
    try:
        return device.get_device().caps
    except NoAdapter:
        return AOT_CAPS
