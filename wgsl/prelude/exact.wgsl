// Library: arithmetic of int64 in the 32 bits that a buffer holds: the exact result, or
// a report that it does not fit. (int32 wraps, as in torch; it needs only `divisor`.)

fn add_exact(a: i32, b: i32) -> i32 {
  let r = a + b;
  if (((a ^ r) & (b ^ r)) < 0) { report(BAD_SUM, a, b); }
  return r;
}
fn subtract_exact(a: i32, b: i32) -> i32 {
  let r = a - b;
  if (((a ^ b) & (a ^ r)) < 0) { report(BAD_DIFFERENCE, a, b); }
  return r;
}
// The high and the low word of the product of two unsigned integers.
fn multiply_words(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
  return vec2((a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u), a * b);
}
fn fits_product(a: i32, b: i32) -> bool {
  let words = multiply_words(u32(abs(a)), u32(abs(b)));
  let most = select(0x7fffffffu, 0x80000000u, (a < 0) != (b < 0));
  return words.x == 0u && words.y <= most;
}
fn multiply_exact(a: i32, b: i32) -> i32 {
  if (!fits_product(a, b)) { report(BAD_PRODUCT, a, b); }
  return a * b;
}
fn abs_exact(a: i32) -> i32 {
  return select(a, subtract_exact(0, a), a < 0);
}
// The lowest number divided by -1 is the one quotient that does not fit.
fn divide_exact(a: i32, b: i32) -> i32 {
  if (b == -1) { return subtract_exact(0, a); }
  return a / b;
}
fn divide_floor_exact(a: i32, b: i32) -> i32 {
  if (b == -1) { return subtract_exact(0, a); }
  return divide_floor_int(a, b);
}
// b; 0, by which no integer can be divided, is reported and replaced by 1.
fn divisor(b: i32) -> i32 {
  if (b == 0) {
    report(BAD_DIVISOR, b, b);
    return 1;
  }
  return b;
}
// base^exponent by squaring; with a negative exponent, as power_int.
fn power_exact(base: i32, exponent: i32) -> i32 {
  if (exponent < 0) { return power_int(base, exponent); }
  var result = 1;
  var square = base;
  var left = exponent;
  while (left != 0) {
    if ((left & 1) == 1) { result = multiply_exact(result, square); }
    left = left >> 1u;
    if (left != 0) { square = multiply_exact(square, square); }
  }
  return result;
}
// a * 2^b; 0 where b is negative or shifts all 64 bits out.
fn shift_left_exact(a: i32, b: i32) -> i32 {
  if (a == 0 || b < 0 || b > 63) { return 0; }
  let r = a << u32(b & 31);
  if (b > 31 || (r >> u32(b & 31)) != a) { report(BAD_SHIFT, a, b); }
  return r;
}
// x rounded towards 0. What torch makes of NaN and infinities depends on the machine:
// they give some integer here too.
fn int_exact(x: f32) -> i32 {
  let beyond = x >= 2147483648.0 || x < -2147483648.0;
  if (beyond && !is_inf(x)) { report(BAD_NUMBER, bitcast<i32>(x), 0); }
  return i32(x);
}

// Sums of 64 bits, as a low and a high word; only the final one has to fit 32 bits.
fn wide_add(a: vec2<i32>, b: vec2<i32>) -> vec2<i32> {
  let low = bitcast<u32>(a.x) + bitcast<u32>(b.x);
  let carry = select(0, 1, low < bitcast<u32>(a.x));
  return vec2(bitcast<i32>(low), a.y + b.y + carry);
}
fn wide_exact(total: vec2<i32>) -> i32 {
  if (total.y != (total.x >> 31u)) { report(BAD_TOTAL, total.x, total.y); }
  return total.x;
}
