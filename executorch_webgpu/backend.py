"""WebGPUBackend: the ahead-of-time half of the delegate, program to bytes."""

from __future__ import annotations

import logging
from typing import final

from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import (
    BackendDetails,
    CompileSpec,
    PreprocessResult,
)
from torch.export import ExportedProgram

from . import ir, passes, serialize
from .builder import ConstantData, build
from .errors import Unsupported
from .support import check_supported, is_near_limits

_log = logging.getLogger("executorch_webgpu")

# Tensors start where any element type, and a GPU's upload, is aligned.
_ALIGNMENT = 16


@final
class WebGPUBackend(BackendDetails):
    """Named as the shim registers itself with ExecuTorch's runtime."""

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        graph, data = _lowered(edge_program)
        external = next(
            (s.value.decode() for s in compile_specs if s.key == "external_weights"),
            None,
        )
        store = NamedDataStore()
        used = {value.data_key for value in graph.values if value.data_key}
        for key in sorted(used):
            store.add_named_data(
                key, data.tensors[key], alignment=_ALIGNMENT, external_tag=external
            )
        return PreprocessResult(
            processed_bytes=serialize.write(graph),
            debug_handle_map={},
            data_store_output=store.get_named_data_store_output(),
        )


def _lowered(program: ExportedProgram) -> tuple[ir.Graph, ConstantData]:
    """The program's graph after all passes; or before them, if what they fuse is too
    large for some adapter, although no op by itself is."""
    data = ConstantData()
    graph = passes.apply(build(program, data), data)
    if not is_near_limits(graph):
        return graph, data
    try:
        check_supported(graph)
    except Unsupported as error:
        _log.warning("nothing is fused: %s", error)
        data = ConstantData()
        graph = build(program, data)
        check_supported(graph)
    return graph, data
