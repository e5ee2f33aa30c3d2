"""WGSL that turns the codes of packed weights (plan/packed_weights.py) into floats."""

from __future__ import annotations

from ...plan.recorder import Tensor

# The f-th four codes of a word, as floats of the same values.
_CODES = {
    4: "vec4<f32>(unpack4xU8((word >> (u32(f) * 4u)) & 0x0f0f0f0fu))",
    8: "vec4<f32>(unpack4xI8(word))",
}
# What a stored code is above its value.
_BIAS = {4: 8.0, 8: 0.0}


def codes_code(bits: int, offset: Tensor | None) -> str:
    """WGSL that unpacks the codes of a word and gives the offset that a scale has."""
    if offset is None:
        value = f"{-_BIAS[bits]} * s"
        one = four = value
    else:
        four, one = "get_o4(i)", "get_o(i)"
    return (
        f"const FOURS = {8 // bits};\n"
        f"fn codes(word: u32, f: i32) -> vec4<f32> {{ return {_CODES[bits]}; }}\n"
        f"fn offset4(i: i32, s: vec4<f32>) -> vec4<f32> {{ return {four}; }}\n"
        f"fn offset1(i: i32, s: f32) -> f32 {{ return {one}; }}\n"
    )
