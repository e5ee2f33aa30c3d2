"""What rewrites of an FX graph share: arguments by name, and new calls."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg


def arguments(node: Node) -> dict[str, Any]:
    """A call's arguments by name, with defaults filled in."""
    assert isinstance(node.target, torch._ops.OpOverload)
    schema = node.target._schema.arguments
    named = {argument.name: argument.default_value for argument in schema}
    named.update(zip(named, node.args))
    named.update(node.kwargs)
    return named


def call_before(node: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new call before `node`, with its fake value."""
    with node.graph.inserting_before(node):
        made = node.graph.call_function(target, args, kwargs)
    fakes, named = map_arg((args, kwargs), lambda item: item.meta["val"])
    made.meta["val"] = target(*fakes, **named)
    made.meta["nn_module_stack"] = node.meta.get("nn_module_stack", {})
    return made
