"""Plans written by hand, field by field, so that a test can spoil any of them.

Independent of the package's own writer: the schema's code is generated for the tests.
The program is y = scale * x + w for x of shape [s0, 8], with s0 from 1 to 64, and
total += x[0] for a state that is returned too. A variant with scale 2 serves s0 up to
16, one with scale 3 from 17 to 48; for more there is none.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import flatbuffers
import numpy as np

F32, I32 = 0, 2
FLOAT, LONG = 6, 4
CONSTANT, STATE, INPUT, OUTPUT, SCRATCH, STATUS = range(6)
ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO, CEIL_DIVIDE, LESS, EQUAL = range(8)

WEIGHTS = np.arange(8, dtype=np.float32) / 8

_KERNEL = """\
struct Params { count: u32, a: u32, b: u32, c: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  if (at.x < p.count) {
    y[at.x] = SCALE * x[at.x] + w[at.x % 8];
  }
}"""

_TOTAL = """\
// total and a little more
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> total: array<f32>;
@group(0) @binding(2) var<storage, read_write> shown: array<f32>;
@compute @workgroup_size(1)
fn main() {
  total[0] += x[0];
  shown[0] = total[0];
}"""


def key_of(data: np.ndarray) -> str:
    head = f"torch.{data.dtype}{data.shape}".encode()
    return f"webgpu_{hashlib.sha256(head + data.tobytes()).hexdigest()[:32]}"


def made(cls: Any, **fields: Any) -> Any:
    """An object of the generated API; a name that is none is an error."""
    table = cls()
    for name, value in fields.items():
        assert hasattr(table, name), name
        setattr(table, name, value)
    return table


def plans(fb: ModuleType) -> Any:
    """The program as objects of the generated code."""
    lines: dict[str, int] = {}

    def kernel(label: str, text: str, access: list[int]) -> Any:
        numbers = [lines.setdefault(line, len(lines)) for line in text.split("\n")]
        return made(fb.KernelT, label=label, lines=numbers, access=access)

    kernels = [
        kernel("twice", _KERNEL.replace("SCALE", "2.0"), [0, 0, 1, 2]),
        kernel("thrice", _KERNEL.replace("SCALE", "3.0"), [0, 0, 1, 2]),
        kernel("total", _TOTAL, [0, 1, 1]),
    ]
    # Registers: s0; 8, 64, 1, 0; then s0 * 8 and its ceiling.
    eight, sixty_four, one, zero, count, groups = range(1, 7)
    buffers = [
        made(fb.BufferT, role=INPUT, size=64 * 8 * 4, key="x"),
        made(fb.BufferT, role=CONSTANT, size=32, key="w"),
        made(fb.BufferT, role=OUTPUT, size=64 * 8 * 4, key="y"),
        made(fb.BufferT, role=STATE, size=4, key="total"),
        made(fb.BufferT, role=OUTPUT, size=4, key="shown"),
    ]
    constant = made(
        fb.ConstantT,
        buffer=1,
        dataKey=key_of(WEIGHTS),
        dtype=FLOAT,
        storage=F32,
        shape=[8],
    )
    ports = [
        made(
            fb.PortT,
            name="x",
            buffer=0,
            dtype=FLOAT,
            storage=F32,
            shape=[0, eight],
            wanted="['s0', 8] (up to [64, 8])",
        ),
        made(fb.PortT, name="y", buffer=2, dtype=FLOAT, storage=F32, shape=[0, eight]),
        made(fb.PortT, name="shown", buffer=4, dtype=FLOAT, storage=F32, shape=[]),
        made(fb.PortT, name="rows", isInt=True, dtype=LONG, storage=I32, value=0),
    ]
    dispatches = [
        made(
            fb.DispatchT,
            kernel=each,
            buffers=[0, 1, 2],
            params=[count, zero, zero, zero],
            groups=[groups, one, one],
            label="aten.add",
            call=7,
        )
        for each in (0, 1)
    ]
    dispatches.append(
        made(
            fb.DispatchT,
            kernel=2,
            buffers=[0, 3, 4],
            groups=[one, one, one],
            label="aten.sum",
            call=8,
        )
    )
    variants = [
        made(
            fb.VariantT,
            guards=[made(fb.GuardT, register=0, low=low, high=high)],
            dispatches=[each, 2],
            inputs=[0],
            outputs=[1, 2, 3],
            status=-1,
        )
        for each, low, high in ((0, 1, 16), (1, 17, 48))
    ]
    profile = made(
        fb.ProfileT,
        name="baseline",
        maxStorageBuffers=8,
        maxBinding=128 << 20,
        maxBuffer=256 << 20,
        maxWorkgroups=65535,
        maxInvocations=256,
        workgroupMemory=16 << 10,
        offsetAlign=256,
        variants=variants,
    )
    symbol = made(fb.SymbolT, name="s0", low=1, high=64, input=0, dim=0)
    code = [
        made(fb.InstructionT, operator=MULTIPLY, left=0, right=eight),
        made(fb.InstructionT, operator=CEIL_DIVIDE, left=count, right=sixty_four),
    ]
    return made(
        fb.PlansT,
        format=1,
        writer="test",
        symbols=[symbol],
        literals=[8, 64, 1, 0],
        code=code,
        lines=list(lines),
        kernels=kernels,
        buffers=buffers,
        constants=[constant],
        ports=ports,
        dispatches=dispatches,
        profiles=[profile],
    )


def body(root: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(root.Pack(builder), file_identifier=b"EWP1")
    return bytes(builder.Output())


def section(content: bytes, version: int = 1) -> bytes:
    head = struct.pack("<4sIII", b"EWGP", version, len(content), zlib.crc32(content))
    return head + content


def blob(*sections: bytes) -> bytes:
    """The delegate's bytes: a graph, which a player skips, and what follows."""
    graph = b"not a graph"
    whole = struct.pack("<4sIII", b"EWGB", 1, len(graph), zlib.crc32(graph)) + graph
    for each in sections:
        whole += bytes(-len(whole) % 16) + each
    return whole


def write_data(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / key_of(WEIGHTS)).write_bytes(WEIGHTS.tobytes())


def packed(root: Any) -> bytes:
    """A delegate's bytes, with these plans."""
    return blob(section(body(root)))


def numbers(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
