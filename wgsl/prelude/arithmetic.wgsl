// Library: arithmetic that WGSL lacks: exact remainders, floor division, integer
// powers, sequences, and maxima and minima that know NaN.
// A kernel gets only the functions that it calls.

// base^exponent by squaring, modulo 2^32; with a negative exponent the fraction rounded
// towards 0, which is 0, 1 or -1.
fn power_int(base: i32, exponent: i32) -> i32 {
  if (exponent < 0) {
    if (base == 1) { return 1; }
    return select(0, select(1, -1, (exponent & 1) == 1), base == -1);
  }
  var result = 1;
  var square = base;
  var left = exponent;
  while (left != 0) {
    result = select(result, result * square, (left & 1) == 1);
    square = square * square;
    left = left >> 1u;
  }
  return result;
}

// The exact remainder of x / y with the sign of x: long division of mantissas,
// eight bits of quotient at a time.
fn fmodf(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) { return nan(); }
  if (a < b) { return x; }
  let ea = max(i32(a >> 23u), 1);
  let eb = max(i32(b >> 23u), 1);
  let ma = select(a & 0x007fffffu, (a & 0x007fffffu) | 0x00800000u, a >= 0x00800000u);
  let mb = select(b & 0x007fffffu, (b & 0x007fffffu) | 0x00800000u, b >= 0x00800000u);
  var rest = ma % mb;
  var shift = ea - eb;
  while (shift > 0 && rest != 0u) {
    let bits = min(shift, 8);
    rest = (rest << u32(bits)) % mb;
    shift = shift - bits;
  }
  return copy_sign(scale_by_power(f32(rest), eb - 150), x);
}

// The remainder with the sign of y, as Python's %.
fn remainder_floor(x: f32, y: f32) -> f32 {
  let r = fmodf(x, y);
  return select(r, r + y, r != 0.0 && !is_nan(r) && (r < 0.0) != (y < 0.0));
}

// floor(x / y) of the exact quotient, as Python's //.
fn divide_floor(x: f32, y: f32) -> f32 {
  if (y == 0.0) { return x / y; }
  let r = fmodf(x, y);
  if (is_nan(r)) { return r; }
  var q = (x - r) / y;
  q = select(q, q - 1.0, r != 0.0 && (r < 0.0) != (y < 0.0));
  if (q == 0.0) { return copy_sign(0.0, x / y); }
  let whole = floor(q);
  return select(whole, whole + 1.0, q - whole > 0.5);
}

fn divide_floor_int(x: i32, y: i32) -> i32 {
  let q = x / y;
  let r = x - q * y;
  return select(q, q - 1, r != 0 && (r < 0) != (y < 0));
}

fn remainder_floor_int(x: i32, y: i32) -> i32 {
  let r = x % y;
  return select(r, r + y, r != 0 && (r < 0) != (y < 0));
}

fn gcd_int(x: i32, y: i32) -> i32 {
  var a = bitcast<u32>(abs(x));
  var b = bitcast<u32>(abs(y));
  while (b != 0u) {
    let r = a % b;
    a = b;
    b = r;
  }
  return bitcast<i32>(a);
}

// start + i * step, where start and step are each a sum of two f32.
fn affine(i: i32, start: vec2<f32>, step: vec2<f32>) -> f32 {
  let n = f32(i);
  let nh = high_part(n);
  let sh = high_part(step.x);
  let large = nh * sh;
  let small = nh * (step.x - sh) + (n - nh) * step.x + n * step.y;
  let sum = start.x + large;
  let lost = select(start.x - (sum - large), large - (sum - start.x),
                    abs(start.x) > abs(large));
  return sum + (lost + (small + start.y));
}

// The larger (smaller) of two numbers; NaN only if both are NaN.
fn max_number(a: f32, b: f32) -> f32 {
  return select(select(max(a, b), a, is_nan(b)), b, is_nan(a));
}
fn min_number(a: f32, b: f32) -> f32 {
  return select(select(min(a, b), a, is_nan(b)), b, is_nan(a));
}

fn lerpf(a: f32, b: f32, weight: f32) -> f32 {
  let d = b - a;
  return select(b - d * (1.0 - weight), a + weight * d, abs(weight) < 0.5);
}
