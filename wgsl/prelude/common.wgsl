// Library: helpers that every kernel may use; it gets those that it calls.

// By its bits, because compilers may assume that no NaN exists.
fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
fn is_inf(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}
// Largest finite f32, and an infinity that no compiler finds to be a constant, which
// would be an error.
const F32_MAX: f32 = 3.4028234663852886e38;
fn inf() -> f32 {
  var one = 0x7f800000u;
  return bitcast<f32>(one);
}
fn nan() -> f32 {
  var bits = 0x7fc00000u;
  return bitcast<f32>(bits);
}
// max and min that keep NaN, as torch does.
fn max_nan(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return a; }
  return select(max(a, b), b, is_nan(b));
}
fn min_nan(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return a; }
  return select(min(a, b), b, is_nan(b));
}

// y if x is finite, else NaN; exp and log of some drivers lose a NaN.
fn if_finite(x: f32, y: f32) -> f32 {
  return select(y, nan(), (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u);
}

// x rounded to the nearest bfloat16, ties to even.
fn round_bf16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
  return select(bitcast<f32>(rounded), x, is_nan(x));
}
// x rounded to the nearest float16, ties to even; infinite from 65520 on.
fn round_f16(x: f32) -> f32 {
  let magnitude = bitcast<u32>(x) & 0x7fffffffu;
  let sign = bitcast<u32>(x) & 0x80000000u;
  // Below 2^-14 all float16 are multiples of 2^-24.
  let tiny = round(bitcast<f32>(magnitude) * 16777216.0) * 5.9604644775390625e-8;
  let cut = (magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) & 0xffffe000u;
  let normal = select(cut, 0x7f800000u, cut >= 0x47800000u);
  let bits = select(normal, bitcast<u32>(tiny), magnitude < 0x38800000u);
  return select(bitcast<f32>(bits | sign), x, is_nan(x));
}
