"""What is in a bundled program (`executorch.devtools.bundled_program`): a program, and
by method the inputs of test cases with the outputs that are expected."""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import WebGPUError

# Bytes 4 to 6, of any version.
_MAGIC = b"BP"
_CLASSES = (
    "executorch.devtools.bundled_program.serialize.generated.bundled_program_flatbuffer"
)


@dataclass(frozen=True)
class TestCase:
    """One call of a method."""

    method: str
    number: int
    inputs: list[Any]
    expected: list[Any]


@dataclass(frozen=True)
class Bundle:
    """A program's bytes and its test cases."""

    program: bytes
    cases: list[TestCase]


def read(path: Path) -> Bundle:
    data = path.read_bytes()
    if data[4:6] != _MAGIC:
        raise WebGPUError(
            f"{path}: must be a bundled program, got {data[:8]!r} at its start"
        )
    try:
        root = _generated("BundledProgram").GetRootAs(data, 0)
        bundle = Bundle(root.ProgramAsNumpy().tobytes(), list(_cases(root)))
    except (struct.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise WebGPUError(
            f"{path}: the bundled program must be whole, got {len(data)} bytes that"
            f" cannot be read: {error}"
        ) from error
    if not bundle.cases:
        raise WebGPUError(f"{path}: must have test cases, got none")
    return bundle


def _cases(root: Any) -> Iterator[TestCase]:
    for suite in _tables(root, 1, "BundledMethodTestSuite"):
        for number, case in enumerate(_tables(suite, 1, "BundledMethodTestCase")):
            inputs, expected = (
                [_value(each) for each in _tables(case, field, "Value")]
                for field in (0, 1)
            )
            yield TestCase(suite.MethodName().decode(), number, inputs, expected)


def _generated(name: str) -> Any:
    """One of ExecuTorch's classes. Those that take tables out of others do not work: to
    them the names of other classes are modules."""
    module = importlib.import_module(f"{_CLASSES}.{name}")
    return getattr(module, name)


def _tables(owner: Any, field: int, name: str) -> Iterator[Any]:
    """The tables in a field, by its place in bundled_program_schema.fbs."""
    table = owner._tab
    at = table.Offset(4 + 2 * field)
    if at:
        start = table.Vector(at)
        for number in range(table.VectorLen(at)):
            found = _generated(name)()
            found.Init(table.Bytes, table.Indirect(start + 4 * number))
            yield found


def _value(value: Any) -> Any:
    union, kind = _generated("ValueUnion"), value.ValType()
    for name, get in (
        ("Tensor", _tensor),
        ("Int", lambda found: found.IntVal()),
        ("Bool", lambda found: found.BoolVal()),
        ("Double", lambda found: found.DoubleVal()),
    ):
        if kind == getattr(union, name):
            found = _generated(name)()
            found.Init(value.Val().Bytes, value.Val().Pos)
            return get(found)
    raise ValueError(f"a value must be a tensor or a number, got kind {kind}")


def _tensor(value: Any) -> Any:
    """Its bytes are in the order of its dimensions, the outermost first."""
    import torch
    from executorch.exir.scalar_type import ScalarType
    from executorch.exir.tensor import get_scalar_type

    dtype = get_scalar_type(ScalarType(value.ScalarType()))
    sizes = [value.Sizes(at) for at in range(value.SizesLength())]
    order = [value.DimOrder(at) for at in range(value.DimOrderLength())]
    order = order or list(range(len(sizes)))
    wanted = math.prod(sizes) * dtype.itemsize
    if value.DataLength() != wanted or sorted(order) != list(range(len(sizes))):
        raise ValueError(
            f"a tensor {sizes} must have {wanted} bytes, got {value.DataLength()}"
        )
    if not wanted:
        return torch.empty(sizes, dtype=dtype)
    flat = torch.from_numpy(value.DataAsNumpy().copy()).view(dtype)
    inner = flat.view([sizes[dim] for dim in order])
    return inner.permute([order.index(dim) for dim in range(len(sizes))])
