"""WebGPUBackend: the ahead-of-time half of the delegate, program to bytes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import final

from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import (
    BackendDetails,
    CompileSpec,
    PreprocessResult,
)
from torch.export import ExportedProgram

from .. import ir
from ..errors import Unsupported
from ..ir import serialize
from ..plan.load_graph import check_graph
from . import passes, portable_plans, widened_weights
from .fx_to_ir import build
from .report import Report
from .stages import PREPROCESS, timed
from .support import check_supported, near_limits, remembering

_log = logging.getLogger("executorch_webgpu")

# Bytes. Named data starts at multiples of this, which suit any element type.
_ALIGNMENT = 16


class ReportingSpecs(list[CompileSpec]):
    """Compile specs, and the report of the partitioner that they come from.

    ExecuTorch passes this very list to `preprocess`, which has no other way back to
    the partitioner.
    """

    def __init__(self, specs: Iterable[CompileSpec], report: Report) -> None:
        super().__init__(specs)
        self.report = report


@final
class WebGPUBackend(BackendDetails):
    """Named as `_shim.BACKEND_ID`: ExecuTorch finds the runtime's half by this name."""

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """The program itself, weights and all: `preprocess` only reads it."""
        return edge_program

    @staticmethod
    @timed(PREPROCESS)
    @remembering()
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        graph, constants, handles = build(edge_program)
        weights = widened_weights.integer_weights(graph)
        passes.apply(graph, constants, handles)
        if not _fits_everywhere(graph):
            graph, constants, handles = build(edge_program)
            check_supported(graph)
        found = widened_weights.widened(weights, graph)
        widened_weights.warn(found)
        if isinstance(compile_specs, ReportingSpecs):
            compile_specs.report.widened += map(str, found)
        check_graph(graph)  # what is written here can be loaded
        specs = {spec.key: spec.value for spec in compile_specs}
        tensors = constants.used()
        if "portable" in specs:
            halves = specs.get("f16_accumulate") == b"1"
            made = portable_plans.portable(graph, tensors, halves)
            blob, tensors = made.blob, made.data
            portable_plans.warn(made.problems)
            if isinstance(compile_specs, ReportingSpecs):
                compile_specs.report.not_portable += made.problems
        else:
            blob = serialize.write(graph)
        external = specs.get("external_weights")
        store = NamedDataStore()
        for key, tensor in tensors.items():
            store.add_named_data(
                key,
                tensor,
                alignment=_ALIGNMENT,
                external_tag=None if external is None else external.decode(),
            )
        return PreprocessResult(
            processed_bytes=blob,
            debug_handle_map=handles.mapping(graph),
            data_store_output=store.get_named_data_store_output(),
        )


def _fits_everywhere(graph: ir.Graph) -> bool:
    """Whether every adapter can run the graph after passes: each op alone fits, but
    what was fused may need larger bindings."""
    near = near_limits(graph)
    if near is not None:
        try:
            check_supported(near)
        except Unsupported as error:
            _log.warning("nothing is fused: %s", error)
            return False
    return True
