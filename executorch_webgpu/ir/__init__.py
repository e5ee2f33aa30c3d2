"""The language between export and load: graphs, types, sizes, and their bytes."""

from .graph import (
    Arg,
    Call,
    Dim,
    Expr,
    Graph,
    Local,
    Ref,
    Step,
    Value,
    call_inputs,
    refs,
    uses,
)

__all__ = [
    "Arg",
    "Call",
    "Dim",
    "Expr",
    "Graph",
    "Local",
    "Ref",
    "Step",
    "Value",
    "call_inputs",
    "refs",
    "uses",
]
