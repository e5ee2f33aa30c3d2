"""Calls through torch.export, lowering and the standard runtime.

`run(module, partitioner)` raises `Refused` where one of them does not go on, with the
kind of the refusal and who said what.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.error import ExportError, InternalError
from executorch.runtime import Runtime
from harness import Program
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram

from executorch_webgpu import WebGPUPartitioner, _shim
from executorch_webgpu.export.fx_to_ir import op_name
from executorch_webgpu.plan import registry

from .samples import SideBySide

NO_KERNEL = "no kernel"
EXPORT = "torch.export refuses"
EXECUTORCH = "ExecuTorch refuses"
RUNTIME = "ExecuTorch's kernels fail"
DELEGATE = "the delegate fails"
# It says so instead of a wrong result.
WIDE = "an int64 beyond 32 bits"

# What torch and ExecuTorch raise where they cannot do what they are asked for.
REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ExportError,
    InternalError,
    LookupError,
    NameError,
    RuntimeError,
    SpecViolationError,
    TypeError,
    ValueError,
)
# ExecuTorch's Error::OperatorMissing; which operator it is only goes to the log.
_OPERATOR_MISSING = "0x:14"


class Refused(Exception):
    """There is no program of the calls, or it does not run."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass
class Ran:
    """A program's results, and the ops over tensors outside of its delegates."""

    results: list[Any]
    left: set[str]


def run(module: SideBySide, partitioner: WebGPUPartitioner | None) -> Ran:
    """Without a partitioner, ExecuTorch alone."""
    exported = _export(module)
    edge = _lower(exported, partitioner)
    left = _left(edge)
    with _listening() as said:
        program = _load(edge, partitioner or WebGPUPartitioner(), said)
        try:
            results = program.run(*(x.clone() for x in module.inputs))
        except RuntimeError as error:
            raise _failure(error, said) from error
    # A program returns the inputs that it changed before its results.
    changed = len(exported.graph_signature.user_inputs_to_mutate)
    return Ran(results[changed:], left)


def _export(module: SideBySide) -> ExportedProgram:
    try:
        with torch.no_grad():
            return torch.export.export(module, tuple(x.clone() for x in module.inputs))
    except REFUSALS as error:
        raise Refused(EXPORT, _summary(error)) from error


def _lower(
    exported: ExportedProgram, partitioner: WebGPUPartitioner | None
) -> EdgeProgramManager:
    chosen = [] if partitioner is None else [partitioner]
    try:
        with torch.no_grad():
            return to_edge_transform_and_lower(exported, partitioner=chosen)
    except SpecViolationError as error:
        unknown = _named(str(error), r"torch\._ops\.(\w+\.\w+)")
        if not unknown:
            raise Refused(EXECUTORCH, _summary(error)) from error
        kind = EXECUTORCH if any(map(_has_kernel, unknown)) else NO_KERNEL
        reason = f"{', '.join(unknown)} is not in core ATen"
        raise Refused(kind, reason) from error
    except REFUSALS as error:
        raise Refused(EXECUTORCH, _summary(error)) from error


def _has_kernel(name: str) -> bool:
    """Whether we or ExecuTorch have a kernel for an op such as aten.exp2."""
    ours = registry.all_ops()
    theirs = Runtime.get().operator_registry.operator_names
    names = {*ours, *(other.replace("::", ".") for other in theirs)}
    return any(f"{other}.".startswith(f"{name}.") for other in names)


def _load(
    edge: EdgeProgramManager, partitioner: WebGPUPartitioner, said: list[str]
) -> Program:
    try:
        return Program(edge, partitioner)
    except REFUSALS as error:
        missing = []
        if "out variant" in str(error):
            missing = _named(str(error), r"(\w+::[\w.]+)")
        elif _OPERATOR_MISSING in str(error):
            missing = _missing(edge)
        if missing:
            raise Refused(NO_KERNEL, ", ".join(missing)) from error
        if "0x" in str(error):
            raise _failure(error, said) from error
        raise Refused(EXECUTORCH, _summary(error)) from error


def _named(text: str, pattern: str) -> list[str]:
    """The ops that a message names."""
    return sorted(set(re.findall(pattern, text)))


def _missing(edge: EdgeProgramManager) -> list[str]:
    """The operators of a program that the runtime has no kernel for."""
    known = set(Runtime.get().operator_registry.operator_names)
    plans = edge.to_executorch().executorch_program.execution_plan
    operators = [op for plan in plans for op in plan.operators]
    names = {f"{op.name}.{op.overload}".rstrip(".") for op in operators}
    return sorted(names - known)


def _left(edge: EdgeProgramManager) -> set[str]:
    return {
        op_name(node)
        for node in edge.exported_program().graph.nodes
        if node.op == "call_function"
        and isinstance(node.meta.get("val"), torch.Tensor)
        and op_name(node) not in ("getitem", "executorch_call_delegate")
    }


@contextmanager
def _listening() -> Iterator[list[str]]:
    """What our backend reports meanwhile."""
    said: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.getMessage().startswith(f"{_shim.BACKEND_ID}: "):
            said.append(record.getMessage())
        return True

    logger = logging.getLogger("executorch_webgpu")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addFilter(keep)
    try:
        yield said
    finally:
        logger.removeFilter(keep)
        logger.setLevel(level)


def _failure(error: Exception, said: list[str]) -> Refused:
    """An error code is our backend's if that reported something."""
    if said and "an int64 must fit int32" in said[-1]:
        return Refused(WIDE, said[-1].splitlines()[0])
    if said:
        return Refused(DELEGATE, said[-1])
    return Refused(RUNTIME, _summary(error))


def _summary(error: Exception) -> str:
    """The kind of an error and the first line of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
