"""ONNX Runtime's side: cases as ONNX models, run on a null device.

    python -m benchmarks.isa.theirs PACKAGES FOLDER CASE...    in `tools.environment`

The folder holds models that benchmarks.prepare has exported, in folders of their names.
Writes dispatches.json where the layer writes: those of a second run, because weights
are packed in the first. Prints every kernel's text, from which `names` takes what ONNX
Runtime calls it. A case that fails is in failed.json with its reason.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from . import cases
from .capture import Dispatch, dispatches_in_log, write

_MICROSOFT = "com.microsoft"
_OPSETS = (("", 21), (_MICROSOFT, 1))
_IR_VERSION = 10
_SHADER = re.compile(r"=== WebGPU Shader code \[(\S+?), Key=\".*?\"\] Start ===")

Arrays = Mapping[str, np.ndarray]
# Nodes, inputs and weights; an output is "y".
Made = tuple[list[Any], Arrays, Arrays]

_random = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape).astype(np.float32)


def _node(op: str, *inputs: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(op, list(inputs), ["y"], **attributes)


def _matmul(m: int, k: int, n: int) -> Made:
    return [_node("MatMul", "a", "b")], {"a": _normal(m, k), "b": _normal(k, n)}, {}


def _linear(rows: int, k: int, n: int) -> Made:
    weights = {"w": _normal(n, k), "c": _normal(n)}
    node = _node("Gemm", "x", "w", "c", transB=1)
    return [node], {"x": _normal(rows, k)}, weights


def _conv(
    channels: int, filters: int, kernel: int, groups: int, stride: int, size: int
) -> Made:
    pads, strides = [kernel // 2] * 4, [stride] * 2
    node = _node("Conv", "x", "w", "c", pads=pads, strides=strides, group=groups)
    weights = {
        "w": _normal(filters, channels // groups, kernel, kernel),
        "c": _normal(filters),
    }
    return [node], {"x": _normal(1, channels, size, size)}, weights


def _softmax(*shape: int) -> Made:
    return [_node("Softmax", "x")], {"x": _normal(*shape)}, {}


def _layernorm(*shape: int) -> Made:
    weights = {"s": _normal(shape[-1]), "b": _normal(shape[-1])}
    node = _node("LayerNormalization", "x", "s", "b", axis=-1)
    return [node], {"x": _normal(*shape)}, weights


def _rmsnorm(*shape: int) -> Made:
    node = _node("SimplifiedLayerNormalization", "x", "s", axis=-1)
    return [node], {"x": _normal(*shape)}, {"s": _normal(shape[-1])}


def _gelu(*shape: int) -> Made:
    return [_node("Gelu", "x", domain=_MICROSOFT)], {"x": _normal(*shape)}, {}


def _add(*shape: int) -> Made:
    return [_node("Add", "a", "b")], {"a": _normal(*shape), "b": _normal(*shape)}, {}


def _attention(queries: int, keys: int, heads: int, shared: int, size: int) -> Made:
    if shared < heads:
        return _grouped_attention(keys, heads, shared, size)
    # Heads apart, as a cache holds them, or features of tokens.
    apart = (1, heads, keys, size)
    shape = apart if queries != keys else (1, keys, heads * size)
    node = _node(
        "MultiHeadAttention", "q", "k", "v", domain=_MICROSOFT, num_heads=heads
    )
    inputs = {
        "q": _normal(1, queries, heads * size),
        "k": _normal(*shape),
        "v": _normal(*shape),
    }
    return [node], inputs, {}


# Inputs that outputs are written over.
_CACHES = {"past_k": "all_k", "past_v": "all_v"}


def _grouped_attention(keys: int, heads: int, shared: int, size: int) -> Made:
    """Of one query, whose key and value become the last of the caches."""
    from onnx import helper

    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", *_CACHES, "last", "total"],
        ["y", *_CACHES.values()],
        domain=_MICROSOFT,
        num_heads=heads,
        kv_num_heads=shared,
    )
    inputs = {
        "q": _normal(1, 1, heads * size),
        "k": _normal(1, 1, shared * size),
        "v": _normal(1, 1, shared * size),
        **{name: _normal(1, shared, keys, size) for name in _CACHES},
    }
    last, total = np.array([keys - 1], np.int32), np.array(keys, np.int32)
    return [node], inputs, {"last": last, "total": total}


def _packed(rows: int, k: int, n: int) -> Made:
    groups = k // cases.GROUP
    node = _node(
        "MatMulNBits",
        *("x", "w", "s"),
        domain=_MICROSOFT,
        K=k,
        N=n,
        bits=4,
        block_size=cases.GROUP,
    )
    shape = (n, groups, cases.GROUP // 2)
    weights = {
        "w": _random.integers(0, 256, shape).astype(np.uint8),
        "s": np.abs(_normal(n * groups)),
    }
    return [node], {"x": _normal(1, rows, k)}, weights


def _int8conv(channels: int) -> Made:
    from onnx import helper

    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("Conv", ["xf", "wf", "c"], ["yf"], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["yf", "ys", "z"], ["y"]),
    ]

    def codes(*shape: int) -> np.ndarray:
        return _random.integers(-127, 128, shape).astype(np.int8)

    weights: Arrays = {
        "xs": np.array(0.05, np.float32),
        "ys": np.array(0.2, np.float32),
        "z": np.array(0, np.int8),
        "w": codes(channels, channels, 3, 3),
        "ws": np.full(channels, 0.01, np.float32),
        "wz": np.zeros(channels, np.int8),
        "c": _normal(channels),
    }
    return nodes, {"x": codes(1, channels, cases.SIZE, cases.SIZE)}, weights


_FAMILIES: dict[str, Callable[..., Made]] = {
    "matmul": _matmul,
    "linear": _linear,
    "conv": _conv,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "gelu": _gelu,
    "add": _add,
    "attention": _attention,
    "packed": _packed,
    "int8conv": _int8conv,
}


def _model(case: cases.Case) -> tuple[bytes, dict[str, np.ndarray]]:
    from onnx import helper, numpy_helper

    nodes, inputs, weights = _FAMILIES[case.family](*case.args)

    def typed(array: np.ndarray) -> np.ndarray:
        return (
            array.astype(np.float16) if case.half and array.dtype.kind == "f" else array
        )

    feed = {name: typed(array) for name, array in inputs.items()}

    def declared(name: str, array: np.ndarray, shape: Any) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, shape)

    first = next(iter(feed.values()))
    graph = helper.make_graph(
        nodes,
        "case",
        [declared(name, array, array.shape) for name, array in feed.items()],
        [declared(name, first, None) for name in nodes[-1].output],
        [numpy_helper.from_array(typed(a), name) for name, a in weights.items()],
    )
    opsets = [helper.make_opsetid(*opset) for opset in _OPSETS]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    return model.SerializeToString(), feed


# Kept: with the last session goes the device, which the null device does not survive.
_sessions: list[Any] = []


def _run(
    onnxruntime: Any, case: cases.Case, folder: Path, output: Path
) -> list[Dispatch]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 0  # prints the kernels' texts
    model: bytes | str
    if case.is_model:
        model = str(folder / case.name / "model.onnx")
    else:
        model, feed = _model(case)
    session = onnxruntime.InferenceSession(
        model, options, providers=["WebGpuExecutionProvider"]
    )
    _sessions.append(session)
    if case.is_model:
        with np.load(folder / case.name / "inputs.npz") as stored:
            inputs = [each.name for each in session.get_inputs()]
            feed = {name: stored[key] for name, key in zip(inputs, stored.files)}
    run = _prepared(session, feed)
    before = len(dispatches_in_log(output))
    run()
    made = dispatches_in_log(output)[before:]
    return [replace(dispatch, case=case.name) for dispatch in made]


def _prepared(session: Any, feed: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """A run after the first. Caches are on the device and written in place, as programs
    that generate text have them; otherwise they would be copied as a whole."""
    if not _CACHES.keys() <= feed.keys():
        session.run(None, feed)
        return lambda: session.run(None, feed)
    first, second = session.io_binding(), session.io_binding()
    for name, array in feed.items():
        first.bind_cpu_input(name, array)
        if name not in _CACHES:
            second.bind_cpu_input(name, array)
    for name in _CACHES.values():
        first.bind_output(name, "webgpu")
    first.bind_output("y")
    session.run_with_iobinding(first)
    for (past, name), cache in zip(_CACHES.items(), first.get_outputs(), strict=False):
        second.bind_ortvalue_input(past, cache)
        second.bind_ortvalue_output(name, cache)
    second.bind_output("y")
    session.run_with_iobinding(second)
    return lambda: session.run_with_iobinding(second)


def names(printed: str) -> list[str]:
    """What the kernels are called, in the order of their pipelines."""
    return _SHADER.findall(printed)


def main() -> None:
    packages, folder, *wanted = sys.argv[1:]
    sys.path.append(packages)
    import onnxruntime

    onnxruntime.set_default_logger_severity(0)
    output = Path(os.environ["ISA_OUT"])
    made: list[Dispatch] = []
    failed = {}
    for name in wanted:
        try:
            made += _run(onnxruntime, cases.find(name), Path(folder), output)
        # It may fail in any way; the report says how.
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            failed[name] = reason.splitlines()[0][:200]
    write(output, made)
    (output / "failed.json").write_text(json.dumps(failed))
    sys.stdout.flush()
    # Libraries that take a null device down at exit may crash, and all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
