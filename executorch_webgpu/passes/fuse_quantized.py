"""Keeps quantized weights packed: dequantize + linear or embedding becomes one op.

What enters is how torchao and PT2E export them, a constant of codes that is
dequantized before it is used. Codes that fit 4 bits are packed so, and stored so
in the program; zero points become offsets. Weights used twice are stored once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .. import ir
from ..builder import ConstantData, dtype_of
from ..errors import InvalidInput
from ..packed import Layout, pack_codes, pack_scales
from .rewrite import producers

_PER_TENSOR = "quantized_decomposed.dequantize_per_tensor.default"
_DEQUANTIZE = {
    "torchao.dequantize_affine.default",
    _PER_TENSOR,
    "quantized_decomposed.dequantize_per_channel.default",
    "quantized_decomposed.dequantize_per_channel_group.default",
}


@dataclass(frozen=True)
class Weight:
    """A matrix of codes [N, K]; scale and zero point of a row's groups [N, groups]."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None
    group: int
    bits: int
    name: str = ""


@dataclass(frozen=True)
class Packed:
    """The values of the graph that hold a packed weight."""

    words: int
    scales: int
    offsets: int | None
    layout: Layout


class _Packer:
    """Packs each weight of a graph once."""

    def __init__(self, graph: ir.Graph, data: ConstantData) -> None:
        self.graph = graph
        self.data = data
        self.made = producers(graph)
        self.known: dict[str, Packed] = {}

    def constant(self, arg: ir.Arg) -> torch.Tensor | None:
        """The tensor behind a constant argument; None if it is not one."""
        if not isinstance(arg, ir.Ref):
            return None
        value = self.graph.values[arg.id]
        return self.data.tensors[value.data_key] if value.is_constant else None

    def numbers(self, arg: ir.Arg) -> torch.Tensor | None:
        """The tensor behind scales or zero points; None if there is none."""
        if isinstance(arg, (int, float)):
            return torch.tensor([arg])
        return self.constant(arg)

    def weight(self, arg: ir.Arg) -> Weight | None:
        """What a dequantized matrix is made of, if all of it is constant."""
        call = self.made.get(arg.id) if isinstance(arg, ir.Ref) else None
        if call is None or call.op not in _DEQUANTIZE or call.post:
            return None
        codes = self.constant(call.args[0])
        if codes is None or codes.dim() != 2 or codes.dtype != torch.int8:
            return None
        assert isinstance(call.args[0], ir.Ref)
        name = self.graph.values[call.args[0].id].name
        rows, depth = codes.shape
        if call.op.startswith("torchao"):
            block, scale, zero, low, high = (call.args[i] for i in (1, 2, 3, 5, 6))
            if not isinstance(block, list) or block[0] != 1:
                return None
            group = block[1]
        elif call.op == _PER_TENSOR:
            scale, zero, low, high = call.args[1:5]
            group = depth
        elif "group" in call.op:
            scale, zero, low, high, group = (call.args[i] for i in (1, 2, 3, 4, 6))
        else:
            scale, zero, axis, low, high = (call.args[i] for i in (1, 2, 3, 4, 5))
            if axis != 0:
                return None
            group = depth
        scales = self.numbers(scale)
        zeros = self.numbers(zero)
        if scales is None or (zeros is None and zero is not None):
            return None
        if not isinstance(group, int) or group <= 0 or depth % group:
            return None
        shape = (rows, depth // group)
        if scales.numel() not in (1, shape[0] * shape[1]):
            return None
        if zeros is not None and (zeros.numel() == 0 or not bool(zeros.any())):
            zeros = None
        scales = scales.reshape(-1, shape[1]) if scales.numel() > 1 else scales
        small = _in(low, -8) and _in(high, -8) and int(codes.min()) >= -8
        bits = 4 if small and int(codes.max()) <= 7 and _at_most(high, 7) else 8
        return Weight(
            codes,
            scales.expand(shape),
            None if zeros is None else zeros.reshape(-1, shape[1]).expand(shape),
            group,
            bits,
            name,
        )

    def pack(self, weight: Weight) -> Packed:
        parts = [weight.codes, weight.scale]
        if weight.zero is not None:
            parts.append(weight.zero)
        key = " ".join(map(self.data.key, parts)) + f" {weight.group} {weight.bits}"
        if key not in self.known:
            self.known[key] = self._pack(weight)
        return self.known[key]

    def _pack(self, weight: Weight) -> Packed:
        if not bool(torch.isfinite(weight.scale).all()):
            raise InvalidInput(
                f"{weight.name}: scales of a weight must be finite, got inf or nan"
            )
        rows, depth = weight.codes.shape
        layout = Layout(rows, depth, weight.bits, weight.group)
        words = pack_codes(weight.codes.numpy(), weight.bits, weight.group)
        scale = weight.scale.contiguous()
        if scale.dtype == torch.bfloat16:
            scale = scale.float()
        offsets = None
        if weight.zero is not None:
            shift = 8 if weight.bits == 4 else 0
            offset = -(weight.zero.double() + shift) * weight.scale.double()
            offsets = self._add("offsets", pack_scales(offset.float().numpy()))
        return Packed(
            self._add("words", words),
            self._add("scales", pack_scales(scale.numpy())),
            offsets,
            layout,
        )

    def _add(self, name: str, array: np.ndarray) -> int:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        key = self.data.key(tensor)
        shape = tuple(tensor.shape)
        return self.graph.add(
            ir.Value(f"{name}_{key[-8:]}", dtype_of(tensor), shape, shape, data_key=key)
        )


def _in(low: ir.Arg, least: int) -> bool:
    return isinstance(low, (int, float)) and low >= least


def _at_most(high: ir.Arg, most: int) -> bool:
    return isinstance(high, (int, float)) and high <= most


def _reference(value: int | None) -> ir.Arg:
    return None if value is None else ir.Ref(value)


def run(graph: ir.Graph, data: ConstantData) -> None:
    packer = _Packer(graph, data)
    for call in graph.calls:
        if call.post:
            continue
        if call.op == "aten.linear.default":
            _linear(packer, call)
        elif call.op == "aten.embedding.default":
            _embedding(packer, call)
        elif call.op == "aten.mm.default":
            _mm(packer, call)


def _linear(packer: _Packer, call: ir.Call) -> None:
    weight = packer.weight(call.args[1]) or _plain_codes(packer, call.args[1])
    if weight is not None:
        _become_linear(packer, call, weight, call.args[2])


def _become_linear(
    packer: _Packer, call: ir.Call, weight: Weight, bias: ir.Arg
) -> None:
    packed = packer.pack(weight)
    layout = packed.layout
    call.op = "webgpu.linear_packed"
    call.args = [
        call.args[0],
        ir.Ref(packed.words),
        ir.Ref(packed.scales),
        _reference(packed.offsets),
        layout.rows,
        layout.bits,
        layout.group,
        bias,
    ]


def _embedding(packer: _Packer, call: ir.Call) -> None:
    weight = packer.weight(call.args[0])
    if weight is None:
        return
    packed = packer.pack(weight)
    layout = packed.layout
    call.op = "webgpu.embedding_packed"
    call.args = [
        ir.Ref(packed.words),
        ir.Ref(packed.scales),
        _reference(packed.offsets),
        layout.rows,
        layout.bits,
        layout.group,
        call.args[1],
    ]


def _plain_codes(packer: _Packer, arg: ir.Arg) -> Weight | None:
    """Codes converted to float, for a product that is scaled afterwards."""
    cast = _made_by(packer, arg, "_to_copy", "_to_dim_order_copy")
    codes = packer.constant(cast.args[0]) if cast else None
    if codes is None or codes.dtype != torch.int8 or codes.dim() != 2:
        return None
    scale = torch.ones(codes.shape[0], 1)
    return Weight(codes, scale, None, codes.shape[1], 8)


def _mm(packer: _Packer, call: ir.Call) -> None:
    """x @ codes.t() converted to float, to be scaled afterwards."""
    cast = _made_by(packer, call.args[1], "_to_copy", "_to_dim_order_copy")
    turned = _made_by(packer, cast.args[0], "permute", "t_copy") if cast else None
    if turned is None:
        return
    codes = packer.constant(turned.args[0])
    if codes is None or codes.dtype != torch.int8 or codes.dim() != 2:
        return
    if turned.args[1:] and turned.args[1] != [1, 0]:
        return
    scale = torch.ones(codes.shape[0], 1)
    _become_linear(packer, call, Weight(codes, scale, None, codes.shape[1], 8), None)


def _made_by(packer: _Packer, arg: ir.Arg, *names: str) -> ir.Call | None:
    call = packer.made.get(arg.id) if isinstance(arg, ir.Ref) else None
    if call is None or call.post or not any(name in call.op for name in names):
        return None
    return call
