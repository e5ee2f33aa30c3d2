"""Keeps quantized weights packed: dequantize + linear or embedding becomes one op.

torchao and PT2E export them as a constant of quantized values that is dequantized
before it is used, or only converted to float, with the scales applied to the product.
Values that fit 4 bits are packed as such, in the program too; zero points become
offsets. Weights used twice are stored once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .... import ir
from ....errors import InvalidInput
from ....ir.dtypes import DType
from ....ir.signatures import (
    DequantizeAffine,
    DequantizePerChannel,
    DequantizePerChannelGroup,
    DequantizePerTensor,
    Embedding,
    EmbeddingPacked,
    Linear,
    LinearPacked,
)
from ....plan.packed_weights import Layout, pack_codes, pack_scales
from ...constants import Constants
from ..evaluate import applied, evaluate, is_view
from ..rewrite import Producers, consumers, is_cast, made_as, permutation, producers


@dataclass(frozen=True)
class Weight:
    """Quantized values [N, K]; scale and zero point of a row's groups [N, groups]."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None
    group: int
    bits: int
    name: str = ""


@dataclass(frozen=True)
class Packed:
    """The values of the graph that hold a packed weight."""

    words: ir.Ref
    scales: ir.Ref
    offsets: ir.Ref | None
    layout: Layout

    def args(self) -> tuple[ir.Ref, ir.Ref, ir.Ref | None, int, int, int]:
        """As the ops take them."""
        layout = (self.layout.rows, self.layout.bits, self.layout.group)
        return (self.words, self.scales, self.offsets, *layout)


class _Packer:
    """Packs each weight of a graph once."""

    def __init__(self, graph: ir.Graph, constants: Constants) -> None:
        self.graph = graph
        self.constants = constants
        self.made = producers(graph)
        self.readers = consumers(graph)
        self.reads = ir.uses(graph)
        self.known: dict[str, Packed] = {}

    def numbers(self, arg: ir.Arg) -> torch.Tensor | None:
        """The tensor behind scales or zero points; None if there is none."""
        if isinstance(arg, (int, float)):
            return torch.tensor([arg])
        return self.constants.of(arg)

    def weight(self, arg: ir.Arg) -> Weight | None:
        """What a dequantized matrix is made of, if all of it is constant."""
        given = _dequantized(self.made, arg)
        codes = None if given is None else self.constants.of(given.codes)
        if given is None or codes is None or codes.dim() != 2:
            return None
        scales, zeros = self.numbers(given.scale), self.numbers(given.zero)
        if codes.dtype != torch.int8 or scales is None:
            return None
        if zeros is None and given.zero is not None:
            return None
        rows, depth = codes.shape
        group = depth if given.group is None else given.group
        if group <= 0 or depth % group:
            return None
        shape = (rows, depth // group)
        if scales.numel() not in (1, shape[0] * shape[1]):
            return None
        if zeros is not None and (zeros.numel() == 0 or not bool(zeros.any())):
            zeros = None
        scales = scales.reshape(-1, shape[1]) if scales.numel() > 1 else scales
        small = given.has_4_bits and int(codes.min()) >= -8 and int(codes.max()) <= 7
        return Weight(
            codes,
            scales.expand(shape),
            None if zeros is None else zeros.reshape(-1, shape[1]).expand(shape),
            group,
            4 if small else 8,
            self.graph.values[given.codes.id].name,
        )

    def codes(self, arg: ir.Arg) -> torch.Tensor | None:
        """Constant quantized values converted to float, perhaps transposed."""
        codes = self._converted(arg)
        if codes is None or codes.dim() != 2 or not codes.numel():
            return None
        return codes

    def _converted(self, arg: ir.Arg) -> torch.Tensor | None:
        call = self.made.get(arg.id) if isinstance(arg, ir.Ref) else None
        if call is None or call.post or len(call.outputs) != 1:
            return None
        if is_view(call):
            source = self._converted(call.args[0])
            return None if source is None else applied(call, source)
        given, (result,) = call.args[0], call.outputs
        floats = self.graph.values[result].dtype.is_float
        if not is_cast(call) or not floats or not isinstance(given, ir.Ref):
            return None
        codes = evaluate(self.constants, self.made, given)
        return None if codes is None or codes.dtype != torch.int8 else codes

    def name(self, arg: ir.Arg) -> str:
        """The name of the constant that a matrix was made from."""
        assert isinstance(arg, ir.Ref)
        call = self.made.get(arg.id)
        return (
            self.graph.values[arg.id].name if call is None else self.name(call.args[0])
        )

    def pack(self, weight: Weight) -> Packed:
        tensors = [weight.codes, weight.scale]
        if weight.zero is not None:
            tensors.append(weight.zero)
        key = (
            " ".join(map(self.constants.key, tensors))
            + f" {weight.group} {weight.bits}"
        )
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

    def _add(self, name: str, array: np.ndarray) -> ir.Ref:
        return self.constants.add(name, torch.from_numpy(np.ascontiguousarray(array)))


@dataclass(frozen=True)
class _Dequantized:
    """A matrix of quantized values in [low, high], with scales and zero points of rows
    or their groups."""

    codes: ir.Ref
    scale: ir.Ref | float
    zero: ir.Ref | int | None
    low: int | None
    high: int | None
    group: int | None = None  # columns that share a scale; None: all of a row

    @property
    def has_4_bits(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low >= -8 and -8 <= self.high <= 7


def _dequantized(made: Producers, arg: ir.Arg) -> _Dequantized | None:
    """What a matrix was dequantized from, if scales are for rows or their groups."""
    blocks = made_as(made, arg, DequantizeAffine)
    if blocks is not None and blocks.block[0] == 1:
        given = (blocks.scale, blocks.zero, blocks.low, blocks.high)
        return _Dequantized(blocks.x, *given, group=blocks.block[-1])
    whole = made_as(made, arg, DequantizePerTensor)
    if whole is not None:
        numbers = (whole.scale, whole.zero, whole.low, whole.high)
        return _Dequantized(whole.x, *numbers)
    groups = made_as(made, arg, DequantizePerChannelGroup)
    if groups is not None:
        given = (groups.scales, groups.zeros, groups.low, groups.high)
        return _Dequantized(groups.x, *given, group=groups.group)
    rows = made_as(made, arg, DequantizePerChannel)
    if rows is not None and rows.axis == 0:
        given = (rows.scales, rows.zeros, rows.low, rows.high)
        return _Dequantized(rows.x, *given)
    return None


def run(graph: ir.Graph, constants: Constants) -> None:
    packer = _Packer(graph, constants)
    for call in list(graph.calls):
        if call.post:
            continue
        if call.op == Linear.NAME:
            _linear(packer, call)
        elif call.op == Embedding.NAME:
            _embedding(packer, call)
        elif call.op in ("aten.mm.default", "aten.matmul.default"):
            _mm(packer, call)


def _linear(packer: _Packer, call: ir.Call) -> None:
    layer = Linear.of(call)
    weight = packer.weight(layer.weight)
    codes = packer.codes(layer.weight) if weight is None else None
    if weight is None and codes is not None:
        weight = _plain_codes(packer, call, codes, scaled=layer.bias is None)
    if weight is not None:
        _become_linear(packer, call, weight, layer.bias)


def _mm(packer: _Packer, call: ir.Call) -> None:
    """x @ w.t()"""
    matrix = call.args[1]
    turn = packer.made.get(matrix.id) if isinstance(matrix, ir.Ref) else None
    weight = None
    if turn is not None and permutation(packer.graph, turn) == [1, 0]:
        weight = packer.weight(turn.args[0])
    codes = packer.codes(matrix) if weight is None else None
    if codes is not None:
        weight = _plain_codes(packer, call, codes.t().contiguous(), scaled=True)
    if weight is not None:
        _become_linear(packer, call, weight, None)


def _become_linear(
    packer: _Packer, call: ir.Call, weight: Weight, bias: ir.Ref | None
) -> None:
    x, packed = call.args[0], packer.pack(weight)
    assert isinstance(x, ir.Ref)
    LinearPacked(x, *packed.args(), bias).write_to(call)


def _embedding(packer: _Packer, call: ir.Call) -> None:
    given = Embedding.of(call)
    weight = packer.weight(given.weight)
    if weight is not None:
        packed = packer.pack(weight)
        EmbeddingPacked(*packed.args(), given.indices).write_to(call)


def _plain_codes(
    packer: _Packer, call: ir.Call, codes: torch.Tensor, scaled: bool
) -> Weight:
    """Quantized values [N, K] of a product that may be scaled afterwards.

    Scales that follow at once become the weight's own, by which kernels multiply a
    row's sum; only in float32: in other types torch rounds the sum before it is scaled.
    """
    rows, depth = codes.shape
    multiply = _only_reader(packer, call)
    scale = _row_scales(packer, call, multiply, rows) if scaled else None
    if multiply is not None and scale is not None:
        call.outputs = multiply.outputs
        packer.made[call.outputs[0]] = call
        packer.graph.calls = [c for c in packer.graph.calls if c is not multiply]
    scale = torch.ones(rows, 1) if scale is None else scale
    return Weight(codes, scale, None, depth, 8, packer.name(call.args[1]))


def _only_reader(packer: _Packer, call: ir.Call) -> ir.Call | None:
    (result,) = call.outputs
    readers = packer.readers.get(result, [])
    return readers[0] if packer.reads[result] == len(readers) == 1 else None


def _row_scales(
    packer: _Packer, product: ir.Call, multiply: ir.Call | None, rows: int
) -> torch.Tensor | None:
    """The constants [N, 1] by which the columns of a product are multiplied."""
    if multiply is None or multiply.op != "aten.mul.Tensor" or multiply.post:
        return None
    (result,) = product.outputs
    (other,) = [arg for arg in multiply.args if arg != ir.Ref(result)]
    before, after = (
        packer.graph.values[call.outputs[0]] for call in (product, multiply)
    )
    if not isinstance(other, ir.Ref) or before.shape != after.shape:
        return None
    scale = evaluate(packer.constants, packer.made, other)
    if scale is None or scale.dtype != torch.float32 or scale.shape[-1:] != (rows,):
        return None
    same = before.dtype is after.dtype is DType.FLOAT32
    return scale.reshape(rows, 1) if same and scale.numel() == rows else None
