"""The honest programs that mutants are made of.

Each is small, wholly delegated as one delegate, and exported once: the results are kept
under `build/fuzz`, by a hash of the package's sources and of this file.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "fuzz"
_PACKAGE = ROOT / "executorch_webgpu"

# Of the canary's weights and of memory that belongs to nobody: a mutant whose outputs
# contain it has read what is not its own.
SECRET = float(np.float32(-1.2345678e30))


@dataclass(frozen=True)
class Program:
    """A program with one delegate, and inputs for it."""

    name: str
    pte: bytes
    blob: bytes  # the delegate's
    data: dict[str, bytes]  # the named data, by key
    inputs: tuple[np.ndarray, ...]
    has_plans: bool = False  # and plays them

    @property
    def live(self) -> list[tuple[int, ...]]:
        return [array.shape for array in self.inputs]


def honest() -> dict[str, Program]:
    """All programs by name, exported if they have not been yet."""
    path = BUILD / f"programs-{_digest()}.pickle"
    if not path.exists():
        # Both need torch, which planning does without.
        import fast_export

        from . import models

        fast_export.start()
        with warnings.catch_warnings():
            # torch's own, about itself.
            warnings.simplefilter("ignore", FutureWarning)
            made = {make.__name__: _export(make) for make in models.ALL}
            for make in models.LAID_OUT:
                made[make.__name__] = replace(
                    _export(make, portable=True), name=make.__name__, has_plans=False
                )
            for make in models.PORTABLE:
                program = _export(make, portable=True)
                made[program.name] = program
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_bytes(pickle.dumps(made))
        scratch.replace(path)
    programs: dict[str, Program] = pickle.loads(path.read_bytes())
    return programs


def _digest() -> str:
    sources = sorted(_PACKAGE.rglob("*.py"))
    hashed = hashlib.sha256()
    here = Path(__file__)
    for path in (*sources, here, here.with_name("models.py")):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


def _export(make: Callable[[], tuple[Any, ...]], portable: bool = False) -> Program:
    import torch
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir._serialize._program import deserialize_pte_binary

    from executorch_webgpu import WebGPUPartitioner

    name = f"{make.__name__} with plans" if portable else make.__name__
    torch.manual_seed(0)
    module, inputs, dynamic_shapes = make()
    partitioner = WebGPUPartitioner(portable=portable)
    with torch.no_grad():
        exported = torch.export.export(
            module.eval(), inputs, dynamic_shapes=dynamic_shapes
        )
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    assert partitioner.report.complete, f"{name}: not all delegated"
    pte = bytes(edge.to_executorch().buffer)
    content = deserialize_pte_binary(pte)
    (delegate,) = content.program.backend_delegate_data
    named = content.named_data
    data = {
        key: bytes(named.buffers[entry.buffer_index])
        for key, entry in (named.pte_data.items() if named else ())
    }
    arrays = tuple(tensor.numpy() for tensor in inputs)
    return Program(name, pte, bytes(delegate.data), data, arrays, portable)
