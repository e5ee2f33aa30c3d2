"""Every kernel compiles with both compilers of WGSL, on every kind of device.

Calls of single ops, planned without export, reach every file in wgsl/; what the
other tests lower is compiled by `harness.check_op` as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import op_calls
import op_coverage
import pytest
import torch
import wgsl_compilers
from wgsl_compilers import (
    CAPS,
    CompileError,
    compile_naga,
    compile_tint,
    kernels_of,
)

from executorch_webgpu import ir
from executorch_webgpu.export.torch_dtypes import dtype_of
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan.pointwise import FORMULAS
from executorch_webgpu.plan.wgsl_text import LIBRARIES

WGSL = Path(__file__).parent.parent / "wgsl"
COMPILERS = [
    pytest.param(compile_tint, id="Tint"),
    pytest.param(compile_naga, id="naga"),
]
KERNELS = sorted({path.stem for path in WGSL.rglob("*.wgsl")} - set(LIBRARIES))


@dataclass(frozen=True)
class Constant:
    """A tensor whose content is known at load."""

    tensor: torch.Tensor


class Position:
    """An integer that only the data knows."""


def real(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def whole(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def weight(*shape: int) -> Constant:
    return Constant(real(*shape))


PICTURE = real(2, 8, 13, 11)
BYTES = whole(2, 3, 13, 11, dtype=torch.uint8)
VOLUME = real(1, 3, 5, 6, 7)
ROWS = real(37, 113)
CACHE = real(1, 4, 32, 16)
PAIRS = [[2, 2], [1, 1], [0, 0], [1, 1]]

# Ops whose other results exist only for a backward pass.
FIRST_ONLY = {
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
}

# Op, arguments, and the outputs where torch cannot tell them.
CALLS: list[tuple[Any, ...]] = [
    ("aten.add.Tensor", ROWS, ROWS, 1),
    ("aten.add.Tensor", real(64, 64, 7), real(7), 1),
    ("aten.gelu.default", ROWS, "none"),
    ("aten.pow.Tensor_Tensor", ROWS, ROWS),
    ("aten.cat.default", [ROWS, ROWS.to(torch.float16)], 1),
    ("aten.cat.default", [real(3, 7)] * 12, 0),
    ("aten.cat.default", [real(37, 8), real(37, 12)], 1),
    ("aten.slice_scatter.default", ROWS, real(37, 40), 1, 3, 83, 2),
    ("aten.roll.default", ROWS, [3, 5], [0, 1]),
    ("aten.reflection_pad2d.default", PICTURE, [1, 2, 3, 1]),
    ("aten.constant_pad_nd.default", PICTURE, [1, 2, -1, 1], 0.5),
    ("aten.repeat.default", ROWS, [2, 3, 1]),
    ("aten.tril.default", ROWS, 1),
    ("aten.im2col.default", PICTURE, *PAIRS),
    ("aten.col2im.default", real(2, 32, 120), [13, 11], *PAIRS),
    ("aten.sum.dim_IntList", ROWS, [1], True, None),
    ("aten.sum.dim_IntList", real(4, 50_000), [1], False, None),
    ("aten.sum.dim_IntList", real(64, 200_000), [1], False, None),
    ("aten.sum.dim_IntList", real(128, 64, 128), [1], False, None),
    ("aten.var.correction", ROWS, [1]),
    ("aten.amax.default", ROWS, [0], False),
    ("aten.argmax.default", ROWS, 1, False),
    ("aten.logsumexp.default", ROWS, [1], False),
    ("aten.prod.dim_int", whole(37, 113, dtype=torch.int32), 1, False, torch.int32),
    ("aten._softmax.default", ROWS, 1, False),
    ("aten._softmax.default", real(8, 4096), 1, False),
    ("aten._log_softmax.default", real(37, 113, 70), 1, False),
    ("aten.native_layer_norm.default", ROWS, [113], weight(113), weight(113), 1e-5),
    ("aten.native_layer_norm.default", real(8, 4096), [4096], None, None, 1e-5),
    ("aten.native_group_norm.default", PICTURE, weight(8), None, 2, 8, 143, 2, 1e-5),
    ("aten.mm.default", real(37, 113), real(113, 64)),
    ("aten.mm.default", real(1, 113), real(113, 64)),
    ("aten.mm.default", real(64, 64), weight(64, 64)),
    ("aten.mm.default", real(64, 256), real(256, 64)),
    ("aten.bmm.default", real(3, 128, 64), real(3, 64, 128)),
    ("aten.linear.default", real(1, 128), weight(256, 128), weight(256)),
    ("aten.linear.default", real(64, 128), weight(256, 128), weight(256)),
    (
        "aten.convolution.default", PICTURE, weight(16, 8, 3, 3), weight(16),
        [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
    ),
    (
        "aten.convolution.default", real(1, 16, 64, 64), weight(32, 16, 3, 3), None,
        [2, 2], [1, 1], [1, 1], False, [0, 0], 1,
    ),
    (
        "aten.convolution.default", PICTURE, weight(8, 1, 3, 3), None,
        [1, 1], [1, 1], [2, 2], False, [0, 0], 8,
    ),
    (
        "aten.convolution.default", PICTURE, weight(8, 1, 3, 3), weight(8),
        [2, 2], [1, 1], [1, 1], False, [0, 0], 8,
    ),
    (
        "aten.convolution.default", PICTURE, weight(8, 4, 3, 3), weight(4),
        [2, 2], [1, 1], [2, 2], True, [1, 1], 1,
    ),
    (
        "aten.convolution.default", PICTURE, real(16, 8, 1, 1), None,
        [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
    ),
    ("aten.max_pool2d_with_indices.default", PICTURE, [3, 3], [2, 2], [1, 1]),
    ("aten.avg_pool2d.default", PICTURE, [3, 3], [2, 2], [1, 1], True),
    ("aten._adaptive_avg_pool2d.default", PICTURE, [5, 4]),
    ("aten.adaptive_max_pool2d.default", PICTURE, [5, 4]),
    ("aten.fractional_max_pool2d.default", PICTURE, [2, 3], [5, 4], real(2, 8, 2)),
    ("aten.fractional_max_pool3d.default", VOLUME, [2] * 3, [2] * 3, real(1, 3, 3)),
    ("aten.upsample_nearest2d.vec", PICTURE, [26, 20], None),
    ("aten.upsample_bilinear2d.vec", PICTURE, [26, 20], False, None),
    ("aten.upsample_bilinear2d.vec", BYTES, [26, 20], False, None),
    ("aten.upsample_trilinear3d.vec", VOLUME, [9, 4, 14], True, None),
    ("aten.upsample_bicubic2d.vec", PICTURE, [26, 20], False, None),
    ("aten._upsample_bilinear2d_aa.vec", PICTURE, [6, 20], False, None),
    ("aten._upsample_bicubic2d_aa.vec", PICTURE, [6, 20], False, None),
    *(
        ("aten.grid_sampler_2d.default", PICTURE, real(2, 5, 4, 2), mode, edge, False)
        for mode in range(3)
        for edge in range(3)
    ),
    ("aten.embedding.default", ROWS, whole(3, 7)),
    ("aten.gather.default", ROWS, 1, whole(37, 5)),
    ("aten.index.Tensor", ROWS, [whole(7), whole(7)]),
    ("aten.index_put.default", ROWS, [whole(7)], real(7, 113), False),
    ("aten.index_put.default", ROWS, [whole(7)], real(7, 113), True),
    ("aten.index_put.default", ROWS, [None, whole(7)], real(37, 7), False),
    ("aten.scatter.src", ROWS, 1, whole(37, 5), ROWS),
    ("aten.scatter_add.default", ROWS, 1, whole(37, 5), ROWS),
    ("aten.index_reduce.default", ROWS, 1, whole(5), real(37, 5), "mean"),
    ("aten.put.default", ROWS, whole(7), real(7), True),
    ("aten.as_strided_scatter.default", ROWS, real(3, 5), [3, 5], [7, 1], 2),
    ("aten.scatter_reduce.two", ROWS, 0, whole(37, 5), ROWS, "amax"),
    ("aten.scatter_add.default", real(50_000), 0, whole(50_000), real(50_000)),
    ("aten.searchsorted.Tensor", real(113), ROWS),
    ("aten._embedding_bag.default", ROWS, whole(9), whole(3)),
    ("aten.masked_scatter.default", ROWS, whole(37, 113, dtype=torch.bool), ROWS),
    ("aten.cumsum.default", ROWS, 1),
    ("aten.cumsum.default", real(3, 50_000), 1),
    ("aten.sort.default", ROWS, 1, True),
    ("aten.sort.default", real(2, 5000), 1, False),
    ("aten.topk.default", ROWS, 5, 1, True, True),
    ("aten.median.dim", ROWS, 1),
    ("aten.mode.default", ROWS, 1),
    ("aten.scaled_dot_product_attention.default", *[real(1, 4, 37, 16)] * 3),
    # Few queries, many keys.
    (
        "aten.scaled_dot_product_attention.default", real(1, 4, 1, 64),
        *[real(1, 4, 1024, 64)] * 2,
    ),
    (
        "aten.scaled_dot_product_attention.default", *[real(1, 4, 128, 64)] * 3,
        real(1, 1, 128, 128),
    ),
    ("aten._cdist_forward.default", ROWS, ROWS, 2.0, None),
    ("webgpu.cache_put", CACHE, real(1, 4, 3, 16), 2, whole(3), [CACHE]),
    (
        "webgpu.attend_cached", real(1, 8, 3, 16), CACHE, CACHE, whole(3), None,
        [real(1, 8, 3, 16)],
    ),
    ("webgpu.slice_at", ROWS, 0, Position(), [real(3, 113)]),
    (
        "webgpu.attend_cached", real(1, 8, 3, 16), CACHE, CACHE, Position(), None,
        [real(1, 8, 3, 16)],
    ),
    *(
        (
            "webgpu.rotary", real(1, 8, 3, 16), real(1, 4, 3, 16),
            real(1, 1, 3, angles), real(1, 1, 3, angles), 2, angles == 8,
            [real(1, 8, 3, 16), real(1, 4, 3, 16)],
        )
        for angles in (8, 16)
    ),
    *(
        (
            "et_vk.linear_q4gsw.default", real(rows, 128),
            Constant(whole(64, 64, dtype=torch.uint8)), weight(4, 64), 32, None,
            [real(rows, 64)],
        )
        for rows in (1, 64)
    ),
    (
        "et_vk.embedding_q4gsw.default", Constant(whole(64, 64, dtype=torch.uint8)),
        weight(64, 4), 32, whole(2, 3), False, [real(2, 3, 128)],
    ),
    ("webgpu.rms_norm", real(37, 128), weight(128), 1e-6, [real(37, 128)]),
    ("webgpu.rms_norm", ROWS, weight(113), 1e-6, [ROWS]),
    ("webgpu.round_rows", real(37, 128), 128, -128, 127, 1e-6, [real(37, 128)]),
    *(
        (
            "webgpu.linear_rounded", real(rows, 128), -128, 127, 1e-6,
            Constant(whole(16, 64, dtype=torch.int32)), weight(4, 64), None, 64, 4, 32,
            None, [real(rows, 64)],
        )
        for rows in (1, 3)
    ),
    *(
        (
            "webgpu.linear_codes", whole(rows, 2048, dtype=torch.int8), 0.05, 3,
            Constant(whole(512, 64, dtype=torch.int32)), weight(1, 64), None, 64, 8,
            2048, weight(64), [real(rows, 64)],
        )
        for rows in (1, 3)
    ),
    (
        "webgpu.conv_codes", whole(2, 64, 13, 11, dtype=torch.int8), 0.05, 3,
        Constant(whole(16, 64, 3, 3, dtype=torch.int8)), weight(16), weight(16),
        [2, 1], [1, 1], [1, 1], 1, [real(2, 16, 7, 11)],
    ),
    (
        "webgpu.conv_codes", whole(2, 10, 15, 26, dtype=torch.int8), 0.05, -3,
        Constant(whole(6, 5, 3, 2, dtype=torch.int8)), weight(6), None,
        [1, 2], [2, 1], [2, 1], 2, [real(2, 6, 15, 14)],
    ),
    (
        "quantized_decomposed.choose_qparams.tensor", ROWS, -128, 127, 1e-6, torch.int8,
        [real(1), whole(1)],
    ),
]  # fmt: skip


def half(value: Any) -> Any:
    """The same call in half precision."""
    if isinstance(value, list):
        return [half(item) for item in value]
    if isinstance(value, Constant):
        return Constant(half(value.tensor))
    if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
        return value.to(torch.float16)
    return value


class Builder:
    """A graph of one call."""

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.graph = ir.Graph()
        if name.startswith("aten."):
            outputs = infer(name, args)
        else:
            *args, outputs = args
        given = [self.arg(arg) for arg in args]
        made = [self.value(tensor) for tensor in outputs]
        self.graph.calls = [ir.Call(name, given, made)]
        self.graph.outputs = made[:1] if name in FIRST_ONLY else made

    def value(self, tensor: torch.Tensor, key: str = "") -> int:
        shape, name = tuple(tensor.shape), f"v{len(self.graph.values)}"
        dtype = dtype_of(tensor)
        return self.graph.add(
            ir.Value(name, dtype, shape, shape, data_key=key and name)
        )

    def arg(self, arg: Any) -> ir.Arg:
        match arg:
            case torch.Tensor():
                self.graph.inputs.append(self.value(arg))
                return ir.Ref(self.graph.inputs[-1])
            case Constant(tensor=tensor):
                return ir.Ref(self.value(tensor, "constant"))
            case Position():
                dtype = dtype_of(whole())
                value = ir.Value("start", dtype, (), (), is_int=True, symbol="start")
                self.graph.inputs.append(self.graph.add(value))
                self.graph.symbols["start"] = (0, 2**31 - 1)
                return ir.Expr("start")
            case list():
                return [self.arg(item) for item in arg]
            case torch.dtype():
                return dtype_of(torch.empty(0, dtype=arg))
        return arg


def infer(name: str, args: Sequence[Any]) -> list[torch.Tensor]:
    """An ATen op's outputs."""
    function = op_coverage.overload_of(name)
    plain = [arg.tensor if isinstance(arg, Constant) else arg for arg in args]
    names = zip(function._schema.arguments, plain, strict=True)
    results = function(**{item.name: value for item, value in names})
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [result for result in results if isinstance(result, torch.Tensor)]


def filled(
    name: str, args: Sequence[Any], named: Mapping[str, Any] | None = None
) -> list[Any]:
    """`args`, those that are named, and the defaults of the op's schema."""
    if not name.startswith("aten."):
        return list(args)
    rest = op_coverage.overload_of(name)._schema.arguments[len(args) :]
    known = named or {}
    return [*args, *(known.get(item.name, item.default_value) for item in rest)]


def other_calls() -> Iterator[ir.Graph]:
    """Of every op that no call above is of: the one of docs/ops.md."""
    above = {name for name, *_ in CALLS}
    for name in op_coverage.public_ops():
        if name.startswith("aten.") and name not in above | FORMULAS.keys():
            call = op_calls.call_of(name, op_calls.Make(torch.float32))
            yield Builder(name, filled(name, *call)).graph


def late_report() -> ir.Graph:
    """A state that is written in place before an index into it is checked."""
    graph = ir.Graph(inputs=[1, 2], outputs=[4], mutations={0: 3})
    for name, shape in (("s", (4, 8)), ("x", (2, 8)), ("at", (2,)), ("t", (4, 8))):
        dtype = DType.INT64 if name == "at" else DType.FLOAT32
        state = name if name == "s" else ""
        graph.add(ir.Value(name, dtype, shape, shape, state=state))
    graph.add(ir.Value("y", DType.FLOAT32, (2, 8), (2, 8)))
    cache, rows, at, new = map(ir.Ref, range(4))
    graph.calls = [
        ir.Call("webgpu.cache_put", [cache, rows, 0, at], [3]),
        ir.Call("aten.embedding.default", [new, at, -1, False, False], [4]),
    ]
    return graph


@functools.cache
def kernels() -> dict[str, set[str]]:
    """The texts of every kernel, by the name of its file."""
    found: dict[str, set[str]] = {}
    for name, *args in CALLS:
        for form in (args, half(args)):
            graph = Builder(name, filled(name, form)).graph
            for _, pipeline in kernels_of(graph):
                found.setdefault(pipeline.label, set()).add(pipeline.wgsl)
    for graph in (*other_calls(), late_report()):
        for _, pipeline in kernels_of(graph):
            if pipeline.label not in found:
                found[pipeline.label] = {pipeline.wgsl}
    return found


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_compiles(kernel: str, compiler: Callable[[str], None]) -> None:
    """All texts that are of it or include it, whatever the device and the types."""
    file = next(WGSL.rglob(f"{kernel}.wgsl")).read_text()
    every = set().union(*kernels().values())
    including = {text for text in every if file in text}
    assert including, "add a call that reaches it to CALLS"
    for text in including | kernels().get(kernel, set()):
        compiler(text)


def test_no_kernel_has_another_name() -> None:
    assert kernels().keys() <= set(KERNELS)


def test_devices_differ_in_their_kernels():
    graph = Builder(*_split(("aten.mm.default", real(64, 64), weight(64, 64)))).graph
    texts = {device: set() for device in CAPS}
    for device, pipeline in kernels_of(graph):
        texts[device].add(pipeline.wgsl)
    assert texts["llvmpipe"] != texts["a browser's GPU"] != texts["SwiftShader"]


def _split(call: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    return call[0], call[1:]


MAIN = "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u)"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_bad_kernel_is_refused(compiler):
    with pytest.raises(CompileError, match="missing"):
        compiler(MAIN + "{ let x = missing(id.x); }")


def test_tint_refuses_what_naga_accepts():
    text = MAIN + "{ if (id.x > 3u) { return; } workgroupBarrier(); }"
    compile_naga(text)
    with pytest.raises(CompileError, match="uniform control flow"):
        compile_tint(text)


def test_only_what_was_accepted_by_the_same_version_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wgsl_compilers, "_ACCEPTED", tmp_path)
    compiled = []

    def compiler(text: str) -> None:
        compiled.append(text)
        if text == "bad":
            raise CompileError(text)

    for version in ("1", "1", "2"):
        once = wgsl_compilers._once(version.upper)(compiler)  # as a new process has it
        once("good")
        with pytest.raises(CompileError):
            once("bad")
    assert compiled == ["good", "bad", "bad", "good", "bad"]
