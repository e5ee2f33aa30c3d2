"""What an instruction does to the registers of a wave.

`action` gives a function that does it; where that is not known, one that makes what the
instruction writes unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from . import alu
from .kernel import Instruction, classify
from .wave import (
    EXEC_MASK,
    VCC_MASK,
    WORD,
    Operand,
    Uncountable,
    Vector,
    Wave,
    as_bits,
    as_lanes,
    everywhere,
    operands,
)

Action = Callable[[Wave], None]

# The type of the result and, where it is another, that of the operand.
_SCALAR = re.compile(
    r"s_(?P<name>\w+?)_(?P<kind>[biu])(?P<bits>\d+)(?:_[biu](?P<source>\d+))?$"
)


def _scalar(instruction: Instruction) -> Action | None:
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
    # Packing takes halves of whole registers.
    if found["source"] and not name.startswith("pack"):
        bits = int(found["source"])
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
    wave.write_scalar(EXEC_MASK, result & wave.full)
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


def _scalar_load(instruction: Instruction) -> Action:
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


def _vector(instruction: Instruction) -> Action | None:
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
        given = [wave.lane_values(source) for source in sources]
        known = _known(wave, given)
        if known & wave.exec:
            result = Vector(function(*(one.values for one in given)), known)
        else:
            result = wave.unknown
        wave.write_lanes(target, result)

    return act


def _known(wave: Wave, given: Iterable[Vector]) -> int:
    """The lanes in which all of these are."""
    known = wave.full
    for one in given:
        known &= one.known
    return known


def _after_registers(instruction: Instruction) -> str:
    return re.sub(r"\[\d+:\d+\]", "", instruction.operands)


def _compare(found: re.Match[str], given: Sequence[Operand]) -> Action:
    *targets, a, b = given
    guessed = taken = 0  # lanes of unknown data that came here, and of them the true

    def act(wave: Wave) -> None:
        nonlocal guessed, taken
        left, right = wave.lane_values(a), wave.lane_values(b)
        mask = alu.compare_lanes(found["how"], found["kind"], left.values, right.values)
        known = 0 if mask is None else _known(wave, (left, right))
        fresh = wave.exec & ~known & ~guessed
        guessed |= fresh
        taken |= _every_second(fresh)
        result = taken & ~known
        if mask is not None:
            result |= as_bits(mask) & known
        result &= wave.exec
        for target in targets or ([] if found["x"] else [VCC_MASK]):
            wave.write_scalar(target, result)
        if found["x"]:
            wave.write_scalar(EXEC_MASK, result)

    return act


def _every_second(lanes: int) -> int:
    """Of these: the first, the third, and so on."""
    chosen, is_next = 0, True
    while lanes:
        lowest = lanes & -lanes
        chosen |= lowest if is_next else 0
        lanes, is_next = lanes ^ lowest, not is_next
    return chosen


def _add_with_carry(
    wave: Wave, is_difference: bool, is_swapped: bool, given: Sequence[Operand]
) -> None:
    target, carry_out, a, b = given[:4]
    if is_swapped:
        a, b = b, a
    left, right = wave.lane_values(a), wave.lane_values(b)
    carry = wave.scalar(given[4]) if len(given) > 4 else 0
    known = _known(wave, (left, right))
    if carry is None:
        carry = known = 0
    wide = right.values.astype(np.int64) + as_lanes(carry & wave.full, wave.lanes)
    exact = left.values.astype(np.int64) + (-wide if is_difference else wide)
    beyond = as_bits((exact < 0) | (exact > WORD)) & wave.exec
    wave.write_lanes(target, Vector(exact.astype(np.uint32), known))
    wave.write_scalar(carry_out, None if wave.exec & ~known else beyond)


def _select(wave: Wave, given: Sequence[Operand]) -> None:
    target, a, b, *masks = given
    mask = wave.scalar(masks[0] if masks else VCC_MASK)
    if mask is None:
        wave.write_lanes(target, wave.unknown)
        return
    left, right = wave.lane_values(a), wave.lane_values(b)
    mask &= wave.full
    chosen = np.where(as_lanes(mask, wave.lanes), right.values, left.values)
    wave.write_lanes(target, Vector(chosen, right.known & mask | left.known & ~mask))


def _read_lane(wave: Wave, given: Sequence[Operand]) -> None:
    """Of the lane that is named, or of the first that is active."""
    target, source, *lanes = given
    values = wave.lane_values(source)
    first = (wave.exec & -wave.exec).bit_length() - 1 if wave.exec else 0
    lane = wave.scalar(lanes[0]) if lanes else first
    if lane is None or not values.known >> lane % wave.lanes & 1:
        wave.write_scalar(target, None)
    else:
        wave.write_scalar(target, int(values.values[lane % wave.lanes]))


def _move_wide(wave: Wave, given: Sequence[Operand]) -> None:
    """A shift of a constant, which is how two registers are set at once."""
    target, shift, source = given
    value = (source.index & (1 << 64) - 1) >> shift.index
    for word in range(2):
        part = everywhere(value >> 32 * word & WORD, wave.lanes)
        wave.write_lanes(Operand("v", target.index + word), Vector(part, wave.full))


def _count_below(wave: Wave, is_high: bool, given: Sequence[Operand]) -> None:
    """The bits of a mask below each lane, added to the third operand."""
    target, mask, base = given
    bits, added = wave.scalar(mask), wave.lane_values(base)
    if bits is None:
        wave.write_lanes(target, wave.unknown)
        return
    bits = (bits & WORD) << (32 if is_high else 0)
    below = [(bits & ((1 << lane) - 1)).bit_count() for lane in range(wave.lanes)]
    counted = added.values + np.array(below, np.uint32)
    wave.write_lanes(target, Vector(counted, added.known))


_WORDS = re.compile(r"buffer_load_(dword|b32|b64|b96|b128)")


def _buffer_load(instruction: Instruction) -> Action:
    """Whole words per lane, known if the content of the buffer is."""
    target, place, base, *scalars = operands(instruction.operands)
    added = re.search(r"offset:(\d+)", instruction.operands)
    fixed = int(added[1]) if added else 0
    has_place = "offen" in instruction.operands

    def act(wave: Wave) -> None:
        start = wave.scalar(Operand("s", base.index, 2))
        moved = wave.scalar(scalars[0]) if scalars else 0
        zero = Vector(everywhere(0, wave.lanes), wave.full)
        places = wave.lane_values(place) if has_place else zero
        for word in range(target.words):
            loaded = wave.unknown
            if start is not None and moved is not None:
                loaded = _gather(wave, start + moved + fixed + 4 * word, places)
            wave.write_lanes(Operand("v", target.index + word), loaded)

    return act


def _gather(wave: Wave, start: int, places: Vector) -> Vector:
    """The words at these places, known where the place and the content are."""
    if not wave.buffer(start >> 32):
        return wave.unknown
    words = [wave.load(start + int(place), 4) for place in places.values]
    is_there = as_bits(np.array([word is not None for word in words]))
    values = np.array([word or 0 for word in words], np.uint32)
    return Vector(values, places.known & is_there)


def action(instruction: Instruction) -> Action:
    kind = classify(instruction.name)
    made: Action | None = None
    if kind == "scalar":
        made = _scalar(instruction)
    elif kind == "scalar_load":
        made = _scalar_load(instruction)
    elif _WORDS.match(instruction.name):
        made = _buffer_load(instruction)
    elif kind in ("fma", "special", "vector"):
        made = _vector(instruction)
    return made or _forget(instruction)


def _forget(instruction: Instruction) -> Action:
    """What is written, nobody knows."""
    given = operands(instruction.operands)

    def act(wave: Wave) -> None:
        for target in given[: written(instruction)]:
            if target.file == "s":
                wave.write_scalar(target, None)
            elif target.file == "v":
                for word in range(target.words):
                    part = Operand("v", target.index + word)
                    wave.write_lanes(part, wave.unknown)
        if instruction.name.startswith("s_"):
            wave.scc = None

    return act


# A swap and a carry write two operands; a comparison its mask (of which an exec mask
# needs no telling).
_TWO_TARGETS = re.compile(r"v_swap|v_\w+_co_|s_\w+_saveexec")


def written(instruction: Instruction) -> int:
    """How many of the first operands are written."""
    return 2 if _TWO_TARGETS.match(instruction.name) else 1
