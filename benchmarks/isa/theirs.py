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


def _matmul(n: int) -> Made:
    return [_node("MatMul", "a", "b")], {"a": _normal(n, n), "b": _normal(n, n)}, {}


def _linear(rows: int) -> Made:
    weights = {"w": _normal(cases.HIDDEN, cases.HIDDEN), "c": _normal(cases.HIDDEN)}
    node = _node("Gemm", "x", "w", "c", transB=1)
    return [node], {"x": _normal(rows, cases.HIDDEN)}, weights


def _conv(channels: int, filters: int, kernel: int, groups: int) -> Made:
    node = _node("Conv", "x", "w", "c", pads=[kernel // 2] * 4, group=groups)
    weights = {
        "w": _normal(filters, channels // groups, kernel, kernel),
        "c": _normal(filters),
    }
    return [node], {"x": _normal(1, channels, cases.SIZE, cases.SIZE)}, weights


def _softmax(*shape: int) -> Made:
    return [_node("Softmax", "x")], {"x": _normal(*shape)}, {}


def _layernorm(*shape: int) -> Made:
    weights = {"s": _normal(shape[-1]), "b": _normal(shape[-1])}
    node = _node("LayerNormalization", "x", "s", "b", axis=-1)
    return [node], {"x": _normal(*shape)}, weights


def _gelu(*shape: int) -> Made:
    return [_node("Gelu", "x", domain=_MICROSOFT)], {"x": _normal(*shape)}, {}


def _add(*shape: int) -> Made:
    return [_node("Add", "a", "b")], {"a": _normal(*shape), "b": _normal(*shape)}, {}


def _attention(queries: int, keys: int) -> Made:
    features = cases.HEADS * cases.HEAD
    # Heads apart, as a cache holds them, or features of tokens.
    apart = (1, cases.HEADS, keys, cases.HEAD)
    shape = apart if queries != keys else (1, keys, features)
    node = _node(
        "MultiHeadAttention", "q", "k", "v", domain=_MICROSOFT, num_heads=cases.HEADS
    )
    inputs = {
        "q": _normal(1, queries, features),
        "k": _normal(*shape),
        "v": _normal(*shape),
    }
    return [node], inputs, {}


def _packed(rows: int) -> Made:
    groups = cases.HIDDEN // cases.GROUP
    shape = (cases.HIDDEN, groups, cases.GROUP // 2)
    node = _node(
        "MatMulNBits",
        *("x", "w", "s"),
        domain=_MICROSOFT,
        K=cases.HIDDEN,
        N=cases.HIDDEN,
        bits=4,
        block_size=cases.GROUP,
    )
    weights = {
        "w": _random.integers(0, 256, shape).astype(np.uint8),
        "s": np.abs(_normal(cases.HIDDEN * groups)),
    }
    return [node], {"x": _normal(1, rows, cases.HIDDEN)}, weights


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
        [declared("y", first, None)],
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
    session.run(None, feed)
    before = len(dispatches_in_log(output))
    session.run(None, feed)
    made = dispatches_in_log(output)[before:]
    return [replace(dispatch, case=case.name) for dispatch in made]


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
