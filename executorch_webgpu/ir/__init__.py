"""The language between export and load: graphs, types, sizes, and their bytes."""

from .graph import (
    Arg,
    Call,
    Dim,
    Expr,
    Graph,
    Leaf,
    Local,
    Ref,
    Step,
    Value,
    call_inputs,
    leaves,
    map_arg,
    refs,
    step_inputs,
    uses,
)

__all__ = [
    "Arg",
    "Call",
    "Dim",
    "Expr",
    "Graph",
    "Leaf",
    "Local",
    "Ref",
    "Step",
    "Value",
    "call_inputs",
    "leaves",
    "map_arg",
    "refs",
    "step_inputs",
    "uses",
]
