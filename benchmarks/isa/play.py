"""One wave's way through a kernel: how often each block of its machine code runs.

Enters: a kernel, and what is bound to it (sizes, and the content of uniforms). Leaves:
the blocks that the first wave of the first workgroup runs, in order. Registers that
branches depend on are computed as the GPU would compute them. What comes out of tensors
and of workgroup memory is unknown: a branch of lanes that depends on it is taken by
every second lane, so that both sides run; one of the whole wave is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from . import alu
from .alu import Lanes
from .kernel import Instruction, Kernel, classify

MAX_BLOCKS = 200_000  # a wave that runs more has lost its way


class Uncountable(Exception):
    """A branch depends on something that the player does not know."""


@dataclass(frozen=True)
class Launch:
    """What a dispatch gives to its first wave."""

    threads: tuple[int, int, int]  # of a workgroup
    groups: tuple[int, int, int]
    bindings: tuple[tuple[int, bytes], ...]  # size, and the content of small ones
    uses_grid: bool  # the kernel asks for the number of workgroups
    wave: int  # lanes
    packs_ids: bool  # local ids are in one register, ten bits each (GFX11)
    loads_grid: bool  # the number of workgroups is behind a pointer (GFX9)


# Addresses of what RADV passes by pointer, and of what is bound. Descriptor sets are in
# the 4 GiB that the driver reserves for them, and a set's pointer is its low half.
_HIGH = 0xFFFF8000
_SET, _GRID, _BUFFER = 0x10000, 0x20000, 0x100
_VCC, _EXEC = 106, 126
_SPECIAL = {
    "vcc": _VCC,
    "vcc_lo": _VCC,
    "vcc_hi": _VCC + 1,
    "m0": 124,
    "exec": _EXEC,
    "exec_lo": _EXEC,
    "exec_hi": _EXEC + 1,
}
_NULL = 125
_WORD = 0xFFFFFFFF
_EVERY_SECOND = 0x5555555555555555


@dataclass(frozen=True)
class Operand:
    """A register (s or v) and how many words of it, or a constant (c)."""

    file: str
    index: int
    words: int = 1


@cache
def operand(text: str) -> Operand:
    """As the disassembler writes it; an operand that is none of ours is unknown (?)."""
    text = text.strip()
    if text in _SPECIAL:
        return Operand("s", _SPECIAL[text], 2 if text in ("vcc", "exec") else 1)
    if text == "null":
        return Operand("s", _NULL)
    if text in ("src_scc", "scc"):
        return Operand("scc", 0)
    if found := re.fullmatch(r"([sv])\[(\d+):(\d+)\]", text):
        first, last = int(found[2]), int(found[3])
        return Operand(found[1], first, last - first + 1)
    if found := re.fullmatch(r"([sv])(\d+)", text):
        return Operand(found[1], int(found[2]))
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        return Operand("c", int(text, 0))
    if re.fullmatch(r"-?\d+\.\d+", text):
        return Operand("c", int(struct.unpack("<I", struct.pack("<f", float(text)))[0]))
    return Operand("?", 0)


_MODIFIERS = re.compile(r"\s+(?:[a-z_0-9]+:\S+|clamp|glc|slc|dlc|offen|idxen)\b.*$")


@cache
def operands(text: str) -> tuple[Operand, ...]:
    """Without modifiers, which the last operand would carry."""
    parts = re.split(r",\s*(?![^\[]*\])", _MODIFIERS.sub("", text))
    return tuple(operand(part) for part in parts if part)


class Wave:
    """The registers of one wave. A register that is None is unknown."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.lanes = launch.wave
        self.full = (1 << self.lanes) - 1
        self.scc: int | None = 0
        # Workgroup ids are zero, and so is the wave's place in the workgroup.
        self.s: list[int | None] = [0] * 128
        self._exec: int | None = 0
        self.s[2] = _SET
        if launch.uses_grid and launch.loads_grid:
            self.s[3:5] = [_GRID, _HIGH]
        elif launch.uses_grid:
            self.s[3:6] = list(launch.groups)
        width, height, depth = launch.threads
        thread = np.arange(self.lanes, dtype=np.uint32)
        wide, high = np.uint32(width), np.uint32(height)
        x, y, z = thread % wide, thread // wide % high, thread // (wide * high)
        self.v: dict[int, Lanes | None] = {0: x, 1: y, 2: z}
        if launch.packs_ids:
            self.v = {0: x | y << np.uint32(10) | z << np.uint32(20)}
        active = min(self.lanes, width * height * depth)
        self.write_scalar(Operand("s", _EXEC, 2), (1 << active) - 1)

    @property
    def exec(self) -> int:
        if self._exec is None:
            raise Uncountable("the mask of active lanes depends on unknown data")
        return self._exec

    def scalar(self, source: Operand) -> int | None:
        """A scalar operand as an unsigned integer of its size."""
        if source.file == "c":
            return source.index
        if source.file == "scc":
            return self.scc
        if source.file != "s":
            return None
        if source.index == _NULL:
            return 0
        total = 0
        for word in range(source.words):
            part = self.s[source.index + word]
            if part is None:
                return None
            total |= part << 32 * word
        return total

    def lane_values(self, source: Operand) -> Lanes | None:
        if source.file == "v":
            return self.v.get(source.index)
        value = self.scalar(source)
        if value is None:
            return None
        return _everywhere(value & _WORD, self.lanes)

    def write_scalar(self, target: Operand, value: int | None) -> None:
        if target.index == _NULL:
            return
        for word in range(target.words):
            part = None if value is None else value >> 32 * word & _WORD
            self.s[target.index + word] = part
        if target.index >= _EXEC:
            low, high = self.s[_EXEC], self.s[_EXEC + 1]
            is_known = low is not None and high is not None
            self._exec = (high << 32 | low) & self.full if is_known else None  # type: ignore[operator]

    def write_lanes(self, target: Operand, value: Lanes | None) -> None:
        """Active lanes only. What was unknown in the others is not asked for again."""
        if value is not None and self.exec != self.full:
            old = self.v.get(target.index)
            rest = np.zeros(self.lanes, np.uint32) if old is None else old
            value = np.where(_mask(self.exec, self.lanes), value, rest)
        self.v[target.index] = value

    def load(self, address: int, size: int) -> int | None:
        """Little-endian; None if nobody knows what is there."""
        high, low = address >> 32, address & _WORD
        if high == _HIGH and low >= _GRID:
            content = struct.pack("<3I", *self.launch.groups)[low - _GRID :]
        elif high == _HIGH:
            content = self._descriptors()[low - _SET :]
        else:
            content = self.buffer(high)[low:]
        return (
            int.from_bytes(content[:size], "little") if len(content) >= size else None
        )

    def buffer(self, high: int) -> bytes:
        """A buffer's content, as far as it is known, by the high word of addresses."""
        index, bindings = high - _BUFFER, self.launch.bindings
        return bindings[index][1] if 0 <= index < len(bindings) else b""

    def _descriptors(self) -> bytes:
        """Of set 0: base, size and format, which nobody looks at."""
        return b"".join(
            struct.pack("<4I", 0, _BUFFER + index, size, 0)
            for index, (size, _) in enumerate(self.launch.bindings)
        )


@lru_cache(1 << 14)
def _everywhere(value: int, lanes: int) -> Lanes:
    made = np.full(lanes, value, np.uint32)
    made.flags.writeable = False
    return made


@lru_cache(1 << 14)
def _mask(bits: int, lanes: int) -> NDArray[np.bool_]:
    return (np.array([bits >> lane & 1 for lane in range(lanes)])).astype(bool)


def _bits(mask: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


_Action = Callable[[Wave], None]


def _branch_taken(name: str, wave: Wave) -> bool:
    kind = name.removeprefix("s_cbranch_")
    if name == "s_branch":
        return True
    if kind in ("execz", "execnz"):
        return (wave.exec == 0) == (kind == "execz")
    code = wave.scc
    if kind in ("vccz", "vccnz"):
        vcc = wave.scalar(Operand("s", _VCC, 2))
        code = None if vcc is None else int((vcc & wave.full) != 0)
    if code is None:
        raise Uncountable(f"{name} depends on unknown data")
    return bool(code) == kind.endswith(("1", "nz"))


_SCALAR = re.compile(r"s_(?P<name>\w+?)_(?P<kind>[biu])(?P<bits>\d+)(?:_[biu]\d+)?$")


def _scalar(instruction: Instruction) -> _Action | None:
    """What a scalar instruction does; None if that is not known."""
    target, *sources = operands(instruction.operands)
    found = _SCALAR.match(instruction.name)
    if not found:
        return None
    name, kind, bits = found["name"], found["kind"], int(found["bits"])
    if name.startswith(("cmp_", "cmpk_")):
        how = name.split("_")[1]
        return lambda wave: _compare_scalar(wave, how, kind, bits, target, sources[0])
    if name.endswith("_saveexec"):
        how = name.removesuffix("_saveexec")
        return lambda wave: _save_exec(wave, how, bits, target, sources[0])
    if name == "cselect":
        return lambda wave: _select_scalar(wave, bits, target, sources)
    if name in ("movk", "addk", "mulk"):
        name = name[:-1]
        short = Operand("c", alu.signed(sources[0].index & 0xFFFF, 16))
        sources = [short] if name == "mov" else [target, short]
    if alu.scalar_function(name) is None:
        return None
    # The operand's type, which is the first of two: bcnt1_i32_b64, sext_i32_i8.
    if name in ("bcnt1", "sext", "pack_ll", "pack_lh", "pack_hh"):
        bits = int(instruction.name[-2:].strip("i")) if name == "sext" else 64
        bits = 32 if name.startswith("pack") else bits
    return lambda wave: _compute_scalar(wave, name, kind, bits, target, sources)


def _select_scalar(
    wave: Wave, bits: int, target: Operand, sources: Sequence[Operand]
) -> None:
    chosen = None if wave.scc is None else _cut(wave, sources[1 - wave.scc], bits)
    wave.write_scalar(target, chosen)


def _cut(wave: Wave, source: Operand, bits: int) -> int | None:
    value = wave.scalar(source)
    return None if value is None else value & ((1 << bits) - 1)


def _compare_scalar(
    wave: Wave, how: str, kind: str, bits: int, a: Operand, b: Operand
) -> None:
    left, right = _cut(wave, a, bits), _cut(wave, b, bits)
    wave.scc = None
    if left is not None and right is not None:
        wave.scc = alu.compare_scalar(how, kind, left, right, bits)


def _save_exec(
    wave: Wave, how: str, bits: int, target: Operand, source: Operand
) -> None:
    value, before = _cut(wave, source, bits), wave.exec
    if value is None:
        raise Uncountable("the mask of active lanes depends on unknown data")
    result, _ = alu.scalar(how, "b", bits, [value, before])
    wave.write_scalar(target, before)
    wave.write_scalar(Operand("s", _EXEC, 2), result & wave.full)
    wave.scc = int(wave.exec != 0)


def _compute_scalar(
    wave: Wave,
    name: str,
    kind: str,
    bits: int,
    target: Operand,
    sources: Sequence[Operand],
) -> None:
    values = [_cut(wave, source, bits) for source in sources]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        wave.write_scalar(target, None)
        if name not in alu.KEEP_CODE:
            wave.scc = None
        return
    result, code = alu.scalar(name, kind, bits, known)
    wave.write_scalar(target, result)
    if code is not None:
        wave.scc = code


def _scalar_load(instruction: Instruction) -> _Action:
    target, base, *offsets = operands(instruction.operands)
    added = re.search(r"offset:(0x[0-9a-f]+|\d+)", instruction.operands)
    fixed = int(added[1], 0) if added else 0

    def act(wave: Wave) -> None:
        # A buffer's descriptor begins with its base, of 48 bits, as a pointer does.
        start = wave.scalar(Operand("s", base.index, 2))
        moved = [wave.scalar(offset) for offset in offsets]
        for word in range(target.words):
            value = None
            if start is not None and None not in moved:
                address = start + sum(filter(None, moved)) + fixed
                value = wave.load(address + 4 * word, 4)
            wave.write_scalar(Operand("s", target.index + word), value)

    return act


_VECTOR = re.compile(r"v_(?:dual_)?(?P<name>\w+?)(?:_e32|_e64)?$")
_COMPARE = re.compile(r"cmp(?P<x>x?)_(?P<how>[a-z]+)_(?P<kind>[a-z]\d+)$")
# Sums with a carry in a mask of lanes: is it a difference, and are operands swapped?
_CARRY = {
    "add_co_u32": (False, False),
    "add_co_ci_u32": (False, False),
    "addc_co_u32": (False, False),
    "sub_co_u32": (True, False),
    "sub_co_ci_u32": (True, False),
    "subb_co_u32": (True, False),
    "subrev_co_u32": (True, True),
    "subrev_co_ci_u32": (True, True),
    "subbrev_co_u32": (True, True),
}


def _vector(instruction: Instruction) -> _Action | None:
    """What a vector instruction does; None if that is not known."""
    found = _VECTOR.match(instruction.name)
    name = found["name"] if found else ""
    given = operands(instruction.operands)
    if comparison := _COMPARE.match(name):
        return _compare(comparison, given)
    if name in _CARRY:
        return lambda wave: _add_with_carry(wave, *_CARRY[name], given)
    if name == "cndmask_b32":
        return lambda wave: _select(wave, given)
    if name in ("readfirstlane_b32", "readlane_b32"):
        return lambda wave: _read_lane(wave, given)
    if name.startswith("mbcnt"):
        return lambda wave: _count_below(wave, "hi" in name, given)
    if name == "lshrrev_b64" and given[1].file == given[2].file == "c":
        return lambda wave: _move_wide(wave, given)
    target, *sources = given
    function = alu.vector_function(name)
    is_plain = all(source.file != "?" for source in sources)
    # A modifier of a known function: what it does is not known.
    if function is None or not is_plain or ":" in _after_registers(instruction):
        return None

    def act(wave: Wave) -> None:
        values = [wave.lane_values(source) for source in sources]
        known = [value for value in values if value is not None]
        is_known = len(known) == len(values)
        wave.write_lanes(target, function(*known) if is_known else None)

    return act


def _after_registers(instruction: Instruction) -> str:
    return re.sub(r"\[\d+:\d+\]", "", instruction.operands)


def _compare(found: re.Match[str], given: Sequence[Operand]) -> _Action:
    *targets, a, b = given

    def act(wave: Wave) -> None:
        left, right = wave.lane_values(a), wave.lane_values(b)
        mask = None
        if left is not None and right is not None:
            mask = alu.compare_lanes(found["how"], found["kind"], left, right)
        result = (_EVERY_SECOND if mask is None else _bits(mask)) & wave.exec
        for target in targets or ([] if found["x"] else [Operand("s", _VCC, 2)]):
            wave.write_scalar(target, result)
        if found["x"]:
            wave.write_scalar(Operand("s", _EXEC, 2), result)

    return act


def _add_with_carry(
    wave: Wave, is_difference: bool, is_swapped: bool, given: Sequence[Operand]
) -> None:
    target, carry_out, a, b = given[:4]
    if is_swapped:
        a, b = b, a
    left, right = wave.lane_values(a), wave.lane_values(b)
    carry = wave.scalar(given[4]) if len(given) > 4 else 0
    if left is None or right is None or carry is None:
        wave.write_lanes(target, None)
        wave.write_scalar(carry_out, None)
        return
    wide = right.astype(np.int64) + _mask(carry & wave.full, wave.lanes)
    exact = left.astype(np.int64) + (-wide if is_difference else wide)
    beyond = (exact < 0) | (exact > _WORD)
    wave.write_lanes(target, exact.astype(np.uint32))
    wave.write_scalar(carry_out, _bits(beyond) & wave.exec)


def _select(wave: Wave, given: Sequence[Operand]) -> None:
    target, a, b, *masks = given
    values = [wave.lane_values(a), wave.lane_values(b)]
    mask = wave.scalar(masks[0] if masks else Operand("s", _VCC, 2))
    if values[0] is None or values[1] is None or mask is None:
        wave.write_lanes(target, None)
        return
    chosen = _mask(mask & wave.full, wave.lanes)
    wave.write_lanes(target, np.where(chosen, values[1], values[0]))


def _read_lane(wave: Wave, given: Sequence[Operand]) -> None:
    target, source, *lanes = given
    values = wave.lane_values(source)
    active = wave.exec
    lane = (active & -active).bit_length() - 1 if active else 0
    asked = wave.scalar(lanes[0]) if lanes else lane
    is_known = values is not None and asked is not None
    wave.write_scalar(target, int(values[asked % wave.lanes]) if is_known else None)  # type: ignore[index,operator]


def _move_wide(wave: Wave, given: Sequence[Operand]) -> None:
    """A shift of a constant, which is how two registers are set at once."""
    target, shift, source = given
    value = (source.index & (1 << 64) - 1) >> shift.index
    for word in range(2):
        part = _everywhere(value >> 32 * word & _WORD, wave.lanes)
        wave.write_lanes(Operand("v", target.index + word), part)


def _count_below(wave: Wave, is_high: bool, given: Sequence[Operand]) -> None:
    """The bits of a mask below each lane, added to the third operand."""
    target, mask, base = given
    bits, added = wave.scalar(mask), wave.lane_values(base)
    if bits is None or added is None:
        wave.write_lanes(target, None)
        return
    bits = (bits & _WORD) << (32 if is_high else 0)
    below = [(bits & ((1 << lane) - 1)).bit_count() for lane in range(wave.lanes)]
    wave.write_lanes(target, added + np.array(below, np.uint32))


def _buffer_load(instruction: Instruction) -> _Action:
    """Known only if all lanes load what one address holds."""
    target, place, base, *scalars = operands(instruction.operands)
    added = re.search(r"offset:(\d+)", instruction.operands)
    fixed = int(added[1]) if added else 0

    def act(wave: Wave) -> None:
        descriptor = wave.scalar(Operand("s", base.index, 2))
        offsets = np.zeros(wave.lanes, np.uint32)
        if "offen" in instruction.operands:
            found = wave.lane_values(place)
            descriptor = None if found is None else descriptor
            offsets = offsets if found is None else found
        moved = wave.scalar(scalars[0]) if scalars else 0
        loaded = None
        is_placed = descriptor is not None and moved is not None
        if is_placed and wave.buffer(descriptor >> 32):  # type: ignore[operator]
            start = descriptor + moved + fixed  # type: ignore[operator]
            words = [wave.load(start + int(offset), 4) for offset in offsets]
            if None not in words:
                loaded = np.array(words, np.uint32)
        wave.write_lanes(target, loaded)

    return act


# Classes that write no register.
_SILENT = ("hint", "wait", "barrier", "store", "lds_write", "branch")


def _action(instruction: Instruction) -> _Action:
    kind = classify(instruction.name)
    made: _Action | None = None
    if kind == "scalar":
        made = _scalar(instruction)
    elif kind == "scalar_load":
        made = _scalar_load(instruction)
    elif instruction.name in ("buffer_load_dword", "buffer_load_b32"):
        made = _buffer_load(instruction)
    elif kind in ("fma", "special", "vector"):
        made = _vector(instruction)
    return made or _forget(instruction)


def _forget(instruction: Instruction) -> _Action:
    """What is written, nobody knows."""
    given = operands(instruction.operands)

    def act(wave: Wave) -> None:
        for target in given[:1]:
            if target.file == "s":
                wave.write_scalar(target, None)
            elif target.file == "v":
                for word in range(target.words):
                    wave.v[target.index + word] = None
        if instruction.name.startswith("s_"):
            wave.scc = None

    return act


_Register = tuple[str, int]
# The first operands that are written: a swap's and a carry's two, a comparison's mask
# (of which an exec mask needs no telling), otherwise one.
_TWO_TARGETS = re.compile(r"v_swap|v_\w+_co_|s_\w+_saveexec")


def _registers(given: Sequence[Operand]) -> set[_Register]:
    return {
        (one.file, one.index + word)
        for one in given
        if one.file in "sv"
        for word in range(one.words)
    }


def _accesses(instruction: Instruction) -> tuple[set[_Register], set[_Register]]:
    """Registers written and read. Reading too much costs time only."""
    given = operands(instruction.operands)
    written = _registers(given[: 2 if _TWO_TARGETS.match(instruction.name) else 1])
    return written, _registers(given)


def _decides(instruction: Instruction) -> bool:
    """Writes what branches look at: a condition, a mask of lanes."""
    name = instruction.name
    return classify(name) in ("scalar", "scalar_load") or name.startswith("v_cmpx")


def _relevant(kernel: Kernel) -> set[Instruction]:
    """The instructions on which a branch may depend, by the registers they write."""
    code = {one for one in kernel.code() if classify(one.name) not in _SILENT}
    accesses = {one: _accesses(one) for one in code}
    chosen: set[Instruction] = set()
    wanted: set[_Register] = set()
    while True:
        found = {
            one for one in code - chosen if _decides(one) or accesses[one][0] & wanted
        }
        if not found:
            return chosen
        chosen |= found
        for one in found:
            wanted |= accesses[one][1]


def play(kernel: Kernel, launch: Launch) -> list[int]:
    """The indices of the blocks that the wave runs, in order."""
    wave = Wave(launch)
    relevant = _relevant(kernel)
    compiled = [
        [_action(one) for one in block.code if one in relevant]
        for block in kernel.blocks
    ]
    ends = [block.code[-1] if block.code else None for block in kernel.blocks]
    trace: list[int] = []
    at = 0
    with np.errstate(all="ignore"):
        while at < len(kernel.blocks):
            trace.append(at)
            if len(trace) > MAX_BLOCKS:
                raise Uncountable(f"more than {MAX_BLOCKS} blocks were run")
            for action in compiled[at]:
                action(wave)
            last = ends[at]
            if last and last.name == "s_endpgm":
                break
            goal = kernel.target(last) if last else None
            at += 1
            if last and goal is not None and _branch_taken(last.name, wave):
                at = goal
    return trace
