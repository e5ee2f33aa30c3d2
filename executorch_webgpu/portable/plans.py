"""Plans as a file holds them: tables over registers, as plans.fbs describes them.

Pure data. `collect.py` makes it, `serialize.py` turns it into bytes and back,
`verify.py` checks what came from a file, `at_sizes.py` makes a Plan of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.dtypes import DType, Storage
from ..plan.plan import Role

Register = int
Operation = tuple[
    str, Register, Register
]  # an operator of size_code.py on two registers


@dataclass(frozen=True)
class Symbol:
    """A size that varies: (x - offset) / divisor of an input's extent or value x."""

    name: str
    low: int
    high: int
    input: int
    dim: int  # -1: the input is an int
    divisor: int = 1
    offset: int = 0


@dataclass(frozen=True)
class Kernel:
    """A compute pipeline: its text, by lines, and how each binding is used."""

    label: str
    lines: tuple[int, ...]  # of Plans.lines
    access: tuple[str, ...]
    subgroups: bool


@dataclass(frozen=True)
class Buffer:
    """Bytes on the GPU, for all live shapes."""

    role: Role
    size: int
    key: str


@dataclass(frozen=True)
class Constant:
    """The content of a buffer: named data, each element converted as an input is."""

    buffer: int
    data_key: str
    dtype: DType
    storage: Storage
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Limit:
    """What an int input may be, as plan.Limit."""

    label: str
    add: Register
    count: Register
    length: Register


@dataclass(frozen=True)
class Port:
    """An argument of the call, as plan.Port; `wanted` is its shape for messages."""

    name: str
    is_int: bool
    buffer: int
    dtype: DType
    storage: Storage
    shape: tuple[Register, ...]
    value: Register
    limits: tuple[Limit, ...]
    wanted: str


@dataclass(frozen=True)
class Dispatch:
    """A launch: storage buffers, what is bound of them, parameters, the grid."""

    kernel: int
    buffers: tuple[int, ...]
    ranges: tuple[Register, ...]
    params: tuple[Register, ...]
    groups: tuple[Register, Register, Register]
    label: str
    call: int


@dataclass(frozen=True)
class Guard:
    """A register must be in [low, high]."""

    register: Register
    low: int
    high: int


@dataclass(frozen=True)
class Variant:
    """The dispatches, in order, for all sizes for which the guards hold."""

    guards: tuple[Guard, ...]
    dispatches: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    status: int


@dataclass(frozen=True)
class Profile:
    """What a device must have, as in Caps, and the variants that are made for it."""

    name: str
    f16: bool
    subgroups: bool
    max_storage_buffers: int
    max_binding: int
    max_buffer: int
    max_workgroups: int
    max_invocations: int
    workgroup_memory: int
    offset_align: int
    variants: tuple[Variant, ...]
    is_cpu: bool = False


@dataclass(frozen=True)
class Plans:
    """All of a delegate's plans. Registers are the symbols, the literals and the
    results of `code`, in this order."""

    symbols: tuple[Symbol, ...]
    literals: tuple[int, ...]
    code: tuple[Operation, ...]
    lines: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]
    constants: tuple[Constant, ...]
    ports: tuple[Port, ...]
    dispatches: tuple[Dispatch, ...]
    profiles: tuple[Profile, ...]
    writer: str = field(default="", compare=False)
