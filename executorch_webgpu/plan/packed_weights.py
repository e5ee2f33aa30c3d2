"""Packed weights: codes of 4 or 8 bits in 32-bit words, as the kernels read them.

A weight of N rows and K columns, quantized in groups along K, enters as one code
per element and leaves as words[word along K][row], rows padded to 4: neighbouring
invocations, which compute neighbouring rows, read neighbouring words. A group
fills whole words, so that any group size is possible. Of 4-bit codes, a word's first
four are the low halves of its bytes, the next four the high halves. A 4-bit code is
stored plus 8, so that its value is `code - 8`; an 8-bit code is signed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput
from .host_packing import packing, unpacking

ROW_UNIT = 4  # rows are padded to a multiple of it, so that words can be read as vec4


@dataclass(frozen=True)
class Layout:
    """Where the codes of a weight are."""

    rows: int  # N
    depth: int  # K
    bits: int
    group: int

    @property
    def columns(self) -> int:
        """Vectors of four words along N."""
        return -(-self.rows // ROW_UNIT)

    @property
    def padded(self) -> int:
        return self.columns * ROW_UNIT

    @property
    def per_word(self) -> int:
        return 32 // self.bits

    @property
    def groups(self) -> int:
        return -(-self.depth // self.group)

    @property
    def words(self) -> int:
        """Words along K of one group."""
        return -(-self.group // self.per_word)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.groups * self.words, self.padded)


def pack_codes(codes: np.ndarray, bits: int, group: int) -> np.ndarray:
    """Signed codes [N, K] as int32 words in the layout above."""
    rows, depth = codes.shape
    layout = Layout(rows, depth, bits, group)
    per_word = layout.per_word
    full = np.zeros((layout.padded, layout.groups, layout.words * per_word), np.int8)
    padded = np.zeros((rows, layout.groups * group), np.int8)
    padded[:, :depth] = codes
    full[:rows, :, :group] = padded.reshape(rows, layout.groups, group)
    signed = full.reshape(layout.padded, layout.groups * layout.words, per_word)
    unsigned = (signed + 8).astype(np.uint8) if bits == 4 else signed.view(np.uint8)
    words = np.zeros(signed.shape[:2], np.uint32)
    for index in range(per_word):
        # Four codes, a byte apart, are unpacked at once.
        bit = index % 4 * 8 + index // 4 * bits
        words |= unsigned[:, :, index].astype(np.uint32) << np.uint32(bit)
    return np.ascontiguousarray(words.T).view(np.int32)


def pack_scales(scales: np.ndarray) -> np.ndarray:
    """[N, groups] as [groups, N padded to 4]."""
    rows = scales.shape[0]
    out = np.zeros((scales.shape[1], -(-rows // ROW_UNIT) * ROW_UNIT), scales.dtype)
    out[:, :rows] = scales.T
    return out


def unpack_codes(words: np.ndarray, bits: int, group: int) -> np.ndarray:
    """Words [groups * words, N] as stored codes [groups, group, N]."""
    per_word, each = 32 // bits, -(-group // (32 // bits))
    data = words.view(np.uint32).reshape(-1, each, words.shape[1])
    full = np.empty((data.shape[0], each, per_word, data.shape[2]), np.int32)
    for index in range(per_word):
        bit = index % 4 * 8 + index // 4 * bits
        full[:, :, index] = data >> np.uint32(bit) & np.uint32((1 << bits) - 1)
    codes = full.reshape(data.shape[0], each * per_word, -1)[:, :group]
    return codes if bits == 4 else codes.astype(np.int8).astype(np.int32)


def code_sums(words: np.ndarray, bits: int, group: int) -> np.ndarray:
    """The sums of the stored codes of each group, [groups, N padded to 4]."""
    sums: np.ndarray = unpack_codes(words, bits, group).sum(1, dtype=np.int32)
    return sums


@packing("word_sums")
def _word_sums(data: np.ndarray, bits: int, group: int) -> np.ndarray:
    return code_sums(data, bits, group)


@packing("nibble_sums")
def _nibble_sums(
    data: np.ndarray, low_first: int, depth: int, group: int
) -> np.ndarray:
    return code_sums(_nibbles_to_words(data, low_first, depth, group), 4, group)


@packing("code_sums")
def _code_sums(data: np.ndarray, bits: int, group: int) -> np.ndarray:
    return code_sums(_codes_to_words(data, bits, group), bits, group)


def unpack_nibbles(data: np.ndarray, low_first: bool, depth: int) -> np.ndarray:
    """Bytes [N, K / 2] of two offset codes each as signed codes [N, K]."""
    low = (data & 15).astype(np.int8) - np.int8(8)
    high = (data >> 4).astype(np.int8) - np.int8(8)
    pair = [low, high] if low_first else [high, low]
    return np.stack(pair, axis=-1).reshape(data.shape[0], -1)[:, :depth]


@packing("nibbles_to_words")
def _nibbles_to_words(
    data: np.ndarray, low_first: int, depth: int, group: int
) -> np.ndarray:
    codes = unpack_nibbles(data.view(np.uint8), bool(low_first), depth)
    return pack_codes(codes, 4, group)


@unpacking("nibbles_to_words")
def _words_to_nibbles(
    words: np.ndarray, shape: tuple[int, ...], low_first: int, depth: int, group: int
) -> np.ndarray:
    rows, columns = shape
    codes = np.zeros((rows, columns * 2), np.uint8)
    codes[:, :depth] = _rows_of_words(words, (rows, depth), 4, group) + 8
    first, second = codes[:, ::2], codes[:, 1::2]
    return first | second << 4 if low_first else first << 4 | second


@packing("codes_to_words")
def _codes_to_words(data: np.ndarray, bits: int, group: int) -> np.ndarray:
    return pack_codes(data.astype(np.int8), bits, group)


@unpacking("codes_to_words")
def _rows_of_words(
    words: np.ndarray, shape: tuple[int, ...], bits: int, group: int
) -> np.ndarray:
    """Signed codes [N, K] of words."""
    rows, depth = shape
    layout = Layout(rows, depth, bits, group)
    codes = unpack_codes(words.reshape(layout.shape), bits, group)
    signed = codes - 8 if bits == 4 else codes
    return signed.reshape(-1, layout.padded)[:depth, :rows].T.astype(np.int8)


@packing("group_scales")
def _group_scales(
    data: np.ndarray, rows: int, groups: int, by_group: int
) -> np.ndarray:
    """Scales given as [groups, N or more] or as [N, groups], broadcast if one."""
    if not np.isfinite(data).all():
        raise InvalidInput("scales of a weight must be finite, got inf or nan")
    table = data.reshape(1, 1) if data.size == 1 else data
    if by_group:
        table = table.reshape(groups, -1).T
    table = table.reshape(-1, groups) if table.size != 1 else table
    return pack_scales(
        np.broadcast_to(table, (max(rows, table.shape[0]), groups))[:rows]
    )


@unpacking("group_scales")
def _scales_of_groups(
    data: np.ndarray, shape: tuple[int, ...], rows: int, groups: int, by_group: int
) -> np.ndarray:
    table = data.reshape(groups, -(-rows // ROW_UNIT) * ROW_UNIT)[:, :rows]
    if math.prod(shape) == 1:
        return table[:1, :1]
    made = np.zeros(math.prod(shape), data.dtype)
    if by_group:
        made.reshape(groups, -1)[:, :rows] = table
    else:
        made.reshape(-1, groups)[:rows] = table.T
    return made


@packing("plain_nibbles_to_words")
def _plain_nibbles_to_words(data: np.ndarray, depth: int) -> np.ndarray:
    """High nibble first, signed by the byte's own shift, the low one unsigned."""
    raw = data.view(np.uint8) if data.dtype != np.int8 else data
    codes = np.stack([raw >> 4, raw & 15], axis=-1).astype(np.int8)
    return pack_codes(codes.reshape(data.shape[0], -1)[:, :depth], 8, depth)


@unpacking("plain_nibbles_to_words")
def _words_to_plain_nibbles(
    words: np.ndarray, shape: tuple[int, ...], depth: int
) -> np.ndarray:
    rows, columns = shape
    codes = np.zeros((rows, columns * 2), np.uint8)
    found = _rows_of_words(words, (rows, depth), 8, depth)
    codes[:, :depth] = found.view(np.uint8) & 15
    return (codes[:, ::2] << 4 | codes[:, 1::2]).view(np.int8)
