"""ExecuTorch's own cases of its in-tree backends, lowered by VulkanPartitioner.

As a program, `python test/vulkan_catalogue.py [--only TEXT]`, it runs all of them in
the standard runtime, says of each that fails why, and how many gave what eager gives.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import fast_export
import torch
from accuracy import TOLERANCES
from executorch.backends.webgpu.test.op_tests import cases as catalogue
from executorch.backends.webgpu.test.op_tests.generate_op_tests import export_case
from executorch.backends.webgpu.test.op_tests.test_suite import op_test_registry
from executorch.backends.webgpu.test.ops.dynamic_shape import (
    test_dynamic_shape_export as dynamic,
)
from executorch.runtime import Method, Runtime
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import SymInt
from torch.utils import _pytree as pytree

from executorch_webgpu import last_error

assert catalogue.__name__  # importing it fills the registry


@dataclass
class Lowered:
    """A program for Vulkan, what it computes, and calls of it."""

    buffer: bytes
    model: Callable[..., Any]
    calls: Sequence[Sequence[Any]]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Case:
    name: str
    lower: Callable[[], list[Lowered]]


# -- the catalogue of op cases ---------------------------------------------------


def op_cases() -> Iterator[Case]:
    """Those that the catalogue has not marked as heavy."""
    for op, suite in op_test_registry.items():
        for number, case in enumerate(suite.cases):
            if not case.heavy:
                name = f"{op}/{case.name or number}"
                yield Case(name, lambda suite=suite, case=case: _op_case(suite, case))


def _op_case(suite: Any, case: Any) -> list[Lowered]:
    with _quiet():
        model, inputs, program = export_case(suite, case)
    ids = [d.id for p in program.executorch_program.execution_plan for d in p.delegates]
    assert "VulkanBackend" in ids, ids
    rtol = suite.rtol if case.rtol is None else case.rtol
    atol = suite.atol if case.atol is None else case.atol
    return [Lowered(bytes(program.buffer), model, [inputs], rtol, atol)]


# -- dynamic shapes ----------------------------------------------------------


def _sequence(model: torch.nn.Module) -> Callable[[str], None]:
    """Exports a model of rows of 64, of which there are up to 128."""

    def export(folder: str) -> None:
        x = torch.linspace(-1.0, 1.0, 128 * 64).reshape(1, 1, 128, 64)
        rows = {"x": {2: Dim("s", min=1, max=128)}}
        dynamic._export(model, (x,), rows, f"{folder}/program.pte")

    return export


def _gated(**choices: Any) -> Callable[[str], None]:
    def export(folder: str) -> None:
        model = dynamic.SwiGluModule(width=64, **choices)
        dynamic._export_swiglu_case(folder, "gated", model, [])

    return export


# Each writes one or more programs; with sizes for which two cores suffice.
_DYNAMIC: dict[str, Callable[[str], None]] = {
    "rms": _sequence(dynamic.RmsNormModule(64)),
    "rms_chain": _sequence(dynamic.RmsChainModule(64)),
    "rms_residual": _sequence(dynamic.RmsResidualModule(64)),
    "rms_mul": _sequence(dynamic.RmsMulModule(64)),
    "sigmoid": _sequence(dynamic.SigmoidModule()),
    "conv1d": dynamic.export_dynamic_conv1d_cases,
    "expand_copy": dynamic.export_dynamic_expand_copy_rejection_case,
    "select": dynamic._export_dynamic_select,
    "linear": dynamic.export_dynamic_fp32_linear_cases,
    "q4_linear": dynamic._export_dynamic_linear,
    "q4_linear_odd": lambda folder: dynamic._export_dynamic_linear(
        folder, k=dynamic.LIN_ALT_K, group=dynamic.LIN_ALT_GROUP
    ),
    "q4_linear_reshaped": lambda folder: dynamic._export_dynamic_bk64_linear_case(
        folder, "linear", k=128, n=64, bias=True, live_m=[]
    ),
    "swiglu": _gated(),
    "swiglu_two_inputs": _gated(separate_inputs=True),
    "swiglu_all_results": _gated(expose_intermediates=True),
    "embedding": dynamic.export_dynamic_embedding_cases,
    "rope": dynamic._export_dynamic_rope,
    "sdpa": dynamic._export_dynamic_sdpa,
    "sdpa_wide": dynamic._export_dynamic_sdpa_wide,
    "sdpa_at": lambda folder: dynamic._export_dynamic_k16_sdpa_case(
        folder, "sdpa", 4, 2, [], d=16, initialized_cache=True
    ),
    "linear_and_sdpa": dynamic._export_combined_routes,
}


def dynamic_cases() -> Iterator[Case]:
    """What ExecuTorch's test of dynamic shapes exports."""
    for name, export in _DYNAMIC.items():
        yield Case(f"dynamic/{name}", lambda export=export: _lowered(export))


class _Lowering:
    """What stands for their `_lower_fully_delegated`, and keeps what that gets."""

    def __init__(self) -> None:
        self.lower = dynamic._lower_fully_delegated
        self.kept: list[tuple[ExportedProgram, Any]] = []

    def __call__(self, exported: ExportedProgram, *args: Any, **options: Any) -> Any:
        made = self.lower(exported, *args, **options)
        self.kept.append((exported, made))
        return made


def _lowered(export: Callable[[str], None]) -> list[Lowered]:
    """Every program that a function writes, called at its largest size, at smaller ones
    and at its largest again."""
    keeping = _Lowering()
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(dynamic, "_lower_fully_delegated", keeping),
        _quiet(),
    ):
        export(folder)
    return [
        Lowered(bytes(made.buffer), exported.module(), _calls(exported), *_TOLERANCE)
        for exported, made in keeping.kept
    ]


_TOLERANCE = TOLERANCES[torch.float32]


def _calls(exported: ExportedProgram) -> list[list[torch.Tensor]]:
    """The example's inputs, cut to sizes within their ranges."""
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    names = exported.graph_signature.user_inputs
    fakes = [values[name] for name in names]
    largest = pytree.tree_leaves(exported.example_inputs)
    ranges = {
        symbol: (int(span.lower), int(span.upper))
        for symbol, span in exported.range_constraints.items()
    }
    made = []
    for part in (1.0, 0.37, 0.0, 0.8, 1.0):
        env = {
            symbol: low + int((high - low) * part)
            for symbol, (low, high) in ranges.items()
        }
        made.append([_cut(each, fake, env) for each, fake in zip(largest, fakes)])
    return made


def _cut(
    largest: torch.Tensor, fake: torch.Tensor, env: dict[Any, int]
) -> torch.Tensor:
    for dim, size in enumerate(fake.shape):
        if isinstance(size, SymInt):
            largest = largest.narrow(dim, 0, int(size.node.expr.subs(env)))
    return largest.contiguous()


# -- running ----------------------------------------------------------


def load(lowered: Lowered) -> Method:
    program = Runtime.get().load_program(lowered.buffer)
    method = program.load_method("forward")
    assert method is not None, last_error()
    return method


def check(lowered: Lowered) -> None:
    """Each call gives what eager gives."""
    method = load(lowered)
    for inputs in lowered.calls:
        results = method.execute(list(inputs))
        copies = [each.clone() for each in inputs]
        with torch.no_grad():
            wanted = pytree.tree_leaves(lowered.model(*copies))
        # The new content of inputs that a model writes to comes before its results.
        written = [b for a, b in zip(inputs, copies) if not torch.equal(a, b)]
        wanted = [*written, *wanted]
        assert len(results) == len(wanted), (len(results), len(wanted))
        for result, expected in zip(results, wanted):
            assert result.shape == expected.shape, (result.shape, expected.shape)
            assert result.dtype == expected.dtype, (result.dtype, expected.dtype)
            torch.testing.assert_close(
                result, expected, rtol=lowered.rtol, atol=lowered.atol, equal_nan=True
            )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="python test/vulkan_catalogue.py")
    parser.add_argument("--only", default="", help="part of the names of cases")
    only = parser.parse_args().only
    fast_export.start()
    fast_export.imported()
    counts: collections.Counter[str] = collections.Counter()
    for kind, cases in (("op cases", op_cases()), ("dynamic cases", dynamic_cases())):
        for case in cases:
            if only not in case.name:
                continue
            counts[kind] += 1
            try:
                for lowered in case.lower():
                    check(lowered)
                counts[f"{kind} that equal eager"] += 1
            except Exception as error:
                reason = str(error).strip().splitlines()
                last = (last_error() or "").strip().splitlines()
                print(f"{case.name}: {reason[:1]} {last[-1:]}", flush=True)
    for name, count in counts.items():
        print(f"{count} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
