"""Files made for ExecuTorch's Vulkan backend, in the standard runtime, unchanged."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import vulkan_catalogue as catalogue
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.webgpu.partitioner import WebGPUPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.runtime import Runtime
from fuzz import mutate_bytes
from test_registration import run
from torch.export import Dim

from executorch_webgpu import _shim, last_error
from executorch_webgpu.errors import InvalidBlob, MissingData, WebGPUError
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.vulkan.load import load

# A constant on its way to its reader, ops that are two here, results of int64, and
# files that mean something else than their op in torch.
_SAMPLES = (
    "index_select/dim0_1d",
    "conv_with_clamp/k3p1",
    "argmax/2d",
    "linear_qcs4w/k64",
    "linear_q8ta_q8csw/gemv",
    "q8ta_conv2d_transposed/s2",
)
# A size that is an argument, two results, codes of 4 bits at int64 indices, and a state
# whose position is a size.
_DYNAMIC_SAMPLES = (
    "dynamic/q4_linear_reshaped",
    "dynamic/rope",
    "dynamic/embedding",
    "dynamic/sdpa_at",
)

_OP_CASES = {case.name: case for case in catalogue.op_cases()}
_DYNAMIC_CASES = {case.name: case for case in catalogue.dynamic_cases()}
_CASES = {**_OP_CASES, **_DYNAMIC_CASES}
_SHORT = (*_SAMPLES, *_DYNAMIC_SAMPLES)


@pytest.mark.parametrize(
    "name",
    [
        *_SHORT,
        *(pytest.param(n, marks=pytest.mark.long) for n in _CASES if n not in _SHORT),
    ],
)
def test_a_case_of_executorch_equals_eager(name: str) -> None:
    for lowered in _CASES[name].lower():
        catalogue.check(lowered)


class Network(torch.nn.Module):
    """A convolution, a pool, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3, stride=2)
        self.linear = torch.nn.Linear(20, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.avg_pool2d(torch.relu(self.conv(x)), 2)
        return self.linear(y.flatten(1))


class Rotary(torch.nn.Module):
    """Two results, in a list of values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cos", torch.randn(4, 4))
        self.register_buffer("sin", torch.randn(4, 4))

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ops.et_vk.apply_rotary_emb(q, k, self.cos, self.sin)


def _lowered(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], **options: object
) -> bytes:
    partitioner = options.pop("partitioner", None) or VulkanPartitioner()
    exported = torch.export.export(model.eval(), inputs, **options)
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return bytes(edge.to_executorch().buffer)


def _delegate(buffer: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The delegate's bytes, and the named data."""
    file = deserialize_pte_binary(buffer)
    (plan,) = file.program.execution_plan
    (found,) = plan.delegates
    assert found.id == "VulkanBackend"
    data = file.named_data
    named = (
        {}
        if data is None
        else {
            key: bytes(data.buffers[entry.buffer_index])
            for key, entry in data.pte_data.items()
        }
    )
    inline = file.program.backend_delegate_data[found.processed.index].data
    return bytes(inline), named


def _load(buffer: bytes) -> None:
    program = Runtime.get().load_program(buffer)
    with pytest.raises(RuntimeError):
        program.load_method("forward")


@pytest.mark.usefixtures("nothing_leaks")
def test_a_network_of_the_other_partitioner() -> None:
    model, x = Network(), torch.randn(2, 3, 9, 9)
    buffer = _lowered(model, (x,), partitioner=WebGPUPartitioner())
    program = Runtime.get().load_program(buffer)
    method = program.load_method("forward")
    (result,) = method.execute([x])
    torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-5)


def test_halves_inside_and_floats_outside() -> None:
    """With force_fp16, a file's tensors are halves and its arguments are not."""
    model, x = torch.nn.Linear(8, 4), torch.randn(3, 8)
    options = VulkanPartitioner({"force_fp16": True})
    buffer = _lowered(model, (x,), partitioner=options)
    program = Runtime.get().load_program(buffer)
    (result,) = program.load_method("forward").execute([x])
    assert result.dtype is torch.float32
    torch.testing.assert_close(result, model(x), rtol=1e-2, atol=1e-2)


def test_a_file_says_which_sizes_are_one() -> None:
    """What ops demand of sizes fixes them, or makes two of them one."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 4)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.linear(x + y).reshape(-1, 2)

    inputs = (torch.randn(6, 8), torch.randn(6, 8))
    rows = Dim("rows", min=1, max=6)
    shapes = {"x": {0: rows}, "y": {0: rows}}
    blob, named = _delegate(_lowered(Model(), inputs, dynamic_shapes=shapes))
    graph, _ = load(blob, named.get)
    assert list(graph.symbols.values()) == [(1, 6)]
    (symbol,) = graph.symbols
    x, y = (graph.values[index].shape for index in graph.inputs)
    assert x == y == (symbol, 8)
    (output,) = (graph.values[index] for index in graph.outputs)
    assert output.shape == (f"2 * {symbol}", 2)
    assert output.bound == (12, 2)


def test_an_unknown_op_is_named_at_load() -> None:
    buffer = _lowered(torch.nn.Tanh(), (torch.randn(3),))
    assert buffer.count(b"aten.tanh.default") == 1
    _load(buffer.replace(b"aten.tanh.default", b"aten.tuna.default"))
    error = "each op must be one that executorch_webgpu has, got aten.tuna.default"
    assert error in str(last_error())


def test_a_size_that_a_file_does_not_serve_is_refused() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.et_vk.grid_priors(x, 8, 0.5)

    x = torch.randn(1, 3, 4, 6)
    shapes = {"x": {2: Dim("high", min=2, max=4)}}
    program = Runtime.get().load_program(_lowered(Model(), (x,), dynamic_shapes=shapes))
    method = program.load_method("forward")
    (result,) = method.execute([x])
    torch.testing.assert_close(result, Model()(x))
    with pytest.raises(RuntimeError):
        method.execute([x[:, :, :3].contiguous()])
    assert "must have shape [1, 3, 4, 6]" in str(last_error())


def test_constants_may_be_missing_or_short() -> None:
    blob, named = _delegate(_lowered(Network(), (torch.randn(2, 3, 9, 9),)))
    load(blob, named.get)
    with pytest.raises(MissingData, match=r"must have .* bytes, got none"):
        load(blob, lambda key: None)
    with pytest.raises(MissingData, match=r"must have .* bytes, got 4"):
        load(blob, lambda key: bytes(4))


def test_a_cut_blob_is_refused() -> None:
    blob, named = _delegate(_lowered(torch.nn.Tanh(), (torch.randn(3),)))
    start, length = struct.unpack_from("<II", blob, 10)
    for size in range(start + length):
        with pytest.raises(InvalidBlob):
            load(blob[:size], named.get)


def test_mutants_are_refused_with_a_sentence_or_planned() -> None:
    """Whatever the bytes say, nothing but this package's errors comes out."""
    texts = []
    for model, inputs in (
        (Network(), (torch.randn(2, 3, 9, 9),)),
        (Rotary(), (torch.randn(1, 4, 2, 8), torch.randn(1, 4, 2, 8))),
    ):
        blob, named = _delegate(_lowered(model, inputs))
        start, length = struct.unpack_from("<II", blob, 10)
        for seed in range(400):
            rng = Random(seed)
            body = bytearray(blob[start : start + length])
            rng.choice(mutate_bytes.BYTES)(rng, body)
            made = bytearray(blob[:start]) + body
            struct.pack_into("<I", made, 14, len(body))
            struct.pack_into("<IQ", made, 18, len(made), 0)
            try:
                graph, _ = load(bytes(made), named.get)
                Planner(graph, AOT_CAPS).upper_bound()
                texts.append("")
            except WebGPUError as error:
                texts.append(str(error))
    refused = [text for text in texts if text]
    assert 100 < len(refused) < len(texts)
    assert not [t for t in refused if not re.search(r"must|got", t) or len(t) > 1000]


def test_constants_of_a_file_are_shared_by_content() -> None:
    """The key of a constant is a hash of what kernels get, as for any file."""
    blob, named = _delegate(_lowered(torch.nn.Linear(8, 4), (torch.randn(3, 8),)))
    graph, constants = load(blob, named.get)
    keys = {value.data_key for value in graph.values if value.data_key}
    assert all(key.startswith("webgpu_") for key in keys)
    sizes = {np.frombuffer(constants.get(key), np.float32).size for key in keys}
    assert sizes == {32, 4}


NAMES = """
from executorch.runtime import Runtime
import executorch_webgpu
names = Runtime.get().backend_registry.registered_backend_names
print("VulkanBackend" in names, "WebGPUBackend" in names)
"""


def test_it_is_on_and_can_be_switched_off() -> None:
    assert run(NAMES).split() == ["True", "True"]
    assert run(NAMES, ET_WEBGPU_VULKAN_FILES="0").split() == ["False", "True"]


def test_the_option_holds_for_a_load_too() -> None:
    buffer = _lowered(torch.nn.Tanh(), (torch.randn(3),))
    _shim.set_option("vulkan_files", False)
    try:
        _load(buffer)
    finally:
        _shim.set_option("vulkan_files", True)
    assert "vulkan_files: must be on to load a file" in str(last_error())


def test_another_librarys_vulkan_backend_is_left_alone() -> None:
    out = run(
        """
        import ctypes, glob, importlib.util
        place = importlib.util.find_spec("executorch").submodule_search_locations[0]
        (path,) = glob.glob(place + "/lib/libexecutorch.*")
        library = ctypes.CDLL(path)

        class Backend(ctypes.Structure):
            _fields_ = [("name", ctypes.c_char_p), ("backend", ctypes.c_void_p)]

        other = Backend(b"VulkanBackend", id(library))
        name = "_ZN10executorch7runtime16register_backendERKNS0_7BackendE"
        assert library[name](ctypes.byref(other)) == 0
        import executorch_webgpu
        from executorch_webgpu import _shim
        print(_shim.register_vulkan_backend(), _shim.is_registered())
        """
    )
    assert out.split() == ["False", "True"]


def test_the_example_of_the_documentation_runs() -> None:
    page = Path(__file__).parent.parent / "docs" / "vulkan_files.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(code, str(page), "exec"), {})


def test_the_documented_figures_are_of_all_cases() -> None:
    page = Path(__file__).parent.parent / "docs" / "vulkan_files.md"
    rows = dict(
        re.findall(r"^\| ([a-z ]+) \| (\d+) \|", page.read_text(), re.MULTILINE)
    )
    assert rows["op cases"] == str(len(_OP_CASES))
    assert rows["dynamic cases"] == str(len(_DYNAMIC_CASES))
