"""Constants that the file holds as kernels of GPUs bind them, as the graph has them.

No kernel runs for it: the result is a constant whose elements come from its parts. A
kernel that wants one of these as it is gets the file's bytes; for any other layout the
elements are put together at load, on the host (`plan/constant_data.py`).
"""

from __future__ import annotations

import math

from ...ir.signatures import LaidOut
from ...plan import host_packing
from ...plan.accuracy import MOVED
from ...plan.constant_data import MOST_PADDED
from ...plan.plan import Part, View
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op
from ...plan.tensor import ConstantSource, joint_key, reach


@op(LaidOut.NAME, accuracy=MOVED)
def laid_out(
    g: Recorder,
    parts: list[Tensor],
    packings: list[str],
    packing_args: list[list[int]],
    views: list[list[int]],
    *,
    out: Output,
) -> None:
    counts = {len(each) for each in (parts, packings, packing_args, views)}
    g.require(len(counts) == 1 and 0 not in counts, "parts must be told alike", counts)
    made = []
    held = 0
    for x, packing, args, numbers in zip(parts, packings, packing_args, views):
        g.require(host_packing.can_unpack(packing), "a packing must be known", packing)
        view = _view(g, list(map(int, numbers)), out)
        elements = math.prod(out.shape if view is None else view[0])
        part = _part(g, x, view, packing, tuple(map(int, args)))
        # What is put together takes memory in proportion to the file.
        size = math.prod(part.shape) * part.dtype.size
        g.require(
            elements <= size,
            f"a part of {elements} elements must hold them",
            f"{size} bytes",
        )
        held += elements
        made.append(part)
    g.require(
        out.numel <= MOST_PADDED * held,
        f"parts must hold {out.numel} elements, but for what pads them",
        held,
    )
    key = joint_key(part.data_key for part in made)
    source = ConstantSource(key, out.dtype, tuple(map(int, out.shape)), tuple(made))
    out.becomes(g.over(out, source))


def _part(
    g: Recorder, x: Tensor, view: View | None, packing: str, args: tuple[int, ...]
) -> Part:
    source = x.source
    is_plain = source is not None and not source.parts and x.is_contiguous
    g.require(is_plain, "a part must be data of the file", "what is computed")
    assert source is not None
    return Part(source.key, source.dtype, source.shape, view, packing, args)


def _view(g: Recorder, numbers: list[int], out: Output) -> View | None:
    if not numbers:
        return None
    offset, *others = numbers
    rank, rest = divmod(len(others), 2)
    g.require(rest == 0, "a view must have a stride for every extent", others)
    shape, strides = tuple(others[:rank]), tuple(others[rank:])
    g.require(min(shape, default=1) > 0, "extents must be > 0", shape)
    lowest, highest = reach(shape, strides, offset)
    g.require(
        lowest >= 0 and highest < out.numel,
        f"a view must lie in {out.numel} elements",
        f"{lowest} to {highest}",
    )
    return shape, strides, offset
