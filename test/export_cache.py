"""Remembers what torch.export looks up again for every program.

Half a second of each export goes into listing the composite ops of all
namespaces. The list only changes when an op is registered, so it is kept as
long as the dispatcher knows the same ops. Importing this module switches it on.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._export import utils

_collect = utils._collect_all_valid_cia_ops_for_namespace


@functools.cache
def _remembered(namespace: Any, known: int) -> set[Any]:
    return _collect(namespace)


def _collect_once(namespace: Any) -> set[Any]:
    return _remembered(namespace, len(torch._C._dispatch_get_all_op_names()))


utils._collect_all_valid_cia_ops_for_namespace = _collect_once
