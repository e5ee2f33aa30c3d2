"""Random numbers as ExecuTorch can make them: core ops of constant sizes.

Ops that draw as many as another tensor has are not core ops, and a dynamic size cannot
be exported: then the largest possible number is drawn, and the first ones are used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ...errors import InvalidInput, Unsupported
from ..fx_to_ir import Builder
from .rewriting import arguments, call_before

_aten = torch.ops.aten

# An op, and the core op of sizes with the same distribution.
CORE: dict[Any, Any] = {
    _aten.rand.default: _aten.rand.default,
    _aten.randn.default: _aten.randn.default,
    _aten.rand_like.default: _aten.rand.default,
    _aten.randn_like.default: _aten.randn.default,
}


def rewrite(program: ExportedProgram, node: Node) -> None:
    made = node.meta["val"]
    sizes = _sizes(node)
    core, named = CORE[node.target], {"dtype": made.dtype}
    dynamic = [dim for dim, size in enumerate(sizes) if isinstance(size, Node)]
    if not dynamic:
        node.target, node.args, node.kwargs = core, (sizes,), named
        return
    builder = Builder(program, has_data=False)
    try:
        bounds = [builder.dim(size)[1] for size in made.shape]
    except Unsupported as error:
        # Nor could the CPU draw these: ExecuTorch plans memory for the largest size.
        raise InvalidInput(f"{node.name}: {error}") from None
    *first, last = dynamic
    with made.fake_mode:
        numbers = call_before(node, core, bounds, **named)
        # Not slices: their size would be less than a bound that passes forget.
        indices = [call_before(node, _aten.arange.default, sizes[d]) for d in dynamic]
        take = _aten.index_select.default
        for dim, index in zip(first, indices):
            numbers = call_before(node, take, numbers, dim, index)
    node.target, node.args, node.kwargs = take, (numbers, last, indices[-1]), {}


def _sizes(node: Node) -> list[int | Node]:
    given = arguments(node)
    if "size" in given:
        return list(given["size"])
    like: Node = given["self"]
    return [
        size
        if isinstance(size, int)
        else call_before(node, _aten.sym_size.int, like, dim)
        for dim, size in enumerate(node.meta["val"].shape)
    ]
