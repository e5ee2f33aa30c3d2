// Library: how two accumulators of a reduction merge, and functions of elements and
// results. A kernel gets only the functions that its op's formulas call.
// Supplied: Acc (fields a, b, c), and what each function says.

// Mean a, sum of squared deviations b and count c, of two accumulators merged.
fn merge_moments(s: Acc, t: Acc) -> Acc {
  if (t.c == 0.0) { return s; }
  if (s.c == 0.0) { return t; }
  let n = s.c + t.c;
  let d = t.a - s.a;
  let w = t.c / n;
  return Acc(s.a + d * w, s.b + t.b + d * d * s.c * w, n);
}
// Sum of squares a over b degrees of freedom; as in torch where there are none.
fn variance(a: f32, b: f32) -> f32 {
  if (b > 0.0) { return a / b; }
  return select(nan(), inf(), a > 0.0);
}

// exp(x - top), and 0 for an x of -inf, even where top is -inf too.
fn exp_below(x: f32, top: f32) -> f32 {
  return select(exp(x - top), 0.0, x == -inf());
}
// Maximum a and b = sum exp(x - a), of two accumulators merged.
fn merge_exponentials(s: Acc, t: Acc) -> Acc {
  let top = max_nan(s.a, t.a);
  return Acc(top, s.b * exp_below(s.a, top) + t.b * exp_below(t.a, top));
}

// The accumulator whose element a is the extreme; of equal elements that with the lower
// index b. Supplied: beats(a, b), same(a, b).
fn merge_extremes(s: Acc, t: Acc) -> Acc {
  if (beats(t.a, s.a)) { return t; }
  if (same(t.a, s.a) && t.b < s.b) { return t; }
  return s;
}
// Whether a is greater than b (less, where sign is -1); NaN is the extreme.
fn beats_float(a: f32, b: f32, sign: f32) -> bool {
  return !is_nan(b) && (is_nan(a) || sign * a > sign * b);
}
fn same_float(a: f32, b: f32) -> bool { return a == b || (is_nan(a) && is_nan(b)); }

// The index of the running extreme of a scan, where -1 is the identity element.
// Supplied: get_over, taken(best, other) (whether the other element replaces the best).
fn further(s: i32, v: i32) -> i32 {
  if (s < 0) { return v; }
  if (v < 0) { return s; }
  return select(s, v, taken(get_over(s), get_over(v)));
}

// An int64 sum is 64 bits wide, a low and a high word, until it is stored.
fn merge_wide(s: Acc, t: Acc) -> Acc {
  let sum = wide_add(vec2(s.a, s.b), vec2(t.a, t.b));
  return Acc(sum.x, sum.y);
}
// An int64 product a, with b = 1 once it did not fit: without a factor of 0 it only
// grows.
fn merge_products(s: Acc, t: Acc) -> Acc {
  if (is_zero(s) || is_zero(t)) { return Acc(0, 0); }
  return Acc(s.a * t.a, s.b | t.b | select(1, 0, fits_product(s.a, t.a)));
}
fn is_zero(s: Acc) -> bool { return s.a == 0 && s.b == 0; }
fn product_exact(s: Acc) -> i32 {
  if (s.b != 0) { report(BAD_WHOLE, 0, 0); }
  return s.a;
}

// 1 if v is not 0, by its bits: compilers may take a subnormal for 0.
fn truth_float(v: f32) -> i32 {
  return select(0, 1, (bitcast<u32>(v) & 0x7fffffffu) != 0u);
}
// a^b for a >= 0; WGSL's pow may give NaN at 0 and at inf.
fn power_positive(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return a; }
  if (a == 0.0) { return select(inf(), 0.0, b > 0.0); }
  if (is_inf(a)) { return select(0.0, inf(), b > 0.0); }
  return pow(a, b);
}
// log(exp(s) + exp(v)), without losing what is small beside 1.
fn log_add(s: f32, v: f32) -> f32 {
  let top = max_nan(s, v);
  if (is_inf(top) || is_nan(top)) { return top; }
  let rest = exp(min(s, v) - top);
  let u = 1.0 + rest;
  return top + select(log(u) * rest / (u - 1.0), rest, u == 1.0);
}

// The sum of squares of the p.depth elements from `base` on, one or four at a time.
fn sum_squares(base: i32) -> f32 {
  var sum = 0.0;
  for (var k = 0; k < p.depth; k++) {
    let x = get_x(base + k);
    sum += x * x;
  }
  return sum;
}
fn sum_squares4(base: i32) -> f32 {
  var sum = vec4<f32>();
  for (var k = 0; k < p.depth / 4; k++) {
    let x = get_x4(base / 4 + k);
    sum += x * x;
  }
  return sum.x + sum.y + sum.z + sum.w;
}
