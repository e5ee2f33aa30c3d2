// Helpers that every kernel may use.

// The index of an invocation in a one-dimensional job that was folded into a
// two-dimensional grid of workgroups of WG invocations.
fn flat_index(gid: vec3<u32>, groups: vec3<u32>) -> i32 {
  return i32(gid.x + gid.y * groups.x * u32(WG));
}

// By its bits, because compilers may assume that no NaN exists.
fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
fn is_inf(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}
// Largest finite f32, and an infinity that no compiler folds into an error.
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

// erf by its series near 0 and by exp(-x^2) * rational elsewhere (Abramowitz and
// Stegun 7.1.26 is not enough for f32; this is W. J. Cody's in f32 form).
fn erf(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.84375) {
    let s = x * x;
    let u = 0.128379167095512574 + s * (-0.325042107247001499 + s * (-0.0284817495755985104
          + s * (-0.00577027029648944159 + s * -0.0000237630166566501626)));
    let v = 1.0 + s * (0.397917223959155352 + s * (0.0650222499887672944
          + s * (0.00508130628187576562 + s * (0.000132494738004321644
          + s * -0.00000396022827877536812))));
    return x + x * (u / v);
  }
  let t = 1.0 / (1.0 + 0.3275911 * a);
  let y = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741
        + t * (-1.453152027 + t * 1.061405429)))) * exp(-a * a);
  return select(select(1.0 - y, y - 1.0, x < 0.0), x, is_nan(x));
}
