"""Plan: everything the GPU does for one set of live shapes, as pure data.

`planner.py` makes plans; the C++ replay and, as the reference player,
`runtime/executor.py` run them. No wgpu object is in here, so a plan can be printed,
compared, counted and tested without a GPU. Buffers are referred to by their index in
`Plan.buffers`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from ..ir.dtypes import DType, Storage

# Every dispatch's parameters start at a multiple of this, which is the largest
# offset alignment that WebGPU allows an adapter to ask for.
PARAMS_ALIGN = 256


class Role(enum.Enum):
    """What a buffer is for, which decides its lifetime."""

    CONSTANT = "constant"  # shared by all delegates that name the same data
    STATE = "state"  # owned by one delegate, lives across calls
    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"  # shared by stores whose live ranges do not overlap
    PARAMS = "params"  # all dispatches' uniforms, one buffer
    STATUS = "status"  # four u32 in which a kernel reports what it cannot use


@dataclass(frozen=True)
class Buffer:
    """Bytes on the GPU; `size` is for the upper bound of all shapes."""

    role: Role
    size: int
    # CONSTANT: what the content is (data key and packing), so that equal content
    # is uploaded once. STATE: the buffer's name. Others: a stable slot name.
    key: str


# A strided view: shape, strides and offset, in elements.
View = tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True)
class Part:
    """Named data that holds elements of a constant as kernels of GPUs bind them: those
    of a view (None: all), as a packing lays them out."""

    data_key: str
    dtype: DType
    shape: tuple[int, ...]
    view: View | None
    packing: str
    packing_args: tuple[int, ...]


@dataclass(frozen=True)
class Constant:
    """How to fill a CONSTANT or STATE buffer, once, at load."""

    buffer: int
    data_key: str  # "" means zeros
    dtype: DType
    storage: Storage
    shape: tuple[int, ...]
    # A strided view of the data and a named host packing, applied in this order;
    # an empty packing means the view's elements in row-major order.
    view: View | None = None
    packing: str = ""
    packing_args: tuple[int, ...] = ()
    # What the data is made of, if the file holds it in parts; the key then names all.
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """One kernel to compile: its whole WGSL text and how each binding is used."""

    label: str
    wgsl: str
    # In binding order: "read", "write" (read_write storage) or "uniform".
    access: tuple[str, ...]


@dataclass(frozen=True)
class Dispatch:
    """One launch of a pipeline: its buffers in binding order, and the grid."""

    pipeline: int
    buffers: tuple[int, ...]
    params: int  # offset in Plan.params of the uniform binding; -1 if there is none
    params_size: int
    groups: tuple[int, int, int]
    label: str  # the op, for messages
    call: int  # index of the op call in the graph, for messages
    # Bytes (offset, size) to bind of each storage buffer, where that is not all of
    # every one: an adapter may have larger buffers than it can bind.
    ranges: tuple[tuple[int, int] | None, ...] = ()

    def bound(self, binding: int, size: int) -> tuple[int, int]:
        """Offset and size of what is bound of a storage buffer of `size` bytes."""
        found = self.ranges[binding] if self.ranges else None
        return (0, size) if found is None else found


class PortKind(enum.Enum):
    """What ExecuTorch passes for an argument of the delegate."""

    TENSOR = "tensor"
    INT = "int"  # a SymInt; its buffer, if any, holds one i32


@dataclass(frozen=True)
class Limit:
    """What an INT input may be: the `count` positions from its value plus `add` on must
    all be in [0, length)."""

    label: str  # the op, for messages
    add: int
    count: int
    length: int


@dataclass(frozen=True)
class Port:
    """One argument of the delegate call and the buffer it is copied to or from.

    The buffer is an INPUT's or an OUTPUT's, which the host may be able to map.
    `shape` is the live shape; elements are in the buffer in the order of the host's
    memory (a channels_last tensor's too), so copying never permutes.
    """

    name: str
    kind: PortKind
    buffer: int  # -1: only its shape or value matters, nothing is copied
    dtype: DType
    storage: Storage
    shape: tuple[int, ...]
    value: int = 0  # of an output that is an INT: it follows from the live shapes
    # Of an input that is an INT. The host compares, before anything is submitted.
    limits: tuple[Limit, ...] = ()

    @property
    def numel(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """Bytes in the GPU buffer, rounded up to four: WebGPU copies whole words."""
        return -(-self.numel * self.storage.size // 4) * 4


@dataclass(frozen=True)
class StoredValue:
    """Where the result of an op call is, when the dispatch `after` is done and before
    the next: a later one may use the buffer again."""

    name: str  # as it is logged
    call: int
    after: int  # index of a dispatch
    buffer: int
    dtype: DType
    storage: Storage
    view: View


@dataclass(frozen=True)
class Choice:
    """The forms among which an op function chose, and the chosen one."""

    key: str  # kernel, class of shapes and types
    names: tuple[str, ...]
    chosen: str
    call: int  # index of the op call in the graph


@dataclass(frozen=True)
class Plan:
    """Buffers, pipelines and dispatches, in order, with the arguments of the call."""

    buffers: tuple[Buffer, ...]
    constants: tuple[Constant, ...]
    pipelines: tuple[Pipeline, ...]
    dispatches: tuple[Dispatch, ...]
    params: bytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    status: int = -1  # index of the STATUS buffer, -1 if no kernel reports
    scratch_bytes: int = 0  # largest sum of scratch stores that are live at once
    symbols: dict[str, int] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    # Parameters that depend on sizes, if these were traced (`variants.py`): the
    # offset of the word in `params`, and the size.
    sizes: tuple[tuple[int, int], ...] = ()
    # Results of calls, and of each dispatch the bytes of the tensors that it reads and
    # writes, each once; only if they were asked for.
    values: tuple[StoredValue, ...] = ()
    traffic: tuple[int, ...] = ()

    def __str__(self) -> str:
        lines = [f"buffers ({sum(b.size for b in self.buffers)} bytes):"]
        for index, buffer in enumerate(self.buffers):
            lines.append(
                f"  b{index:<4} {buffer.role.value:<9}{buffer.size:>12}  {buffer.key}"
            )
        for title, ports in (("inputs", self.inputs), ("outputs", self.outputs)):
            lines.append(f"{title}:")
            for port in ports:
                lines.append(
                    f"  {port.name}: {port.kind.value} {port.dtype.label}"
                    f" {list(port.shape)} b{port.buffer}"
                )
        lines.append(f"dispatches ({len(self.dispatches)}):")
        for index, dispatch in enumerate(self.dispatches):
            buffers = " ".join(
                _bound_text(dispatch, k) for k in range(len(dispatch.buffers))
            )
            groups = "x".join(map(str, dispatch.groups))
            kernel = self.pipelines[dispatch.pipeline].label
            lines.append(
                f"  {index:>4} {dispatch.label:<36} {kernel} [{groups}] {buffers}"
            )
        if self.choices:
            lines.append("forms:")
        for choice in self.choices:
            names = ", ".join(choice.names)
            lines.append(f"  {choice.key}: {choice.chosen} of {names}")
        return "\n".join(lines)


def _bound_text(dispatch: Dispatch, binding: int) -> str:
    """The name of a bound buffer, with the range of bytes if it is not all."""
    name = f"b{dispatch.buffers[binding]}"
    found = dispatch.ranges[binding] if binding < len(dispatch.ranges) else None
    return name if found is None else f"{name}[{found[0]}:{sum(found)}]"
