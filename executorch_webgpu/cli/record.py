"""Which module of the model each launch belongs to: what an ETRecord says."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import WebGPUError
from ..plan import events
from .measure import Launch
from .program import Method

# What is of the model itself, and of no module in it.
MODEL = "(model)"


def module_of(path: Path, method: Method) -> Callable[[Launch], str]:
    """The innermost module that all nodes behind a launch are in."""
    record = _parsed(path)
    maps = (record._delegate_map or {}).get(method.name, {})
    handles: list[dict[str, Sequence[int]]] = []
    for instruction in method.instructions:
        # A file has text where the record had numbers.
        found = maps.get(str(instruction), maps.get(instruction))
        if found is None:
            raise WebGPUError(
                f"{path}: must be the record of this program, got one without its"
                f" delegate at instruction {instruction}"
            )
        handles.append(found.get("delegate_map") or {})
    stacks = _stacks(record)

    def module(launch: Launch) -> str:
        known = handles[launch.delegate]
        keys = (
            events.launch_key(launch.call, launch.op),
            events.value_key(launch.call),
        )
        found = next((known[key] for key in keys if key in known), ())
        paths = [path for handle in found for path in stacks.get(handle, ())]
        return _common(paths)

    return module


def _parsed(path: Path) -> Any:
    from executorch.devtools.etrecord import parse_etrecord

    # The ops that a record may have.
    importlib.import_module("executorch_webgpu.export.verifier_ops")
    if not path.is_file():
        raise WebGPUError(f"{path}: must be an ETRecord, got no file")
    try:
        return parse_etrecord(str(path))
    except (
        zipfile.BadZipFile,
        RuntimeError,
        ValueError,
        LookupError,
        AssertionError,
    ) as error:
        raise WebGPUError(f"{path}: must be an ETRecord, got {error}") from error


def _stacks(record: Any) -> dict[int, list[tuple[str, ...]]]:
    """By debug handle, where in the model its nodes are."""
    found: dict[int, list[tuple[str, ...]]] = {}
    program = record.edge_dialect_program
    nodes = [] if program is None else program.graph_module.graph.nodes
    for node in nodes:
        stack = node.meta.get("nn_module_stack")
        handle = node.meta.get("debug_handle")
        if stack and handle:
            path = [*stack.values()][-1][0]
            parts = tuple(part for part in str(path).split(".") if part)
            found.setdefault(handle, []).append(parts)
    return found


def _common(paths: Sequence[tuple[str, ...]]) -> str:
    if not paths:
        return MODEL
    shared = []
    for parts in zip(*paths):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared) or MODEL
