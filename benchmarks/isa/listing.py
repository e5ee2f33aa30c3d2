"""RADV's listing of machine code, with what its disassembler cannot read.

Every line has an instruction and, in a comment, its words. LLVM, which RADV asks, does
not know all: of s[104:107], which hardware has and whose upper half is vcc, it has no
name, and of older versions GFX11's 16-bit moves. It calls a word invalid and goes on
with the next, which may be the second half of the same instruction, so that lines are
wrong until it happens to be in step again. These are read here, by their words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_INVALID = "(invalid instruction)"
_SMEM, _DS, _VOP1 = 0x3D, 0x36, 0x3F  # the upper bits of a word: its encoding
_LITERAL = 0xFF  # as an operand: the next word
_NO_REGISTER = 124  # and above: no offset is added


def instructions(text: str) -> Iterator[str]:
    """Labels and instructions, line by line."""
    split = [line.partition(";") for line in text.splitlines()]
    lines = [(code.strip(), _words(comment)) for code, _, comment in split]
    known = {
        _operation(words[0]): code.split()[0]
        for code, words in lines
        if words and code != _INVALID
    }
    pending: list[int] = []  # words that are not yet a whole instruction
    for code, words in lines:
        if not words or not (pending or code == _INVALID):
            pending = []
            yield code
            continue
        pending += words
        while pending and len(pending) >= _size(pending[0]):
            size = _size(pending[0])
            yield _read(pending[:size], known)
            pending = pending[size:]


def _words(comment: str) -> list[int]:
    return [int(word, 16) for word in comment.split()]


def _operation(word: int) -> int:
    """Encoding and opcode of an instruction of two words."""
    return word >> 18


def _size(word: int) -> int:
    """In words, of the instruction that begins with this one."""
    if word >> 30 == 3:
        return 2
    is_vector = word >> 31 == 0
    sources = [word & 0x1FF] if is_vector else [word & 0xFF, word >> 8 & 0xFF]
    return 2 if _LITERAL in sources else 1


def _read(words: list[int], known: Mapping[int, str]) -> str:
    """The instruction, named as an equal one of the listing is."""
    first = words[0]
    if first >> 25 == _VOP1:
        return f"v_mov_b16 v{first >> 17 & 0x7F}"
    name = known.get(_operation(first), "")
    if first >> 26 == _SMEM:
        target, base = first >> 6 & 0x7F, 2 * (first & 0x3F)
        added = words[1] >> 25
        offset = "null" if added >= _NO_REGISTER else f"s{added}"
        fixed = words[1] & 0x1FFFFF
        return (
            f"{name or 's_buffer_load_b128'} s[{target}:{target + 3}],"
            f" s[{base}:{base + 3}], {offset} offset:{fixed}"
        )
    if first >> 26 == _DS:
        return f"{name} v[{words[1] >> 24}:{(words[1] >> 24) + 3}]"
    return name
