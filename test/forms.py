"""`check_forms`: check_op, and then the same program planned for the other kind of
adapter, so that kernels for GPUs and for CPU adapters are both held equal to eager."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import drivers
import torch
from executorch.runtime import Runtime
from harness import Context, Program, check_op, compare
from torch.utils import _pytree as pytree

from executorch_webgpu.ir import serialize
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.runtime import device


@contextmanager
def other_adapter() -> Iterator[None]:
    """What is loaded inside is planned as if a CPU adapter were a GPU, or back."""
    made = device.get_device()
    caps = made.caps
    made.caps = replace(caps, is_cpu=not caps.is_cpu)
    try:
        yield
    finally:
        made.caps = caps


def _place(program: Program) -> str:
    graphs = [serialize.read(blob) for _, blob in program.delegates]
    halves = [v for graph in graphs for v in graph.values if v.dtype is DType.FLOAT16]
    return drivers.for_gpu_kernels(bool(halves))


def run_other(program: Program, *inputs: Any) -> list[torch.Tensor]:
    """The program's outputs by the kernels of the other kind of adapter."""
    with drivers.chosen(_place(program)), other_adapter():
        loaded = Runtime.get().load_program(program.buffer)
        method = loaded.load_method("forward")
        assert method is not None
        return list(method.execute(pytree.tree_leaves(inputs)))


def check_forms(
    model: Any,
    *inputs: Any,
    others: Sequence[Sequence[Any]] = (),
    rtol: float | None = None,
    atol: float | None = None,
    **options: Any,
) -> Program:
    program = check_op(model, *inputs, others=others, rtol=rtol, atol=atol, **options)
    for case in (inputs, *others):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*case))
        results = run_other(program, *case)
        context = Context(program.behind, case)
        compare(results, expected, rtol, atol, "other kernels'", context)
    return program


@contextmanager
def adapter_with(**changes: Any) -> Iterator[None]:
    """What is loaded inside is planned for an adapter with other capabilities."""
    made = device.get_device()
    caps = made.caps
    made.caps = replace(caps, **changes)
    try:
        yield
    finally:
        made.caps = caps


# CPU adapters whose lanes cannot share what they load, and players without Python,
# which have constants as the file has them.
_OTHER_CPUS = {
    "lone lanes'": {"is_cpu": True, "subgroups": False},
    "a player's": {"is_cpu": True, "subgroups": False, "packs": False},
}


def check_all_forms(
    model: Any, *inputs: Any, rtol: float | None = None, atol: float | None = None
) -> Program:
    """check_forms, and as CPU adapters of other kinds than this one."""
    program = check_forms(model, *inputs, rtol=rtol, atol=atol)
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*inputs))
    for name, changes in _OTHER_CPUS.items():
        with adapter_with(**changes):
            loaded = Runtime.get().load_program(program.buffer)
            method = loaded.load_method("forward")
            assert method is not None
            results = list(method.execute(pytree.tree_leaves(inputs)))
        compare(results, expected, rtol, atol, name, Context(program.behind, inputs))
    return program
