"""Constants that are too large for one binding, in parts that are not.

The least that every adapter binds is 128 MiB, and many bind no more; the head of a VGG
or a large vocabulary has several times that. A part is a slice of the constant,
uploaded to a buffer of its own; ops that slice a weight alike share its parts.
"""

from __future__ import annotations

import math

from ...plan.recorder import Output, Recorder, Tensor

# Parts begin at multiples of this, which suits every packing of rows and columns.
_UNIT = 32


def parts(g: Recorder, x: Tensor, dim: int) -> list[tuple[int, int]]:
    """Start and length along `dim` of the parts of `x`; one if the whole fits."""
    length = x.shape[dim]
    limit = min(g.caps.max_binding, g.caps.max_buffer)
    # Packings fill up to a whole unit.
    each = math.prod(x.shape) // max(length, 1) * x.storage.size
    if not x.is_constant or each * -(-length // _UNIT) * _UNIT <= limit:
        return [(0, length)]
    size = limit // each // _UNIT * _UNIT
    g.require(
        size > 0, f"{_UNIT} rows of a constant must fit {limit} bytes", each * _UNIT
    )
    return [(start, min(size, length - start)) for start in range(0, length, size)]


def part(g: Recorder, x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A slice of a constant, in a buffer of its own."""
    return g.contiguous(x.slice(dim, start, length))


def joined(g: Recorder, pieces: list[Tensor], out: Output) -> None:
    """Concatenates the results of a weight's parts along the last dimension."""
    g.run("aten.cat.default", pieces, -1, out=out)
