"""Programs of this folder as bytes, exported once for all that play them: C++ and
Python in one test, browsers in another. What one has exported is the others' as long as
nothing that it is made from has changed."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
from functools import cache
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from programs import Case

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.cli import delegates
from executorch_webgpu.plan.load_graph import load_graph
from executorch_webgpu.portable import serialize

ROOT = Path(__file__).parents[2]
_FOLDER = ROOT / "build" / "test-cache" / "programs"
_SOURCES = (
    *("executorch_webgpu/**/*.py", "executorch_webgpu/**/*.fbs", "wgsl/**/*.wgsl"),
    *("test/portable/**/*.py", "test/*.py", "test/cpp/*.py", "requirements/*.txt"),
)

# Bytes of a constant that may be in a file twice.
A_FEW = 2 << 10


@cache
def made_from() -> str:
    """A hash of all that decides what is exported, and what comes of it."""
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        paths = sorted(ROOT.glob(pattern))
        assert paths, pattern
        for path in paths:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def file_name(name: str) -> str:
    """Letters, digits and underscores; no two programs have the same."""
    return re.sub(r"\W", lambda c: "_" if c[0] == " " else f"{ord(c[0]):x}", name)


def exported(name: str, case: Case) -> bytes:
    """The bytes of the program of that name, whose `case` was made with seed 0."""
    folder = _FOLDER / made_from()
    path = folder / f"{file_name(name)}.pte"
    if not path.exists():
        made = _export(case)
        folder.mkdir(parents=True, exist_ok=True)
        for other in _FOLDER.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(made)
        partial.replace(path)
    return path.read_bytes()


def _export(case: Case) -> bytes:
    """All delegates of it have plans."""
    partitioner = WebGPUPartitioner(portable=True, **case.options)
    with torch.no_grad():
        program = torch.export.export(
            case.model, case.example, dynamic_shapes=case.shapes, strict=case.strict
        )
        edge = to_edge_transform_and_lower(program, partitioner=[partitioner])
        made = bytes(edge.to_executorch().buffer)
    report = partitioner.report
    if case.delegates == 1:
        assert report.complete, str(report)
    found = delegates(made)
    assert len(found) == case.delegates
    assert all(serialize.section(blob) for _, blob in found), report.not_portable
    for _, blob in found:
        assert max(only_for_plans(blob), default=0) <= A_FEW
    return made


def only_for_plans(blob: bytes) -> list[int]:
    """The bytes of each constant that plans have and the graph has otherwise."""
    section = serialize.section(blob)
    assert section is not None
    known = {value.data_key for value in load_graph(blob).values}
    return [
        math.prod(each.shape) * each.dtype.size
        for each in serialize.read(section).constants
        if each.data_key not in known
    ]
