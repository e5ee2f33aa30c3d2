"""Ops that mean something else in Vulkan's files than where torch runs them.

Enters: a call of the file, its arguments and its results. Leaves: calls of this
package. Some ops are two calls here. Others have constants whose elements Vulkan's
lowering has put into another order than the op's own definition has them; these are put
back as they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np

from .. import ir
from ..errors import InvalidBlob
from ..ir.dtypes import DType

Transform: TypeAlias = Callable[[np.ndarray], np.ndarray]


class Editor(Protocol):
    """What calls are added to."""

    def value(self, arg: ir.Arg) -> ir.Value:
        """The tensor that an argument is."""

    def add(self, value: ir.Value) -> int:
        """A new value."""

    def call(self, op: str, args: Sequence[ir.Arg], outs: list[int]) -> None:
        """A new call."""

    def constant(self, arg: ir.Arg, dtype: DType, transform: Transform) -> ir.Arg:
        """A new constant, made of the one that an argument is."""


Adapter: TypeAlias = Callable[[Editor, list[ir.Arg], list[int]], None]

ADAPTERS: dict[str, Adapter] = {}


def _adapter(*names: str) -> Callable[[Adapter], Adapter]:
    def decorate(function: Adapter) -> Adapter:
        for name in names:
            ADAPTERS[name] = function
        return function

    return decorate


def _require_count(op: str, args: list[ir.Arg], least: int, most: int) -> None:
    if not least <= len(args) <= most:
        raise InvalidBlob(
            f"{op}: must have {least} to {most} arguments, got {len(args)}"
        )


@_adapter("et_vk.conv_with_clamp.default")
def _conv_with_clamp(edit: Editor, args: list[ir.Arg], outs: list[int]) -> None:
    _require_count("et_vk.conv_with_clamp.default", args, 11, 11)
    if len(outs) != 1:
        raise InvalidBlob(
            f"et_vk.conv_with_clamp.default: must have one result, got {len(outs)}"
        )
    (out,) = outs
    made = edit.add(replace(edit.value(ir.Ref(out))))
    edit.call("aten.convolution.default", args[:9], [made])
    edit.call("aten.clamp.default", [ir.Ref(made), *args[9:]], [out])


@_adapter("aten.max_pool2d.default")
def _max_pool(edit: Editor, args: list[ir.Arg], outs: list[int]) -> None:
    indices = replace(edit.value(ir.Ref(outs[0])), dtype=DType.INT32)
    edit.call("aten.max_pool2d_with_indices.default", args, [*outs, edit.add(indices)])


@_adapter("et_vk.linear_qcs4w.default")
def _linear_qcs4w(edit: Editor, args: list[ir.Arg], outs: list[int]) -> None:
    """A file has codes plus 8, the high nibble first, as one group of `linear_q4gsw`
    has them with the low one first."""
    _require_count("et_vk.linear_qcs4w.default", args, 3, 3)
    depth = edit.value(args[0]).bound[-1:]
    weights = edit.constant(args[1], DType.UINT8, lambda w: w << 4 | w >> 4)
    scales = edit.constant(args[2], edit.value(args[2]).dtype, lambda s: s[None])
    call = [args[0], weights, scales, *depth, None]
    edit.call("et_vk.linear_q4gsw.default", call, outs)


@_adapter("aten._weight_int8pack_mm.default")
def _linear_of_bytes(edit: Editor, args: list[ir.Arg], outs: list[int]) -> None:
    _require_count("aten._weight_int8pack_mm.default", args, 3, 3)
    x, weights, scales = args
    floats = replace(edit.value(weights), dtype=edit.value(x).dtype, data_key="")
    made = edit.add(floats)
    edit.call(
        "quantized_decomposed.dequantize_per_channel.default",
        [weights, scales, None, 0, -128, 127, DType.INT8, None],
        [made],
    )
    edit.call("aten.linear.default", [x, ir.Ref(made), None], outs)


@_adapter("et_vk.q8ta_conv2d.default")
def _q8ta_conv2d(edit: Editor, args: list[ir.Arg], outs: list[int]) -> None:
    _require_count("et_vk.q8ta_conv2d.default", args, 15, 15)
    made = _channels_first(edit, args, args[13])
    edit.call("et_vk.q8ta_conv2d.default", made, outs)


@_adapter("et_vk.q8ta_conv2d_transposed.default")
def _q8ta_conv2d_transposed(edit: Editor, args: list[ir.Arg], outs: list[int]) -> None:
    _require_count("et_vk.q8ta_conv2d_transposed.default", args, 16, 16)
    made = _channels_first(edit, args, args[14])
    edit.call("et_vk.q8ta_conv2d_transposed.default", made, outs)


def _channels_first(edit: Editor, args: list[ir.Arg], groups: ir.Arg) -> list[ir.Arg]:
    """The arguments with filters [row, channel, high, wide]. A file's rows are
    [high, wide, channel], then padding."""
    x, kernel = edit.value(args[0]), args[9]
    if not isinstance(kernel, list) or len(kernel) != 2 or len(x.bound) != 4:
        raise InvalidBlob(
            f"et_vk.q8ta_conv2d: must have a kernel of two sizes, got {kernel}"
        )
    high, wide = kernel
    if not (type(high) is type(wide) is type(groups) is int and groups > 0):
        raise InvalidBlob(
            f"et_vk.q8ta_conv2d: sizes must be numbers, got {kernel} and {groups}"
        )
    channels = x.bound[1] // groups

    def turned(weights: np.ndarray) -> np.ndarray:
        rows = weights[:, : high * wide * channels]
        split = rows.reshape(len(weights), high, wide, channels)
        return split.transpose(0, 3, 1, 2).reshape(rows.shape)

    weights = edit.constant(args[3], DType.INT8, turned)
    return [*args[:3], weights, *args[4:]]
