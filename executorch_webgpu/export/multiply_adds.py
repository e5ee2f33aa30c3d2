"""How much arithmetic a node does, in multiply-adds.

Products, convolutions and attention count the multiply-adds of their definition.
Every other op counts one for each element of its largest operand or result; views
and copies do none. Dynamic sizes count as in the example inputs, those that only data
knows as 1. The result says where a program's time may go, not how long it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from ..plan import registry
from .fx_to_ir import op_name, ordered_arguments

Shape = tuple[int, ...]
_Formula = Callable[[Sequence[Any], Shape], int]

# Ops that move elements and are not planned as views.
_COPIES = frozenset(
    ("_to_copy", "_to_dim_order_copy", "_clone_dim_order", "clone", "copy", "cat",
     "stack", "full", "empty", "zeros", "ones", "lift_fresh_copy", "constant_pad_nd",
     "slice_scatter", "select_scatter", "index", "gather", "embedding", "prepack")
)  # fmt: skip


def multiply_adds(node: Node) -> int:
    """Of one call of a node; control flow itself does none."""
    name = op_name(node)
    result = _shape(_first(node.meta.get("val")))
    schema = getattr(node.target, "_schema", None)
    if result is None or schema is None:
        return 0
    base = name.split(".")[1]
    given = [_shape(arg) if _tensor(arg) else arg for arg in ordered_arguments(node)]
    found = of_product(base, given, result)
    if found is not None:
        return found
    if base in _COPIES or registry.view_of(name) or _is_view(node):
        return 0
    shapes = [_shape(source.meta.get("val")) for source in node.all_input_nodes]
    return max(math.prod(shape) for shape in [*shapes, result] if shape is not None)


def of_product(base: str, given: Sequence[Any], result: Shape) -> int | None:
    """Of a product, convolution or attention; None for any other op. `given` are the
    arguments, of which tensors are shapes."""
    formula = _PRODUCTS.get(base)
    if formula is None and base.startswith("linear_"):
        formula = _rows_by_columns
    return None if formula is None else formula(given, result)


def trips(node: Node) -> int:
    """How often the body of a control flow node runs: as often as there are slices."""
    if node.target not in (
        torch.ops.higher_order.map_impl,
        torch.ops.higher_order.scan,
    ):
        return 1
    slices: Any = node.args[1 if node.target is torch.ops.higher_order.map_impl else 2]
    shape = _shape(slices[0].meta.get("val")) if slices else None
    return shape[0] if shape else 1


def readable(count: int) -> str:
    """`1.24 G`: three digits and a power of a thousand."""
    for unit, power in (("T", 4), ("G", 3), ("M", 2), ("k", 1)):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return str(count)


# -- formulas over the arguments, of which tensors are shapes, and the result's shape --


def _rows_by_columns(given: Sequence[Any], result: Shape) -> int:
    x: Shape = given[0]
    return math.prod(result) * x[-1]


def _after_a_sum(given: Sequence[Any], result: Shape) -> int:
    return _rows_by_columns(given[1:], result)


def _sum_of_batches(given: Sequence[Any], result: Shape) -> int:
    x: Shape = given[1]
    return math.prod(result) * x[0] * x[-1]


def _bilinear(given: Sequence[Any], result: Shape) -> int:
    x: Shape = given[0]
    return _after_a_sum(given, result) * x[-1]


def _convolution(given: Sequence[Any], result: Shape) -> int:
    x: Shape = given[0]
    filters: Shape = given[1]
    is_transposed = given[6]
    # Each element of the one is multiplied by a filter of its channel of the other.
    return math.prod(x if is_transposed else result) * math.prod(filters[1:])


def _convolution_of_rank(given: Sequence[Any], result: Shape) -> int:
    filters: Shape = given[1]
    return math.prod(result) * math.prod(filters[1:])


def _quantized_convolution(given: Sequence[Any], result: Shape) -> int:
    x: Shape = given[0]
    kernel: list[int] = given[9]
    groups: int = given[13]
    return math.prod(result) * math.prod(kernel) * x[1] // groups


def _quantized_transposed(given: Sequence[Any], result: Shape) -> int:
    x: Shape = given[0]
    kernel: list[int] = given[9]
    groups: int = given[14]
    return math.prod(x) * math.prod(kernel) * result[1] // groups


def _attention(given: Sequence[Any], result: Shape) -> int:
    query: Shape = given[0]
    key: Shape = given[1]
    return key[-2] * (math.prod(query) + math.prod(result))


def _cached_attention(given: Sequence[Any], result: Shape) -> int:
    # Query, keys and cache are [batch, tokens, heads, size]; all of the cache counts.
    query: Shape = given[0]
    tokens: int = max(shape[1] for shape in given if isinstance(shape, tuple))
    return 2 * math.prod(query) * tokens


_PRODUCTS: dict[str, _Formula] = {
    "mm": _rows_by_columns,
    "bmm": _rows_by_columns,
    "matmul": _rows_by_columns,
    "mv": _rows_by_columns,
    "dot": _rows_by_columns,
    "linear": _rows_by_columns,
    "_int_mm": _rows_by_columns,
    "addmm": _after_a_sum,
    "addmv": _after_a_sum,
    "baddbmm": _after_a_sum,
    "addbmm": _sum_of_batches,
    "bilinear": _bilinear,
    "_grouped_mm": _rows_by_columns,
    "q8ta_conv2d": _quantized_convolution,
    "q8ta_conv2d_pw": _quantized_convolution,
    "q8ta_conv2d_dw": _quantized_convolution,
    "q8ta_conv2d_transposed": _quantized_transposed,
    "q8ta_linear": _rows_by_columns,
    "q8ta_linear_gemv": _rows_by_columns,
    "convolution": _convolution,
    "conv1d": _convolution_of_rank,
    "conv2d": _convolution_of_rank,
    "conv3d": _convolution_of_rank,
    "scaled_dot_product_attention": _attention,
    "sdpa": _attention,
    "sdpa_with_kv_cache": _cached_attention,
    "custom_sdpa": _cached_attention,
}


def _is_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(
        argument.alias_info is not None and not argument.alias_info.is_write
        for argument in schema.arguments
    )


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) and value else value


def _tensor(arg: Any) -> bool:
    return isinstance(arg, Node) and isinstance(arg.meta.get("val"), torch.Tensor)


def _shape(value: Any) -> Shape | None:
    if isinstance(value, Node):
        value = value.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    return tuple(_size(size) for size in value.shape)


def _size(size: int | torch.SymInt) -> int:
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else 1
