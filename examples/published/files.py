"""Readers: weights and media from the files of installed packages, as tensors."""

from __future__ import annotations

import importlib.util
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image


def package_file(package: str, name: str) -> Path:
    """A file of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is not installed; run scripts/setup.sh test"
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))) / name


def speech() -> torch.Tensor:
    """Ten seconds of a voice at 16 kHz, in [-1, 1]."""
    path = package_file("moonshine_onnx", "assets/beckett.wav")
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return torch.from_numpy(samples.astype(np.float32) / 32768)


def photo(name: str, size: tuple[int, int] | None = None) -> torch.Tensor:
    """A photograph as [3, height, width] in [0, 255]."""
    image = Image.open(package_file("skimage", f"data/{name}")).convert("RGB")
    if size is not None:
        image = image.resize(size[::-1], Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()


def ncnn_weights(path: Path, shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    """The tensors of an ncnn `.bin`: a tagged fp16 array per weight, plain fp32 else.

    A weight, unlike a bias or a slope, has more than one dimension.
    """
    data = path.read_bytes()
    at = 0
    found = []
    for shape in shapes:
        count = int(np.prod(shape))
        kind, width = np.dtype(np.float32), 4
        if len(shape) > 1:
            assert data[at : at + 4] == b"\x47\x6b\x30\x01", "ncnn's tag of fp16"
            at += 4
            kind, width = np.dtype(np.float16), 2
        values = np.frombuffer(data, kind, count, at)
        found.append(torch.from_numpy(values.astype(np.float32)).reshape(shape))
        at += -(-count * width // 4) * 4
    assert at == len(data), f"{len(data) - at} bytes are left"
    return found


def onnx_convolutions(path: Path) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weight and bias of every Conv node of an ONNX model, in order of execution."""
    graph = _last(path.read_bytes(), 7)
    arrays = {}
    for tensor in _all(graph, 5):
        shape = list(_all(tensor, 1))
        values = np.frombuffer(_last(tensor, 9), np.float32).copy()
        arrays[_last(tensor, 8)] = torch.from_numpy(values).reshape(shape)
    nodes = [node for node in _all(graph, 1) if _last(node, 4) == b"Conv"]
    inputs = [list(_all(node, 1)) for node in nodes]
    return [(arrays[weight], arrays[bias]) for _, weight, bias in inputs]


def _all(message: bytes, wanted: int) -> Iterator:
    return (value for field, value in _fields(message) if field == wanted)


def _last(message: bytes, wanted: int) -> bytes:
    return list(_all(message, wanted))[-1]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a protocol buffer's message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        field, kind = key >> 3, key & 7
        if kind == 0:
            yield field, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield field, message[at : at + size]
        at += size
