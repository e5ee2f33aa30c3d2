"""Makes exporting many small programs in one process cheaper; changes no result.

Half the time of a small program's export goes into what does not depend on the
program: finding torch's composite ops again, and looking for garbage among all that
was imported. A tenth of a large one's goes into copies of where its nodes came from.
"""

from __future__ import annotations

import functools
import gc
from typing import Any

import torch
from torch._export import utils
from torch.export import decomp_utils, exported_program
from torch.fx.traceback import NodeSource

_collect = utils._collect_all_valid_cia_ops


@functools.lru_cache(maxsize=1)
def _collect_for(registered: tuple[str, ...], namespaces: tuple[str, ...]) -> set[Any]:
    return _collect()


def _collect_once() -> set[Any]:
    """The composite ops, found again only after another op has been registered."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(
        "CompositeImplicitAutograd"
    )
    return _collect_for(tuple(registered), tuple(torch.ops._dir))


def start() -> None:
    for module in (utils, decomp_utils, exported_program):
        module._collect_all_valid_cia_ops = _collect_once
    # Each tells of a node that was: it never changes, so a copy may be the same one.
    NodeSource.__deepcopy__ = lambda source, memo: source


def imported() -> None:
    """To be called when everything has been imported: all of that is here to stay."""
    gc.collect()
    gc.freeze()
