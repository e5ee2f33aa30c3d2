"""The C++ player on plans written by hand: what it computes, and what it refuses."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import driver
import handmade
import numpy as np
import pytest
from driver import PlayerDriver
from handmade import numbers, packed

INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INVALID_BLOB, DEVICE = 18, 16, 32, 48, 50


@pytest.fixture(params=["native", "standard", "dawn"])
def each(
    start: Callable[..., PlayerDriver], request: pytest.FixtureRequest
) -> PlayerDriver:
    """With wgpu-native's own functions, without them, and on Dawn."""
    if request.param == "dawn":
        return start(**driver.dawn())
    return start(*(["--standard"] if request.param == "standard" else []))


def test_every_size_takes_its_variant(each: PlayerDriver, good: bytes) -> None:
    """Mapped by itself where that is possible, else through a staging buffer."""
    player = each
    assert player.load(good).startswith("ok baseline on ")
    total = np.float32(0)
    for rows in (1, 16, 17, 48, 16):
        x = numbers(rows)
        y, shown = player.call(x)
        scale = 2 if rows <= 16 else 3
        np.testing.assert_allclose(y, scale * x + handmade.WEIGHTS, rtol=1e-6)
        total += x[0, 0]
        assert shown == pytest.approx(total, rel=1e-6)
    assert player.ask("reset") == "ok"
    x = numbers(3)
    assert player.call(x)[1] == x[0, 0]


def test_shapes_that_were_not_exported(player: PlayerDriver, good: bytes) -> None:
    """Each in the words that Python has for it."""
    assert player.load(good).startswith("ok")
    assert player.error(numbers(3)[:, :7]) == (
        f"error {INVALID_ARGUMENT} input x must have shape ['s0', 8] (up to [64, 8]),"
        " got [3, 7]"
    )
    assert player.error(numbers(3).reshape(-1)) == (
        f"error {INVALID_ARGUMENT} input x must have 2 dimensions, got [24]"
    )
    assert player.error(numbers(65)) == (
        f"error {INVALID_ARGUMENT} size s0 must be in [1, 64], got 65"
        " (inputs [(65, 8)])"
    )
    assert player.error(numbers(50)) == (
        f"error {INVALID_ARGUMENT} no plan for sizes s0=50: exported were s0 in [1, 64]"
    )
    player.call(numbers(5))


def test_more_shapes_than_are_kept(player: PlayerDriver, good: bytes) -> None:
    assert player.load(good, "plan_cache=2").startswith("ok")
    for rows in (1, 2, 3, 1, 2, 3):
        x = numbers(rows)
        np.testing.assert_allclose(
            player.call(x)[0], 2 * x + handmade.WEIGHTS, rtol=1e-6
        )


def test_threads(each: PlayerDriver, good: bytes) -> None:
    assert each.load(good).startswith("ok")
    # The state differs from round to round, so that only one is compared.
    assert each.race(numbers(9), 4, 1) == "ok 0 different 0 failed"


def test_constants_must_be_what_their_keys_say(
    player: PlayerDriver, good: bytes
) -> None:
    path = player.folder / "data" / handmade.key_of(handmade.WEIGHTS)
    path.write_bytes((handmade.WEIGHTS + 1).tobytes())
    answer = player.load(good)
    assert answer.startswith(f"error {INVALID_BLOB} forward: named data")
    assert "must have the content that its key is the hash of" in answer
    assert player.load(good, "verify_weights=0").startswith("ok")
    x = numbers(2)
    np.testing.assert_allclose(player.call(x)[0], 2 * x + handmade.WEIGHTS + 1, 1e-6)
    path.write_bytes(bytes(31))
    assert "must have 32 bytes, got 31" in player.load(good)
    path.unlink()
    answer = player.load(good)
    assert answer.startswith(f"error {NOT_FOUND} ")
    assert answer.endswith("must exist; is its .ptd file loaded?")


def test_keys(player: PlayerDriver) -> None:
    """Of data whose last block is full, nearly full, or has room for the length."""
    for count in (0, 1, 13, 14, 15, 16, 17, 1 << 18):
        data = np.random.default_rng(count).standard_normal(count).astype(np.float32)
        data.tofile(player.folder / "data" / "numbers")
        assert player.ask("key data/numbers") == f"ok {handmade.key_of(data)}"


def test_a_lost_device(each: PlayerDriver, good: bytes) -> None:
    player = each
    assert player.load(good).startswith("ok")
    x = numbers(3)
    before = player.call(x)
    assert player.ask("lose") == "ok"
    for answer in (player.error(x), player.error(numbers(4)), player.ask("reset")):
        assert answer.startswith(f"error {DEVICE} ")
        assert "the GPU device must be alive, got lost; load the method again" in answer
    assert player.load(good).startswith("ok")
    np.testing.assert_array_equal(player.call(x)[0], before[0])


def test_libraries_that_cannot_be_used(
    start: Callable[..., PlayerDriver], good: bytes
) -> None:
    """None, one that is something else, and a Dawn from before webgpu.h was settled."""
    pydawn = pytest.importorskip("pydawn")
    name = f"libwebgpu_dawn_{platform.machine()}.so"
    dawn = Path(pydawn.__file__).parent / "lib" / name
    for library, wanted in (
        ("/no/such/library.so", "a library must be linked or named by"),
        ("libm.so.6", "libm.so.6 must export wgpu"),
        (str(dawn), "must follow the webgpu.h of 2025 or later, got an older one"),
    ):
        answer = start(ET_WEBGPU_LIBRARY=library).load(good)
        assert answer.startswith(f"error {DEVICE} WebGPU: ")
        assert wanted in answer


def test_sections(player: PlayerDriver, fb: ModuleType, good: bytes) -> None:
    assert player.load(handmade.blob()) == (
        f"error {INVALID_BLOB} delegate must carry plans, got"
        " none; export with WebGPUPartitioner(portable=True)"
    )
    content = handmade.body(handmade.plans(fb))
    newer = player.load(handmade.blob(handmade.section(content, version=2)))
    assert "must have format 1 or older, got 2; upgrade executorch-webgpu" in newer
    damaged = bytearray(good)
    damaged[-5] ^= 1
    assert player.load(bytes(damaged)).endswith("; the file is damaged")
    for size in (0, 3, 16, 40, len(good) - 1):
        assert player.load(good[:size]).startswith(f"error {INVALID_BLOB} ")


def test_a_device_that_does_not_fit(player: PlayerDriver, fb: ModuleType) -> None:
    root = handmade.plans(fb)
    root.profiles[0].maxStorageBuffers = 10_000
    answer = player.load(packed(root))
    assert answer.startswith(f"error {NOT_SUPPORTED} ")
    assert (
        "for profile baseline, max-storage-buffers-per-shader-stage of 10000, got "
        in (answer)
    )
    second = handmade.plans(fb).profiles[0]
    second.name = "smaller"
    root.profiles.append(second)
    assert player.load(packed(root)).startswith("ok smaller on ")


def test_a_kernel_that_does_not_compile(each: PlayerDriver, fb: ModuleType) -> None:
    """What is wrong with it comes first, whoever says so."""
    root = handmade.plans(fb)
    root.lines[0] = "struct Params { count: nothing }"
    answer = each.load(packed(root))
    where = f"error {DEVICE} aten.add (call 7, kernel twice): "
    assert answer.startswith(where)
    assert "nothing" in answer.removeprefix(where)[:100]


def test_sizes_that_overflow(player: PlayerDriver, fb: ModuleType) -> None:
    root = handmade.plans(fb)
    root.literals[0] = 1 << 53
    root.ports[0].shape = [0, 0]
    root.ports[1].shape = [0, 0]
    assert player.load(packed(root)).startswith("ok")
    assert "numbers of at most 53 bits" in player.error(np.zeros((2, 2)))


def with_field(path: str, value: Any) -> Callable[[Any], None]:
    """Sets a field: 'ports.0.buffer' is that of the first port."""

    def change(root: Any) -> None:
        *way, last = path.split(".")
        for name in way:
            root = root[int(name)] if name.isdigit() else getattr(root, name)
        if last.isdigit():
            root[int(last)] = value
        else:
            assert hasattr(root, last), last
            setattr(root, last, value)

    return change


# What no plan may be: a field, and a value that it must not have.
REFUSED: list[tuple[str, Any]] = [
    ("code.0.left", 5),  # a register that is not made yet
    ("code.0.operator", 8),
    ("symbols.0.high", 1 << 31),
    ("symbols.0.name", "\x1b[31m"),
    ("literals.0", (1 << 53) + 1),
    ("symbols.0.low", 65),
    ("symbols.0.divisor", 0),
    ("symbols.0.input", 1),
    ("symbols.0.dim", 2),
    ("symbols.0.dim", -1),
    ("kernels.0.lines.0", 1000),
    ("kernels.0.access.1", 3),
    ("kernels.0.access.0", 2),
    ("kernels.0.access.0", 1),  # writes to an input
    ("kernels.0.access.1", 1),  # and to a constant
    ("kernels.0.label", "x" * 1001),
    ("kernels.0.lines", [0] * (1 << 19)),
    ("kernels.0.access", [0, 0, 1]),
    ("buffers.0.role", 6),
    ("buffers.0.role", handmade.SCRATCH),
    ("buffers.0.size", 6),
    ("buffers.0.size", 0),
    ("buffers.0.size", 1 << 30),
    ("buffers.1.size", 48),  # others may have the same constant
    ("buffers.4.key", "y"),
    ("constants.0.buffer", 9),
    ("constants.0.buffer", 0),
    ("constants.0.dtype", 7),
    ("constants.0.storage", 3),
    ("constants.0.storage", handmade.I32),
    ("constants.0.shape", [9]),
    ("constants.0.shape", [1 << 40, 1 << 40]),
    ("constants.0.shape", [1] * 17),
    ("constants", []),
    ("ports.0.buffer", 5),
    ("ports.0.buffer", -2),
    ("ports.0.buffer", 2),
    ("ports.1.buffer", -1),
    ("ports.0.dtype", 8),
    ("ports.0.shape", [0, 7]),
    ("ports.0.shape", [0] * 17),
    ("ports.3.value", 7),
    ("ports.3.dtype", handmade.FLOAT),
    ("dispatches.0.kernel", 3),
    ("dispatches.0.buffers", [0, 1]),
    ("dispatches.0.buffers", [0, 1, 5]),
    ("dispatches.0.ranges", [4, 4]),
    ("dispatches.0.params", []),
    ("dispatches.0.params.0", 7),
    ("dispatches.0.groups", [0, 3]),
    ("dispatches.0.call", 1 << 31),
    ("dispatches.0.params", [0] * 4097),
    ("dispatches.0.groups.2", 7),
    ("profiles", []),
    ("profiles.0.variants", []),
    ("profiles.0.maxStorageBuffers", 2),
    ("profiles.0.maxBuffer", 1024),
    ("profiles.0.offsetAlign", 100),
    ("profiles.0.maxWorkgroups", 0),
    ("profiles.0.maxBinding", 0),
    ("profiles.0.variants.0.dispatches", [0] * 32769),
    ("profiles.0.variants.0.guards.0.register", 7),
    ("profiles.0.variants.0.dispatches.0", 3),
    ("profiles.0.variants.1.inputs", []),
    ("profiles.0.variants.0.inputs", [4]),
    ("profiles.0.variants.0.inputs", [0, 0]),
    ("profiles.0.variants.0.status", 5),
    ("profiles.0.variants.0.status", 0),
]


@pytest.mark.parametrize(("path", "value"), REFUSED)
def test_what_is_refused_at_load(
    player: PlayerDriver, fb: ModuleType, path: str, value: Any
) -> None:
    root = handmade.plans(fb)
    with_field(path, value)(root)
    assert player.load(packed(root)).startswith(f"error {INVALID_BLOB} ")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("literals.2", -1, "workgroups must be from 0 to 65535, got -1"),
        ("literals.2", 65536, "workgroups must be from 0 to 65535, got 65536"),
        ("literals.3", 1 << 32, "a parameter must fit 32 bits, got 4294967296"),
        ("literals.3", -(1 << 31) - 1, "a parameter must fit 32 bits, got -2147483649"),
        ("dispatches.0.ranges", [3] * 6, "an offset must be a multiple of 256"),
        ("dispatches.0.ranges", [4, 3] * 3, "a range must be a multiple of 4"),
        ("ports.1.shape", [2, 2], "y must fit a buffer of 2048 bytes, got 16384"),
    ],
)
def test_what_is_refused_when_shapes_are_known(
    player: PlayerDriver, fb: ModuleType, path: str, value: Any, message: str
) -> None:
    root = handmade.plans(fb)
    with_field(path, value)(root)
    assert player.load(packed(root)).startswith("ok")
    answer = player.error(numbers(2))
    assert answer.startswith(f"error {INVALID_BLOB} ")
    assert message in answer


def spoiled_blobs(fb: ModuleType) -> Iterator[bytes]:
    """With some bytes replaced at random, the same ones every time."""
    content = handmade.body(handmade.plans(fb))
    draw = random.Random(0)
    for _ in range(400):
        spoiled = bytearray(content)
        for _ in range(draw.choice((1, 1, 4))):
            at = draw.randrange(len(spoiled))
            spoiled[at] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        yield handmade.blob(handmade.section(bytes(spoiled)))


def test_bytes_at_random(player: PlayerDriver, fb: ModuleType) -> None:
    """Whatever is in the file, the player says what is wrong, or plays it."""
    draw = random.Random(0)
    for content in spoiled_blobs(fb):
        if player.load(content).startswith("ok"):
            player.error(numbers(draw.choice((1, 16, 17))))


def test_texts_are_utf8(player: PlayerDriver, fb: ModuleType) -> None:
    """wgpu takes a kernel's text for UTF-8 without looking."""
    content = handmade.body(handmade.plans(fb))
    for bad in (b"\xff", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"):
        spoiled = content.replace(b"struct Params {", bad.ljust(15), 1)
        answer = player.load(handmade.blob(handmade.section(spoiled)))
        assert "a text that is not UTF-8" in answer
    fine = content.replace(b"// total and", "// ö€𝛑".encode(), 1)
    assert player.load(handmade.blob(handmade.section(fine))).startswith("ok")
