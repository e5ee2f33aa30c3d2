"""What the tests share: export, lower, run through ExecuTorch, compare.

`check_op` asserts that everything was delegated, runs the program in the
standard runtime and compares shape, type and values, each with its own message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from executorch.runtime import Method, Runtime
from torch.utils import _pytree as pytree
from wgsl_compilers import check_kernels

from executorch_webgpu import WebGPUPartitioner, last_error
from executorch_webgpu.cli import delegates

TOLERANCES = {
    torch.float32: (1e-4, 1e-5),
    torch.float16: (4e-3, 2e-3),
    torch.bfloat16: (2e-2, 1e-2),
}


class _Function(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class Program:
    """A lowered program, loaded once and kept alive with its bytes."""

    def __init__(
        self, edge: EdgeProgramManager, partitioner: WebGPUPartitioner
    ) -> None:
        self.edge = edge
        self.report = partitioner.report
        self.buffer = bytes(edge.to_executorch().buffer)
        # The runtime's Method refers to its Program, which refers to the bytes.
        self._program = Runtime.get().load_program(self.buffer)
        self.method: Method | None = self._program.load_method("forward")
        assert self.method is not None, last_error()

    def __call__(self, *inputs: Any) -> list[torch.Tensor]:
        assert self.method is not None
        return list(self.method.execute(pytree.tree_leaves(inputs)))

    @property
    def delegates(self) -> list[tuple[str, bytes]]:
        return delegates(self.buffer)


def lower(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    dynamic_shapes: Any = None,
    partitioner: WebGPUPartitioner | None = None,
) -> Program:
    partitioner = partitioner or WebGPUPartitioner()
    with torch.no_grad():
        exported = torch.export.export(
            model.eval(), tuple(inputs), dynamic_shapes=dynamic_shapes
        )
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return Program(edge, partitioner)


def check_op(
    model: torch.nn.Module | Callable[..., Any],
    *inputs: Any,
    dynamic_shapes: Sequence[Any] | None = None,
    others: Sequence[Sequence[Any]] = (),
    rtol: float | None = None,
    atol: float | None = None,
    delegated: bool = True,
) -> Program:
    """Exports `model` once and holds it equal to eager on every set of inputs.

    Its kernels must compile with both compilers of WGSL, for every kind of device.
    With `delegated=False` the program must run, with something left on the CPU.
    """
    shapes = dynamic_shapes
    if not isinstance(model, torch.nn.Module):
        model = _Function(model)
        shapes = None if dynamic_shapes is None else (tuple(dynamic_shapes),)
    program = lower(model, inputs, shapes)
    if delegated:
        assert program.report.complete, f"not all delegated:\n{program.report}"
        assert len(program.delegates) == 1, f"{len(program.delegates)} delegates"
    else:
        assert program.report.fallbacks, f"all delegated:\n{program.report}"
    for _, blob in program.delegates:
        check_kernels(blob)
    for case in (inputs, *others):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*case))
        compare(program(*case), expected, rtol, atol)
    return program


def compare(
    results: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    assert len(results) == len(expected), f"{len(results)} outputs, not {len(expected)}"
    for number, (result, wanted) in enumerate(zip(results, expected)):
        assert result.shape == wanted.shape, (
            f"output {number}: shape {tuple(result.shape)}, not {tuple(wanted.shape)}"
        )
        assert result.dtype == wanted.dtype, (
            f"output {number}: type {result.dtype}, not {wanted.dtype}"
        )
        relative, absolute = TOLERANCES.get(wanted.dtype, (0.0, 0.0))
        torch.testing.assert_close(
            result,
            wanted,
            rtol=relative if rtol is None else rtol,
            atol=absolute if atol is None else atol,
            equal_nan=True,
            check_stride=False,
            msg=lambda text, n=number: f"output {n}: {text}",
        )
