"""Who refuses a call that torch refuses: somebody must, before there is a result."""

from __future__ import annotations

from executorch_webgpu import WebGPUPartitioner

from .pipeline import REFUSALS, Refused, run
from .samples import Call, SideBySide

ACCEPTED = "accepted by eager"
SILENT = "silent"


def refused_by(call: Call) -> str:
    """The kind of the refusal."""
    try:
        call.eager()
    except REFUSALS:
        try:
            run(SideBySide([call]), WebGPUPartitioner())
        except Refused as refused:
            return refused.kind
        return SILENT
    return ACCEPTED
