"""A call of every op, for any type, rank and size: for docs/ops.md and its test.

`call_of(name, make)` is a call that torch accepts for most types. Its operand whose
rank may vary is made by `make.x` or `make.ids`, the others by `make(...)`: what is
found for the call at another rank or size is found for that operand. It is written
here, or else made of the op's schema, or else one of PyTorch's own samples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
import op_samples
import torch
import torchao.quantization  # noqa: F401
import transformers.integrations.moe  # noqa: F401
from executorch.backends.vulkan.patterns.weight_packing_utils import (
    pack_4bit_weight_tensor,
)
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
from op_coverage import overload_of
from torch.utils import _pytree as pytree

Args = tuple[Any, ...]
Call = tuple[Args, dict[str, Any]]


class Make:
    """Makes tensors of one type, and the main operand of one rank."""

    def __init__(self, dtype: torch.dtype, rank: int | None = None) -> None:
        self.dtype = dtype
        self.rank = rank
        # The operand that x or ids made first, whether something is of the type, and
        # what must be constant.
        self.main: torch.Tensor | None = None
        self.is_typed = False
        self.constants: list[torch.Tensor] = []
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        self.is_typed |= dtype is None
        dtype = dtype or self.dtype
        if dtype.is_floating_point:
            return torch.randn(shape, generator=self.generator).to(dtype)
        if dtype is torch.bool:
            return torch.randint(0, 2, shape, generator=self.generator).to(dtype)
        # Not 0, by which torch refuses to divide.
        made = torch.randint(1, 10, shape, generator=self.generator).to(dtype)
        return made if dtype is torch.uint8 else made * (1 - 2 * (made % 2))

    def shape(self, *shape: int) -> tuple[int, ...]:
        """That shape at the rank in question: with more or fewer leading sizes."""
        if self.rank is None or self.rank == len(shape):
            return shape
        more = self.rank - len(shape)
        return (2,) * more + shape if more > 0 else shape[-more:]

    def x(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        made = self(*self.shape(*shape), dtype=dtype)
        self.main = made if self.main is None else self.main
        return made

    def fixed(self, *shape: int) -> torch.Tensor:
        """The main operand of an op that aborts the process at another rank."""
        self.main = self(*shape)
        return self.main

    def on_grid(self, scale: float, *shape: int) -> torch.Tensor:
        """A main operand that rounding to multiples of a scale leaves as it is."""
        made = self.x(*shape)
        return made.mul_(9).round_().mul_(scale) if made.is_floating_point() else made

    def channels(self, count: int = 2, default: int = 4) -> torch.Tensor:
        """Batch, channels and as many sizes as the rank has left."""
        rank = default if self.rank is None else self.rank
        made = self(*(5, count, 8, 7, 6, 1, 1, 1, 1)[:rank])
        self.main = made
        return made

    def ids(self, limit: int, *shape: int) -> torch.Tensor:
        made = self.ints(limit, *self.shape(*shape))
        made = made.int() if self.dtype is torch.int32 else made
        self.main = made if self.main is None else self.main
        return made

    def ints(self, limit: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, limit, shape, generator=self.generator)

    def of(self, sample: torch.Tensor) -> torch.Tensor:
        """A sample's operand in this type, the first one in the rank in question."""
        is_main = self.main is None
        shape = self.shape(*sample.shape) if is_main else (*sample.shape,)
        made = self(*shape)
        if self.dtype.is_floating_point and shape == sample.shape:
            made = sample.clone().to(self.dtype)
        self.main = made if is_main else self.main
        return made

    def like(self, x: torch.Tensor) -> torch.Tensor:
        return self(*x.shape, dtype=x.dtype)

    def constant(self, x: torch.Tensor) -> torch.Tensor:
        self.constants.append(x)
        return x

    def codes(self, *shape: int) -> torch.Tensor:
        """A constant of 8-bit codes."""
        codes = torch.randint(-127, 128, shape, generator=self.generator)
        return self.constant(codes.to(torch.int8))

    def scales(self, *shape: int) -> torch.Tensor:
        return self.constant(torch.rand(shape, generator=self.generator) * 0.1 + 0.01)


def _batched(t: Make, *sizes: int) -> torch.Tensor:
    return t.x(5, 2, *sizes)


def _conv(t: Make) -> Args:
    rank = 4 if t.rank is None else t.rank
    dims = rank - 2
    if dims < 1:
        raise ValueError("a convolution must have a dimension to move along")
    weight = t(6, 4, *(3,) * dims)
    ones = [1] * dims
    return (t.channels(4), weight, t(6), ones, ones, ones, False, [0] * dims, 1)


def _mask(t: Make) -> torch.Tensor:
    return t(*t.shape(3, 4), dtype=torch.bool)


def _places(x: torch.Tensor, count: int) -> torch.Tensor:
    """Different places along the last dimension."""
    return torch.arange(count).repeat(*x.shape[:-1], 1)


def _with(x: torch.Tensor, *rest: Any) -> Args:
    return (x, *rest)


def _native_group_norm(t: Make) -> Args:
    x = t.channels(4)
    sizes = (x.shape[0], x.shape[1], x[0, 0].numel())
    return (x, t(4), t(4), *sizes, 2, 1e-5)


def _index_put(t: Make) -> Args:
    x, places = t.x(3, 4), torch.tensor([1, 0])
    return (x, [places], t.like(x[places]))


def _ends(*ends: int) -> torch.Tensor:
    return torch.tensor(ends, dtype=torch.int32)


def _expand(t: Make) -> Args:
    x = t.x(3, 1)
    return (x, [*x.shape[:-1], 4])


# Torch refuses a call in as many ways as it has authors.
REFUSALS = (
    *(RuntimeError, NotImplementedError, TypeError, IndexError, ValueError),
    *(AssertionError, KeyError),
)

# Arguments for ops that do not take what `_argument` makes of their schema, and of
# which PyTorch has no sample, or none whose operands go together at every rank.
SAMPLES: dict[str, Callable[[Make], Args]] = {
    "_adaptive_avg_pool2d": lambda t: (_batched(t, 8, 7), [3, 3]),
    "_adaptive_avg_pool3d": lambda t: (_batched(t, 8, 7, 6), [3, 3, 3]),
    "_cdist_forward": lambda t: (t.x(3, 4), t(*t.shape(5, 4)), 2.0, None),
    "_embedding_bag": lambda t: (t(5, 4), t.ids(5, 6), torch.tensor([0, 2])),
    "_grouped_mm": lambda t: (t.fixed(5, 16), t(3, 16, 8), _ends(2, 2, 5)),
    "_int_mm": lambda t: (_input(t, 3, 4), t(4, 5, dtype=torch.int8)),
    "_embedding_bag_forward_only": lambda t: (
        *(t(5, 4), t.ids(5, 6), torch.tensor([0, 2])),
    ),
    "_fused_rms_norm": lambda t: (t.x(3, 4), [4], t(4), 1e-5),
    "_native_batch_norm_legit.no_stats": lambda t: (
        *(t.channels(), t(2), t(2)),
        *(True, 0.1, 1e-5),
    ),
    "_native_batch_norm_legit_no_training": lambda t: (
        *(t.channels(), t(2), t(2), t(2), t(2).abs()),
        *(0.1, 1e-5),
    ),
    "_pdist_forward": lambda t: (t.x(4, 3), 2.0),
    "_unsafe_view": lambda t: (t.x(3, 4), list(t.shape(3, 4))[::-1]),
    "as_strided_copy": lambda t: (t.x(3, 4), [1, 2], [1, 1]),
    "as_strided": lambda t: (t.x(3, 4), [1, 2], [1, 1]),
    "as_strided_scatter": lambda t: (t.x(3, 4), t(1, 2), [1, 2], [1, 1]),
    "batch_norm": lambda t: (
        *(t.channels(), t(2), t(2), t(2), t(2).abs()),
        *(False, 0.1, 1e-5, False),
    ),
    "bilinear": lambda t: (t.x(3, 4), t(*t.shape(3, 6)), t(5, 4, 6), t(5)),
    "bucketize": lambda t: (t.x(3, 4), t(5).sort().values),
    "channel_shuffle": lambda t: (t.channels(4), 2),
    "chunk": lambda t: (t.x(3, 4), 2, -1),
    "clamp": lambda t: (t.x(3, 4), 0, 1),
    "clamp.Tensor": lambda t: (t.x(3, 4), t(4), t(4)),
    "col2im": lambda t: (t.x(5, 8, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
    "convolution": _conv,
    "diagonal_scatter": lambda t: _with(x := t.x(3, 4), t.like(x.diagonal())),
    "embedding": lambda t: (t(5, 4), t.ids(5, 3)),
    "empty_permuted": lambda t: ([3, 4], [0, 1]),
    "empty_strided": lambda t: ([3, 4], [4, 1]),
    "expand": _expand,
    "expand_copy": _expand,
    "fill.Tensor": lambda t: (t.x(3, 4), t()),
    "gather": lambda t: (t.x(3, 4), -1, t.ints(4, *t.shape(3, 2))),
    "grid_sampler": lambda t: (_batched(t, 8, 7), t(5, 3, 3, 2), 0, 0, False),
    "group_norm": lambda t: (t.channels(4), 2, t(4), t(4)),
    "index": lambda t: (t.x(3, 4), [t.ints(2, 2)]),
    "index_put": _index_put,
    "_unsafe_index_put": _index_put,
    "index_reduce": lambda t: (
        *(t.x(3, 4), -1, t.ints(4, 2), t(*t.shape(3, 2)), "prod"),
    ),
    "layer_norm": lambda t: (t.x(3, 4), [4], t(4), t(4)),
    "linear": lambda t: (t.x(3, 4), t(5, 4), t(5)),
    "linspace": lambda t: (0.0, 1.0, 5),
    "logspace": lambda t: (0.0, 1.0, 5),
    "masked_scatter": lambda t: (t.x(3, 4), _mask(t), t(*t.shape(3, 4))),
    "max_pool2d_with_indices": lambda t: (_batched(t, 8, 7), [2, 2]),
    "max_pool3d_with_indices": lambda t: (_batched(t, 8, 7, 6), [2, 2, 2]),
    "narrow": lambda t: (t.x(3, 4), -1, 0, 2),
    "narrow_copy": lambda t: (t.x(3, 4), -1, 0, 2),
    "native_group_norm": _native_group_norm,
    "native_layer_norm": lambda t: (t.x(3, 4), [4], t(4), t(4), 1e-5),
    "permute": lambda t: _with(x := t.x(3, 4), list(range(x.dim()))[::-1]),
    "permute_copy": lambda t: _with(x := t.x(3, 4), list(range(x.dim()))[::-1]),
    "_prelu_kernel": lambda t: (t.x(3, 4), t()),
    "put": lambda t: (t.x(3, 4), torch.tensor([-1]), t(1)),
    "reflection_pad1d": lambda t: (t.x(2, 3, 4), [1, 1]),
    "reflection_pad2d": lambda t: (_batched(t, 8, 7), [1, 1, 1, 1]),
    "reflection_pad3d": lambda t: (_batched(t, 8, 7, 6), [1] * 6),
    "repeat": lambda t: _with(x := t.x(3, 4), [2] * x.dim()),
    "replication_pad1d": lambda t: (t.x(2, 3, 4), [1, 1]),
    "replication_pad2d": lambda t: (_batched(t, 8, 7), [1, 1, 1, 1]),
    "replication_pad3d": lambda t: (_batched(t, 8, 7, 6), [1] * 6),
    "reshape": lambda t: (t.x(3, 4), list(t.shape(3, 4))[::-1]),
    "rms_norm": lambda t: (t.x(3, 4), [4], t(4), 1e-5),
    "scaled_dot_product_attention": lambda t: (
        *(t.x(5, 2, 3, 4), t(*t.shape(5, 2, 6, 4)), t(*t.shape(5, 2, 6, 4))),
    ),
    "scatter.reduce": lambda t: (
        *(t.x(3, 4), -1, t.ints(4, *t.shape(3, 2)), t(*t.shape(3, 2))),
    ),
    "scatter.src": lambda t: (*(x := t.x(3, 4), -1, _places(x, 2), t(*t.shape(3, 2))),),
    "scatter.value": lambda t: (t.x(3, 4), -1, t.ints(4, *t.shape(3, 2)), 1),
    "scatter.value_reduce": lambda t: (*(t.x(3, 4), -1, t.ints(4, *t.shape(3, 2)), 2),),
    "scatter_add": lambda t: (
        *(t.x(3, 4), -1, t.ints(4, *t.shape(3, 2)), t(*t.shape(3, 2))),
    ),
    "scatter_reduce": lambda t: (
        *(t.x(3, 4), -1, t.ints(4, *t.shape(3, 2)), t(*t.shape(3, 2))),
        "sum",
    ),
    "searchsorted": lambda t: (t(5).sort().values, t.x(3, 4)),
    "select_scatter": lambda t: _with(x := t.x(3, 4), t.like(x.select(-1, 0)), -1, 0),
    "slice_scatter": lambda t: _with(x := t.x(3, 4), t.like(x[..., :2]), -1, 0, 2),
    "slice": lambda t: (t.x(3, 4), -1, 1, 3),
    "slice_copy": lambda t: (t.x(3, 4), -1, 1, 3),
    "split": lambda t: (t.x(3, 4), 2, -1),
    "split_copy": lambda t: (t.x(3, 4), 2, -1),
    "split_with_sizes": lambda t: (t.x(3, 4), [1, 3], -1),
    "split_with_sizes_copy": lambda t: (t.x(3, 4), [1, 3], -1),
    "squeeze.dim": lambda t: (t.x(3, 1), -1),
    "squeeze.dims": lambda t: (t.x(3, 1), [-1]),
    "squeeze_copy.dim": lambda t: (t.x(3, 1), -1),
    "squeeze_copy.dims": lambda t: (t.x(3, 1), [-1]),
    "transpose_copy": lambda t: (t.x(3, 4), 0, -1),
    "unfold": lambda t: (t.x(3, 4), -1, 2, 1),
    "unfold_copy": lambda t: (t.x(3, 4), -1, 2, 1),
    "view": lambda t: (t.x(3, 4), list(t.shape(3, 4))[::-1]),
    "view.dtype": lambda t: (t.x(3, 4), torch.int32),
    "view_copy.dtype": lambda t: (t.x(3, 4), torch.int32),
    "view_copy": lambda t: (t.x(3, 4), list(t.shape(3, 4))[::-1]),
}
_INT8 = (-128, 127, torch.int8)
_BLOCK = ([1, 8], torch.int8, -128, 127)


def _input(t: Make, *shape: int) -> torch.Tensor:
    """8-bit codes that come in."""
    return t.x(*shape, dtype=torch.int8)


def _q8_conv(t: Make, channels: int, *weight: int, groups: int = 1) -> Args:
    kernel = [1, 1] if len(weight) == 2 and weight[1] == channels else [3, 3]
    outputs = weight[-1] if len(weight) == 3 else weight[0]
    x = _input(t, 2, channels, 8, 7)
    sums = t.constant(torch.zeros(outputs).int())
    rest = (t.scales(outputs), 0.2, -4, t.constant(t(outputs, dtype=torch.float32)))
    geometry = (kernel, [1, 1], [0, 0], [1, 1], groups, "none")
    return (x, 0.05, 3, t.codes(*weight), sums, *rest, *geometry)


def _q8_linear(t: Make, rows: int) -> Args:
    sums = t.constant(torch.zeros(7).int())
    x = _input(t, rows, 13)
    return (x, 0.03, 2, t.codes(7, 13), sums, t.scales(7), 0.1, 5)


def _q4_linear(t: Make) -> Args:
    codes = torch.randint(-8, 8, (8, 32), generator=t.generator).to(torch.int8)
    return (t.constant(pack_4bit_weight_tensor(codes)), t.scales(1, 8), 32)


def _rotary(t: Make, heads: int, angles: int, positions: int) -> Args:
    angle = (positions, angles)
    return (t.x(2, 7, heads, 32), t(2, 7, 2, 32), t(*angle), t(*angle))


def _embedding(width: int, limits: tuple[int, int], t: Make) -> Args:
    dtype = torch.uint8 if limits[0] == -8 else torch.int8
    codes = torch.randint(0, 127, (37, width), generator=t.generator).to(dtype)
    return (t.constant(codes), t.scales(37), None, *limits, t.ids(37, 3))


def _tokens(t: Make) -> Args:
    scales = torch.rand(3, 1, generator=t.generator) * 0.1 + 0.01
    return (scales, t.ints(3, 3, 1).int())


# The ops that ExecuTorch's and torchao's own tools and transformers make, by their
# whole names.
OTHERS: dict[str, Callable[[Make], Args]] = {
    "dim_order_ops._empty_dim_order.default": lambda t: ([3, 4],),
    "et_vk.apply_rotary_emb.default": lambda t: _rotary(t, 6, 16, 7),
    "et_vk.apply_rotary_emb_hf.default": lambda t: (*_rotary(t, 6, 32, 20), 5),
    "et_vk.apply_rotary_emb_interleaved.default": lambda t: (t.x(2, 7, 30), t(7, 30)),
    "et_vk.embedding_q4gsw.default": lambda t: (
        *(t.constant(t(37, 16, dtype=torch.uint8)), t.scales(37, 1), 32),
        t.ids(37, 3),
    ),
    "et_vk.grid_priors.default": lambda t: (t.x(3, 4), 8, 0.5),
    "et_vk.linear_dq8ca_q4gsw.default": lambda t: (
        *(x := t.x(3, 32), t.like(x[..., :1]).abs()),
        t(*x.shape[:-1], 1, dtype=torch.int8),
        *((args := _q4_linear(t))[0], t.constant(torch.zeros(8).int()), *args[1:]),
    ),
    "et_vk.linear_q4gsw.default": lambda t: (t.x(3, 32), *_q4_linear(t)),
    "et_vk.linear_q8ta_q8csw.default": lambda t: (
        *(t.on_grid(0.03, 3, 13), *_q8_linear(t, 3)[1:6]),
    ),
    "et_vk.linear_qcs4w.default": lambda t: (
        *(t.x(3, 64), t.constant(t(5, 32, dtype=torch.uint8).to(torch.int8))),
        t.scales(5),
    ),
    "et_vk.prepack.default": lambda t: (t.constant(t.x(3, 4)),),
    "et_vk.q8ta_add.default": lambda t: (
        *(_input(t, 3, 4), _input(t, 3, 4), 0.05, 3, 0.1, -2, 0.2, 1, 1.0),
    ),
    "et_vk.q8ta_conv2d.default": lambda t: _q8_conv(t, 3, 6, 27),
    "et_vk.q8ta_conv2d_dw.default": lambda t: _q8_conv(t, 5, 3, 3, 5, groups=5),
    "et_vk.q8ta_conv2d_pw.default": lambda t: _q8_conv(t, 4, 6, 4),
    "et_vk.q8ta_conv2d_transposed.default": lambda t: (
        *(_input(t, 2, 5, 3, 4), 0.05, 1, t.codes(4, 20)),
        *(t.constant(torch.zeros(4).int()), t.scales(4), 0.2, 0, None),
        *([2, 2], [2, 2], [0, 0], [0, 0], [1, 1], 1, "relu"),
    ),
    "et_vk.q8ta_linear.default": lambda t: _q8_linear(t, 3),
    "et_vk.q8ta_linear_gemv.default": lambda t: _q8_linear(t, 1),
    "et_vk.q8ta_pixel_shuffle.default": lambda t: (
        *(_input(t, 2, 4, 3, 5), 0.05, 1, 1 / 0.07, -3, 2),
    ),
    "et_vk.q8ta_relu.default": lambda t: (_input(t, 3, 4), 0.05, 3, 0.07, -9),
    "et_vk.rms_norm.default": lambda t: (t.x(3, 4), t(4), 1e-5),
    "et_vk.sdpa.default": lambda t: (
        *(t.x(5, 2, 3, 4), t(*t.shape(5, 2, 6, 4)), t(*t.shape(5, 2, 6, 4))),
    ),
    "llama.custom_sdpa.default": lambda t: (
        *(t.fixed(5, 3, 6, 32), t(5, 96, 2, 32), t(5, 96, 2, 32), 2, None, 0.0, True),
    ),
    "llama.sdpa_with_kv_cache.default": lambda t: (
        *(t.fixed(5, 3, 6, 32), t(5, 3, 2, 32), t(5, 3, 2, 32)),
        *(t(5, 96, 2, 32), t(5, 96, 2, 32), 4, 3, None, 0.0, True),
    ),
    "llama.update_cache.default": lambda t: (t.fixed(5, 3, 2, 32), t(5, 96, 2, 32), 4),
    "llama.update_cache_with_indices.default": lambda t: (
        *(t.fixed(5, 3, 2, 32), t(5, 96, 2, 32), 0, t.ints(96, 5, 3)),
    ),
    "quantized_decomposed.choose_qparams.tensor": lambda t: (
        *(t.x(3, 4), -128, 127, 1e-5, torch.int8),
    ),
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default": lambda t: (
        *(t.x(3, 4), torch.int8),
    ),
    "quantized_decomposed.dequantize_per_channel.default": lambda t: (
        *(_input(t, 3, 4), t.scales(4), t.constant(t.ints(5, 4)), -1, *_INT8),
    ),
    "quantized_decomposed.dequantize_per_channel_group.default": lambda t: (
        *(_input(t, 3, 8), t.scales(3, 2), t.constant(t.ints(5, 3, 2).int())),
        *(*_INT8, 4, torch.float32),
    ),
    "quantized_decomposed.dequantize_per_tensor.default": lambda t: (
        *(_input(t, 3, 4), 0.07, 3, *_INT8),
    ),
    "quantized_decomposed.dequantize_per_tensor.tensor": lambda t: (
        *(_input(t, 3, 4), t.scales(1), t.constant(t.ints(5, 1)), *_INT8),
    ),
    "quantized_decomposed.dequantize_per_token.default": lambda t: (
        *(_input(t, 3, 4), *_tokens(t), *_INT8, torch.float32),
    ),
    **{
        f"quantized_decomposed.embedding_{kind}.{overload}": functools.partial(
            _embedding, width, limits
        )
        for kind, width, limits in (("4bit", 16, (-8, 7)), ("byte", 20, (-128, 127)))
        for overload in ("default", "dtype")
    },
    "quantized_decomposed.quantize_per_channel.default": lambda t: (
        *(t.x(3, 4), t.scales(4), t.constant(t.ints(5, 4)), -1, *_INT8),
    ),
    "quantized_decomposed.quantize_per_channel_group.default": lambda t: (
        *(t.x(3, 8), t.scales(3, 2), t.constant(t.ints(5, 3, 2).int()), *_INT8, 4),
    ),
    "quantized_decomposed.quantize_per_tensor.default": lambda t: (
        *(t.x(3, 4), 0.07, 3, *_INT8),
    ),
    "quantized_decomposed.quantize_per_tensor.tensor": lambda t: (
        *(t.x(3, 4), t.scales(1), t.constant(t.ints(5, 1)), *_INT8),
    ),
    "quantized_decomposed.quantize_per_token.default": lambda t: (
        *(t.x(3, 4), *_tokens(t), *_INT8),
    ),
    "torchao.choose_qparams_affine.default": lambda t: (
        *(t.x(3, 8), "ASYMMETRIC", *_BLOCK, None, None, torch.int8),
    ),
    "torchao.dequantize_affine.default": lambda t: (
        *(_input(t, 3, 8), [1, 8], t.scales(3), None, *_BLOCK[1:]),
    ),
    "torchao.quantize_affine.default": lambda t: (
        *(t.x(3, 8), [1, 8], t.scales(3), t.constant(t.ints(5, 3)), *_BLOCK[1:]),
    ),
    "transformers.grouped_mm_fallback.default": lambda t: (
        *(t.x(5, 4), t(3, 4, 6), _ends(2, 2, 5)),
    ),
}
# Made from numbers, of the type that is asked for.
_OF_A_TYPE = ("empty_permuted", "empty_strided", "linspace", "logspace")
_NAMED: dict[str, dict[str, Any]] = {
    "aten.scatter.reduce": {"reduce": "add"},
    "aten.scatter.value_reduce": {"reduce": "multiply"},
    "dim_order_ops._empty_dim_order.default": {"dim_order": [0, 1]},
    "quantized_decomposed.embedding_4bit.dtype": {"dtype": torch.float32},
    "quantized_decomposed.embedding_byte.dtype": {"dtype": torch.float32},
}


def call_of(name: str, make: Make) -> Call:
    """Arguments, and named arguments, of a call that torch accepts for most types."""
    _, base, overload = name.split(".", 2)
    for samples, key in (
        (OTHERS, name),
        (SAMPLES, f"{base}.{overload}"),
        (SAMPLES, base),
    ):
        if key in samples:
            named = {"dtype": make.dtype} if base in _OF_A_TYPE else {}
            return samples[key](make), _NAMED.get(name, named)
    if "upsample" in base:
        return _resampling(name, make), {}
    sample = None if _takes_any(name) else op_samples.recorded(name)
    return _of_schema(name, make) if sample is None else _retyped(sample, make)


@functools.cache
def _takes_any(name: str) -> bool:
    """Whether torch takes what is made of the op's schema alone."""
    types = (torch.float32, torch.int64)
    return any(is_real(name, dtype, _of_schema) for dtype in types)


def is_real(
    name: str, dtype: torch.dtype, make_call: Callable[[str, Make], Call] = call_of
) -> bool:
    """Whether torch computes a call of an op on operands of a type."""
    try:
        args, kwargs = make_call(name, Make(dtype))
        overload_of(name)(*args, **kwargs)
    except REFUSALS:
        return False
    return True


def _retyped(sample: Call, make: Make) -> Call:
    """A call on floats of float32 as one on what is made of them."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return make.of(leaf) if leaf.dtype is torch.float32 else leaf.clone()

    made: Call = pytree.tree_map(one, sample)
    return made


def _of_schema(name: str, make: Make) -> Call:
    base, schema = name.split(".")[1], overload_of(name)._schema
    given, named = [], {}
    makes = "_copy" in base or not any(
        "Tensor" in str(a.type) for a in schema.arguments
    )
    for argument in schema.arguments:
        chosen = argument.name == "dtype" and makes
        if argument.has_default_value() and not chosen:
            continue
        value = _argument(argument, make)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            given.append(value)
    return tuple(given), named


def _resampling(name: str, make: Make) -> Args:
    _, base, overload = name.split(".")
    dims = int(next(d for d in "123" if f"{d}d" in base))
    x = _batched(make, *(8, 7, 6)[:dims])
    names = [argument.name for argument in overload_of(name)._schema.arguments]
    corners = (False,) if "align_corners" in names else ()
    if overload == "vec":
        return (x, None, *corners, [2.0] * dims)
    return (x, [16, 14, 12][:dims], *corners)


def _argument(argument: Any, make: Make) -> Any:
    kind, name = str(argument.type), argument.name
    if kind == "Tensor":
        return make.x(3, 4)
    if kind == "List[Tensor]":
        return [make.x(3, 4), make.x(3, 4)]
    if "Optional" in kind:
        return make.dtype if name == "dtype" else None
    if kind in ("List[int]", "List[SymInt]"):
        return list(make.shape(3, 4)) if name == "size" else [-1]
    if name in ("dim", "dim0", "dim1"):
        return -1
    if name == "index":
        return 0
    if name in ("end", "steps"):
        return 5
    values = {"int": 1, "number": 1, "float": 0.5, "bool": False, "str": "none"}
    return values[kind]
