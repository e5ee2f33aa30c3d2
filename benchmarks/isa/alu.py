"""What scalar and vector instructions compute, as far as control flow depends on it.

Scalar values are Python integers, vector values arrays of 32-bit words, one per lane.
Names are without prefix and encoding (`s_add_u32`: `add_u32`, `v_add_nc_u32_e32`:
`add_nc_u32`). What is not in these tables is unknown to `play.py`, which is no fault
unless a branch depends on it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.uint32]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "lg": operator.ne,
    "ne": operator.ne,
    "neq": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _reversed_bits(value: int) -> int:
    return int(f"{value:032b}"[::-1], 2)


def _field(value: int, where: int) -> int:
    """Bits of `value`: `where` has the offset in its low half, the count above."""
    return value >> (where & 31) & ((1 << (where >> 16 & 127)) - 1)


_Scalar = Callable[..., int]

# By name without type; operands are as the type says, and the result is cut to it.
_SCALAR: dict[str, _Scalar] = {
    "mov": lambda a: a,
    "not": lambda a: ~a,
    "abs": lambda a: abs(a),
    "brev": _reversed_bits,
    "bcnt1": lambda a: a.bit_count(),
    "ctz": lambda a: (a & -a).bit_length() - 1,  # of zero: -1
    "sext": lambda a: a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "absdiff": lambda a, b: abs(a - b),
    "mul": lambda a, b: a * b,
    "mul_hi": lambda a, b: a * b >> 32,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b,
    "and_not0": lambda a, b: ~a & b,
    "or_not0": lambda a, b: ~a | b,
    "min": min,
    "max": max,
    "lshl": lambda a, b: a << (b & 31),
    "lshr": lambda a, b: a >> (b & 31),
    "ashr": lambda a, b: a >> (b & 31),
    "bfe": _field,
    "bfm": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    **{f"lshl{n}_add": lambda a, b, n=n: (a << n) + b for n in (1, 2, 3, 4)},
    "pack_ll": lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16,
    "pack_lh": lambda a, b: (a & 0xFFFF) | b & 0xFFFF0000,
    "pack_hh": lambda a, b: a >> 16 & 0xFFFF | b & 0xFFFF0000,
}
_OLD_NAMES = {
    "andn2": "and_not1",
    "orn2": "or_not1",
    "andn1": "and_not0",
    "ff1": "ctz",
}
# These leave the scalar condition code as it is.
KEEP_CODE = (
    *("mov", "brev", "ctz", "ff1", "sext", "mul", "mul_hi", "bfm"),
    *("pack_ll", "pack_lh", "pack_hh"),
)
_CARRY = ("add", "sub", *(f"lshl{n}_add" for n in (1, 2, 3, 4)))


def scalar_function(name: str) -> _Scalar | None:
    return _SCALAR.get(_OLD_NAMES.get(name, name))


def scalar(
    name: str, kind: str, bits: int, values: list[int]
) -> tuple[int, int | None]:
    """A result and the new condition code, None if it stays; `kind`: b, i or u."""
    function = scalar_function(name)
    assert function is not None
    if name == "sext":
        values = [signed(values[0] & ((1 << bits) - 1), bits)]
        bits = 32
    elif kind == "i" and name != "bcnt1":
        values = [signed(value, bits) for value in values]
    if bits == 64 and name in ("lshl", "lshr", "bfm"):
        exact = values[0] << values[1] if name == "lshl" else values[0] >> values[1]
        if name == "bfm":
            exact = ((1 << (values[0] & 63)) - 1) << (values[1] & 63)
    else:
        exact = function(*values)
    result = exact & ((1 << bits) - 1)
    if name in KEEP_CODE:
        return result, None
    if name in ("min", "max"):
        return result, int(exact == values[0])
    if name in _CARRY:
        limits = (0, 1 << bits) if kind == "u" else (-(1 << 31), 1 << 31)
        return result, int(not limits[0] <= exact < limits[1])
    return result, int(result != 0)


def compare_scalar(how: str, kind: str, a: int, b: int, bits: int) -> int:
    if kind == "i":
        a, b = signed(a, bits), signed(b, bits)
    return int(bool(_COMPARE[how](a, b)))


_LOW5, _LOW24 = np.uint32(31), np.uint32(0xFFFFFF)


def _i(a: Lanes) -> NDArray[np.int32]:
    return a.view(np.int32)


def _f(a: Lanes) -> NDArray[np.float32]:
    return a.view(np.float32)


def _w(a: NDArray[np.generic]) -> Lanes:
    """As words: integers are cut to 32 bits, floats keep their bits."""
    if a.dtype == np.float32:
        return a.view(np.uint32)
    return a.astype(np.int64, copy=False).astype(np.uint32)


def _high(a: Lanes, b: Lanes) -> Lanes:
    return _w(a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32))


def _bits(a: Lanes, offset: Lanes, count: Lanes) -> Lanes:
    mask = (np.uint32(1) << (count & _LOW5)) - np.uint32(1)
    return _w((a >> (offset & _LOW5)) & mask)


def _signed_bits(a: Lanes, offset: Lanes, count: Lanes) -> Lanes:
    top = np.uint32(1) << ((count & _LOW5) - np.uint32(1))
    return _w((_bits(a, offset, count) ^ top) - top)


def _median(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> Lanes:
    return _w(np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)))


def _whole(a: Lanes) -> NDArray[np.float64]:
    """A float as an integer: NaN is zero, the rest is cut to what 32 bits can hold."""
    whole = np.nan_to_num(np.trunc(_f(a).astype(np.float64)))
    return np.asarray(np.clip(whole, -(2.0**31), 2.0**32 - 1))


_Vector = Callable[..., Lanes]

VECTOR: dict[str, _Vector] = {
    "mov_b32": lambda a: a,
    "not_b32": lambda a: ~a,
    "add_nc_u32": lambda a, b: a + b,
    "sub_nc_u32": lambda a, b: a - b,
    "subrev_nc_u32": lambda a, b: b - a,
    "mul_lo_u32": lambda a, b: a * b,
    "mul_hi_u32": _high,
    "mul_u32_u24": lambda a, b: (a & _LOW24) * (b & _LOW24),
    "mad_u32_u24": lambda a, b, c: (a & _LOW24) * (b & _LOW24) + c,
    "add3_u32": lambda a, b, c: a + b + c,
    "xad_u32": lambda a, b, c: (a ^ b) + c,
    "add_lshl_u32": lambda a, b, c: (a + b) << (c & 31),
    "lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "lshl_or_b32": lambda a, b, c: (a << (b & 31)) | c,
    "and_or_b32": lambda a, b, c: (a & b) | c,
    "or3_b32": lambda a, b, c: a | b | c,
    "xor3_b32": lambda a, b, c: a ^ b ^ c,
    "lshlrev_b32": lambda a, b: b << (a & 31),
    "lshrrev_b32": lambda a, b: b >> (a & 31),
    "ashrrev_i32": lambda a, b: _w(_i(b) >> _i(a & 31)),
    "and_b32": lambda a, b: a & b,
    "or_b32": lambda a, b: a | b,
    "xor_b32": lambda a, b: a ^ b,
    "xnor_b32": lambda a, b: ~(a ^ b),
    "min_u32": np.minimum,
    "max_u32": np.maximum,
    "min_i32": lambda a, b: _w(np.minimum(_i(a), _i(b))),
    "max_i32": lambda a, b: _w(np.maximum(_i(a), _i(b))),
    "min3_u32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "max3_u32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "min3_i32": lambda a, b, c: _w(np.minimum(np.minimum(_i(a), _i(b)), _i(c))),
    "max3_i32": lambda a, b, c: _w(np.maximum(np.maximum(_i(a), _i(b)), _i(c))),
    "med3_u32": _median,
    "med3_i32": lambda a, b, c: _median(_i(a), _i(b), _i(c)),
    "maxmin_i32": lambda a, b, c: _w(np.minimum(np.maximum(_i(a), _i(b)), _i(c))),
    "minmax_i32": lambda a, b, c: _w(np.maximum(np.minimum(_i(a), _i(b)), _i(c))),
    "maxmin_u32": lambda a, b, c: np.minimum(np.maximum(a, b), c),
    "minmax_u32": lambda a, b, c: np.maximum(np.minimum(a, b), c),
    "bfe_u32": _bits,
    "bfe_i32": _signed_bits,
    "bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    # What an integer division is made of.
    "cvt_f32_u32": lambda a: _w(a.astype(np.float32)),
    "cvt_f32_i32": lambda a: _w(_i(a).astype(np.float32)),
    "cvt_u32_f32": lambda a: _w(np.maximum(_whole(a), 0)),
    "cvt_i32_f32": lambda a: _w(np.minimum(_whole(a), 2**31 - 1)),
    "rcp_iflag_f32": lambda a: _w(np.float32(1) / _f(a)),
    "rcp_f32": lambda a: _w(np.float32(1) / _f(a)),
    "mul_f32": lambda a, b: _w(_f(a) * _f(b)),
    "fma_f32": lambda a, b, c: _w(_f(a) * _f(b) + _f(c)),
    "trunc_f32": lambda a: _w(np.trunc(_f(a))),
    "floor_f32": lambda a: _w(np.floor(_f(a))),
}
# GFX9's names.
_OLD_VECTOR = {
    "add_u32": "add_nc_u32",
    "sub_u32": "sub_nc_u32",
    "subrev_u32": "subrev_nc_u32",
}


def vector_function(name: str) -> _Vector | None:
    return VECTOR.get(_OLD_VECTOR.get(name, name))


def compare_lanes(how: str, kind: str, a: Lanes, b: Lanes) -> NDArray[np.bool_] | None:
    """Per lane; None if the comparison is not one of 32-bit words or floats."""
    views = {"u32": lambda x: x, "i32": _i, "f32": _f}
    if how not in _COMPARE or kind not in views:
        return None
    return np.asarray(_COMPARE[how](views[kind](a), views[kind](b)))
