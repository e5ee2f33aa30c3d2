"""What is in a .pte: methods, their arguments, delegates of ours, and what is left to
the CPU. Nothing is loaded or planned here."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _shim
from ..errors import InvalidInput, WebGPUError

# Of ExecuTorch's own ops on sizes, which every player computes itself.
SCALARS = ("executorch_prim::", "aten::sym_", "aten::_local_scalar_dense")
# Bytes 4 to 8 of a program, of any version.
_MAGIC = b"ET"


@dataclass(frozen=True)
class Method:
    """A method as the file has it; arguments are indices of `values`."""

    name: str
    values: list[Any]
    inputs: list[int]
    outputs: list[int]
    blobs: list[bytes]  # of our delegates
    calls: list[list[int]]  # the arguments of each of them
    instructions: list[int]  # that call them, by their index in the method
    others: list[str]  # the names of other backends' delegates
    cpu_ops: list[str]

    @property
    def computed_on_cpu(self) -> list[str]:
        """The ops on the CPU that are more than integers made of sizes."""
        return [op for op in self.cpu_ops if not op.startswith(SCALARS)]


def read(path: Path) -> bytes:
    data = path.read_bytes()
    if data[4:6] != _MAGIC:
        raise WebGPUError(
            f"{path}: must be an ExecuTorch program, got {data[:8]!r} at its start"
        )
    return data


def methods(program: bytes) -> Iterator[Method]:
    """The methods of a program that compute something."""
    from executorch.exir.schema import DelegateCall, KernelCall

    content = _content(program)
    for plan in content.execution_plan:
        steps = [i.instr_args for chain in plan.chains for i in chain.instructions]
        kernels = [s for s in steps if isinstance(s, KernelCall)]
        ops = [plan.operators[call.op_index] for call in kernels]
        ours = [
            index
            for index, delegate in enumerate(plan.delegates)
            if delegate.id == _shim.BACKEND_ID
        ]
        calls = {
            step.delegate_index: list(step.args)
            for step in steps
            if isinstance(step, DelegateCall)
        }
        at = {
            step.delegate_index: number
            for number, step in enumerate(steps)
            if isinstance(step, DelegateCall)
        }
        processed = [plan.delegates[index].processed.index for index in ours]
        yield Method(
            name=plan.name,
            values=[value.val for value in plan.values],
            inputs=list(plan.inputs),
            outputs=list(plan.outputs),
            blobs=[content.backend_delegate_data[at].data for at in processed],
            calls=[calls.get(index, []) for index in ours],
            instructions=[at.get(index, -1) for index in ours],
            others=sorted({d.id for d in plan.delegates if d.id != _shim.BACKEND_ID}),
            cpu_ops=sorted({f"{op.name}.{op.overload}".rstrip(".") for op in ops}),
        )


def find_method(program: bytes, name: str) -> Method:
    found = {each.name: each for each in methods(program)}
    if name not in found:
        raise InvalidInput(f"--method: must be one of {', '.join(found)}, got {name}")
    return found[name]


def delegates(program: bytes) -> list[tuple[str, bytes]]:
    """The bytes of our delegates in a program, with their methods' names."""
    return [(each.name, blob) for each in methods(program) for blob in each.blobs]


def cpu_ops(program: bytes) -> dict[str, list[str]]:
    """By method, the ops of a program that no delegate computes."""
    return {each.name: each.cpu_ops for each in methods(program)}


def is_static(value: Any) -> bool:
    """Whether a tensor in a file has its sizes in every call, or those at most."""
    from executorch.exir.schema import TensorShapeDynamism

    return bool(value.shape_dynamism == TensorShapeDynamism.STATIC)


def file_shape(value: Any) -> list[int | str]:
    """The sizes of a tensor, as the file has them."""
    return [size if is_static(value) else f"up to {size}" for size in value.sizes]


def torch_dtype(value: Any) -> Any:
    """The type of a tensor in a file, as torch has it."""
    from executorch.exir.tensor import get_scalar_type

    return get_scalar_type(value.scalar_type)


def type_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _content(program: bytes) -> Any:
    from executorch.exir._serialize._program import deserialize_pte_binary

    try:
        return deserialize_pte_binary(program).program
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise WebGPUError(
            f"the program must be whole, got {len(program)} bytes of which ExecuTorch"
            f" reads none: {error}"
        ) from error
