"""Who refuses a call that torch refuses: somebody must, before there is a result."""

from __future__ import annotations

from executorch_webgpu import WebGPUPartitioner

from .outcome import FAILED
from .pipeline import REFUSALS, Refused, run
from .samples import Call, SideBySide

ACCEPTED = "accepted by eager here"
LOST = "lost on the way"
# Ops whose export or decomposition is something that torch does not refuse.
_REPLACED = {
    "aminmax": "an out= of another type becomes a conversion",
    "index_add": "becomes an index_put, which broadcasts",
}


def refused_by(call: Call) -> str:
    """The kind of the refusal, or FAILED."""
    try:
        call.eager()
    except REFUSALS:
        try:
            run(SideBySide([call]), WebGPUPartitioner())
        except Refused as refused:
            return refused.kind
        return LOST if call.op.name in _REPLACED else FAILED
    return ACCEPTED
