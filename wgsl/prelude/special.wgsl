// Library: special functions of f32: Bessel functions, gamma and functions derived from
// it, neighbouring numbers, mantissa and exponent. At poles, infinities and outside of
// their domain they give what torch's do. Series have a bounded number of terms.
// A kernel gets only the functions that it calls.

// The modified Bessel functions I0 and I1, near for |x| < 8, where z = (x / 2)^2; far
// for a >= 8, divided by e^a.
fn i0_near(z: f32) -> f32 {
  return 1.0 + z * (1.0 + z * (0.25000003 + z * (2.77777314e-2 + z * (1.73614582e-3
       + z * (6.94303817e-5 + z * (1.93236497e-6 + z * (3.88779284e-8
       + z * (6.59150678e-10 + z * (5.24536707e-12 + z * 1.41906601e-13)))))))));
}

fn i0_far(a: f32) -> f32 {
  let u = 8.0 / a;
  return (0.398942292 + u * (6.23369962e-3 + u * (4.35907219e-4 + u * (6.6018154e-5
       + u * (-3.41690634e-6 + u * 1.18537409e-5))))) / sqrt(a);
}

fn i1_near(a: f32, z: f32) -> f32 {
  return a * (0.5 + z * (0.25000003 + z * (4.16666046e-2 + z * (3.47229303e-3
       + z * (1.73573513e-4 + z * (5.79799871e-6 + z * (1.35916665e-7
       + z * (2.65065281e-9 + z * (2.29670675e-11 + z * 7.21017538e-13)))))))));
}

fn i1_far(a: f32) -> f32 {
  let u = 8.0 / a;
  return (0.398942292 + u * (-1.8700676e-2 + u * (-7.27787905e-4
       + u * (-9.00355299e-5 + u * (2.24029418e-6 - u * 1.37550996e-5))))) / sqrt(a);
}

fn i0f(x: f32) -> f32 {
  let a = abs(x);
  if (a < 8.0) { return i0_near(0.25 * a * a); }
  let e = expf(0.5 * a);  // e^a may overflow where the product does not
  return if_finite(x, e * i0_far(a) * e);
}

fn i0ef(x: f32) -> f32 {
  let a = abs(x);
  if (a < 8.0) { return expf(-a) * i0_near(0.25 * a * a); }
  return select(i0_far(a), x, is_nan(x));
}

// 0.0 for -0.0, as in torch.
fn i1f(x: f32) -> f32 {
  let a = abs(x);
  let sign = select(1.0, -1.0, x < 0.0);
  if (a < 8.0) { return sign * i1_near(a, 0.25 * a * a); }
  let e = expf(0.5 * a);
  return if_finite(x, sign * e * i1_far(a) * e);
}

fn i1ef(x: f32) -> f32 {
  let a = abs(x);
  let sign = select(1.0, -1.0, x < 0.0);
  if (a < 8.0) { return sign * expf(-a) * i1_near(a, 0.25 * a * a); }
  return select(sign * i1_far(a), x, is_nan(x));
}

// log(gamma(1 + t)) for 0 <= t <= 1.25, accurate also near its zeros, 0 and 1.
fn log_gamma_1p(t: f32) -> f32 {
  return t * (t - 1.0) * (0.577215672 + t * (-0.245250985 + t * (0.155421302
       + t * (-0.11497312 + t * (9.10239741e-2 + t * (-7.21932277e-2
       + t * (5.25707267e-2 + t * (-3.15127037e-2 + t * (1.37721794e-2
       + t * (-3.76256998e-3 + t * 4.7309135e-4))))))))));
}

// gamma(1 + x) = g.x * gamma(1 + g.y), 0 <= g.y <= 1, for 0 <= x < 8.
fn reduce_gamma(x: f32) -> vec2<f32> {
  var g = vec2<f32>(1.0, x);
  for (var k = 0; k < 7 && g.y > 1.0; k++) { g = vec2<f32>(g.x * g.y, g.y - 1.0); }
  return g;
}

fn log_gamma_positive(x: f32) -> f32 {
  if (x < 1.0) { return log_gamma_1p(x) - logf(x); }
  if (x < 8.0) {
    let g = reduce_gamma(x - 1.0);
    return logf(g.x) + log_gamma_1p(g.y);
  }
  let r = 1.0 / x;
  let z = r * r;
  let tail = r * (8.3333333e-2 - z * (2.7777778e-3 - z * (7.9365079e-4
           - z * 5.952381e-4)));
  return (x - 0.5) * (logf(x) - 1.0) + (0.4189385332 + tail);
}

fn lgammaf(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let a = abs(x);
  let d = x - round(x);
  if (is_inf(x) || (d == 0.0 && x <= 0.0)) { return inf(); }
  let y = log_gamma_positive(a);
  if (x > 0.0 || a < 1e-10) { return y; }
  // gamma(x) * gamma(-x) = -pi / (x * sin(pi * x))
  return logf(3.1415926536 / (a * abs(sinf(3.1415926536 * d)))) - y;
}

// cot(pi * x), accurate also near its zeros.
fn cot_pi(x: f32) -> f32 {
  let d = x - round(x);
  let a = abs(d);
  if (a > 0.25) { return copy_sign(tanf(3.1415926536 * (0.5 - a)), d); }
  return 1.0 / tanf(3.1415926536 * d);
}

fn digammaf(x: f32) -> f32 {
  if (x == 0.0) { return copy_sign(inf(), -x); }
  if (x < 0.0 && (is_inf(x) || x == round(x))) { return nan(); }
  var y = select(x, 1.0 - x, x < 0.0);
  var sum = 0.0;
  for (var k = 0; k < 6 && y < 6.0; k++) {
    sum += 1.0 / y;
    y += 1.0;
  }
  let r = 1.0 / y;
  let z = r * r;
  let tail = 0.5 * r + z * (8.3333333e-2 - z * (8.3333333e-3 - z * (3.968254e-3
           - z * 4.1666667e-3)));
  let positive = logf(y) - tail - sum;
  if (x < 0.0) { return positive - 3.1415926536 * cot_pi(x); }
  return positive;
}

// factor * the sum of ((x + k) * scale)^-s over all k >= 0, for x >= 0 and
// 2 <= s <= 21: terms up to k = s + 8, and Euler and Maclaurin's formula for the others.
fn hurwitz_zeta(x: f32, s: f32, scale: f32, factor: f32) -> f32 {
  var coefficients = array<f32, 6>(8.3333333e-2, -1.3888889e-3, 3.3068783e-5,
                                   -8.2671958e-7, 2.0876757e-8, -5.2841901e-10);
  var a = x;
  var sum = 0.0;
  for (var k = 0; k < 29 && a < s + 8.0; k++) {
    sum += powf(a * scale, -s);
    a += 1.0;
  }
  let r = 1.0 / a;
  var rest = 0.0;
  var rising = s * r * r;
  for (var k = 0; k < 6; k++) {
    rest += coefficients[k] * rising;
    let next = s + f32(2 * k + 1);
    rising *= next * (next + 1.0) * r * r;
  }
  rest += 0.5 * r + 1.0 / (s - 1.0);
  return factor * sum + powf(a * scale, 1.0 - s) / scale * (factor * rest);
}

// x^a * e^-x / gamma(a + 1) for a, x > 0.
fn gamma_prefix(a: f32, x: f32) -> f32 {
  if (a < 8.0) {
    if (x > 200.0) { return 0.0; }
    let g = reduce_gamma(a);
    let e = expf(-0.5 * x);  // two factors, as x^a may be large where e^-x is no f32
    return powf(x, a) * e / (g.x * expf(log_gamma_1p(g.y))) * e;
  }
  let r = 1.0 / a;
  // Stirling's series.
  let star = 1.0 + r * (8.3333333e-2 + r * (3.4722222e-3 - r * (2.6813272e-3
           + r * 2.2947209e-4)));
  return expf(-a * gamma_exponent(a, x)) / (2.5066282746 * sqrt(a) * star);
}

// m - log(1 + m), m = x / a - 1.
fn gamma_exponent(a: f32, x: f32) -> f32 {
  let m = (x - a) / a;
  if (m > -0.29 && m < 0.41) { return -log_tail(m); }
  return m - logf(x / a);
}

// P(a, x) by its power series, fast where x < a or x is small.
fn lower_gamma_series(a: f32, x: f32) -> f32 {
  let prefix = gamma_prefix(a, x);
  if (prefix == 0.0) { return 0.0; }
  var term = 1.0;
  var sum = 1.0;
  for (var k = 1; k <= 100 && term > 3e-8 * sum; k++) {
    term *= x / (a + f32(k));
    sum += term;
  }
  return prefix * sum;
}

// Q(a, x) by its continued fraction (Lentz), fast where x > a and x > 1.
fn upper_gamma_fraction(a: f32, x: f32) -> f32 {
  let prefix = gamma_prefix(a, x);
  if (prefix == 0.0) { return 0.0; }
  var b = x + 1.0 - a;
  var c = 1e30;
  var d = 1.0 / b;
  var product = d;
  var change = 0.0;
  for (var k = 1; k <= 100 && abs(change - 1.0) > 6e-8; k++) {
    let n = f32(k);
    let numerator = n * (a - n);
    b += 2.0;
    d = 1.0 / (numerator * d + b);
    c = b + numerator / c;
    change = c * d;
    product *= change;
  }
  return prefix * a * product;
}

// Q(a, x) by its series for small x, where 1 - P(a, x) would cancel.
fn upper_gamma_series(a: f32, x: f32) -> f32 {
  var factor = 1.0;
  var sum = 0.0;
  for (var k = 1; k <= 20; k++) {
    factor *= -x / f32(k);
    sum += factor / (a + f32(k));
  }
  let e = expm1f(a * logf(x) - log_gamma_1p(a));
  return -e - a * (e + 1.0) * sum;
}

// Temme's expansion for large a and x near it: Q(a, x) if x > a, else P(a, x).
fn gamma_tail(a: f32, x: f32) -> f32 {
  let f = gamma_exponent(a, x);
  let y = sqrt(a * f);
  let e = expf(-a * f);
  let n = copy_sign(sqrt(2.0 * f), x - a);
  let c0 = -0.333333333 + n * (8.33333333e-2 + n * (-1.48148148e-2
         + n * (1.15740741e-3 + n * (3.52733686e-4 + n * (-1.78755144e-4
         + n * 3.91926318e-5)))));
  let c1 = -1.85185185e-3 + n * (-3.47222222e-3 + n * (2.64550265e-3
         + n * (-9.90226337e-4 + n * 2.05761317e-4)));
  let c2 = 4.13359788e-3 + n * (-2.68132716e-3 + n * 7.71604938e-4);
  let r = 1.0 / a;
  let series = (c0 + r * (c1 + r * (c2 + r * 6.49434156e-4))) / (2.5066282746 * sqrt(a));
  var normal = 0.5 * e * erfc_scaled(y);
  if (y < 0.65) { normal = 0.5 * erfc(y); }
  return normal + e * select(-series, series, x > a);
}

fn is_gamma_tail(a: f32, x: f32) -> bool {
  let m = (x - a) / a;
  return a >= 20.0 && m > -0.29 && m < 0.41;
}

// P(a, x) where it needs no series; else -1.
fn lower_gamma_limit(a: f32, x: f32) -> f32 {
  if (a < 0.0 || x < 0.0) { return nan(); }
  if (a == 0.0) { return select(nan(), 1.0, x > 0.0); }
  if (x == 0.0) { return 0.0; }
  if (is_inf(a)) { return select(0.0, nan(), is_inf(x)); }
  if (is_inf(x)) { return 1.0; }
  return select(-1.0, nan(), is_nan(a) || is_nan(x));
}

fn igammaf(a: f32, x: f32) -> f32 {
  let limit = lower_gamma_limit(a, x);
  if (is_nan(limit) || limit >= 0.0) { return limit; }
  if (is_gamma_tail(a, x)) {
    let tail = gamma_tail(a, x);
    return select(tail, 1.0 - tail, x > a);
  }
  if (x > 1.0 && x > a) { return 1.0 - upper_gamma_fraction(a, x); }
  return lower_gamma_series(a, x);
}

fn igammacf(a: f32, x: f32) -> f32 {
  let limit = lower_gamma_limit(a, x);
  if (is_nan(limit) || limit >= 0.0) { return 1.0 - limit; }
  if (is_gamma_tail(a, x)) {
    let tail = gamma_tail(a, x);
    return select(1.0 - tail, tail, x > a);
  }
  if (x > 1.1 && x >= a) { return upper_gamma_fraction(a, x); }
  let is_small = x <= 1.1 && select(x * 1.1 >= a, -0.4 / logf(x) >= a, x <= 0.5);
  if (is_small) { return upper_gamma_series(a, x); }
  return 1.0 - lower_gamma_series(a, x);
}

// Numbers as integers in the same order: both zeros are 0.
fn ordered_bits(x: f32) -> i32 {
  let magnitude = bitcast<i32>(x) & 0x7fffffff;
  return select(magnitude, -magnitude, bitcast<i32>(x) < 0);
}

// The neighbour of x towards y among numbers whose bits are `gap` apart: all f32 with
// 1, all bfloat16 with 2^16. By bits alone, as numbers may be subnormal.
fn next_after(x: f32, y: f32, gap: i32) -> f32 {
  if (is_nan(x) || is_nan(y)) { return nan(); }
  let from_bits = ordered_bits(x);
  let to_bits = ordered_bits(y);
  if (from_bits == to_bits) { return y; }
  let moved = from_bits + select(-gap, gap, to_bits > from_bits);
  let negative = moved < 0 || (moved == 0 && from_bits < 0);
  return bitcast<f32>(u32(abs(moved)) | select(0u, 0x80000000u, negative));
}

// The same among float16, whose subnormal numbers are 2^-24 apart.
fn next_half(x: f32, y: f32) -> f32 {
  if (is_nan(x) || is_nan(y) || x == y) { return next_after(x, y, 1); }
  if (is_inf(x)) { return copy_sign(65504.0, x); }
  if (abs(x) > 6.103515625e-5) { return next_after(x, y, 0x2000); }
  let moved = x + select(-5.9604644775390625e-8, 5.9604644775390625e-8, y > x);
  return select(moved, copy_sign(0.0, x), moved == 0.0);
}

// x = m * 2^n, 0.5 <= |m| < 1: m, and n below. By bits, as x may be subnormal.
fn mantissa_of(x: f32) -> f32 {
  let magnitude = bitcast<u32>(x) & 0x7fffffffu;
  if (magnitude == 0u || magnitude >= 0x7f800000u) { return x; }
  let shift = max(countLeadingZeros(magnitude), 8u) - 8u;
  let bits = ((magnitude << shift) & 0x007fffffu) | 0x3f000000u;
  return bitcast<f32>(bits | (bitcast<u32>(x) & 0x80000000u));
}

fn exponent_of(x: f32) -> i32 {
  let magnitude = bitcast<u32>(x) & 0x7fffffffu;
  if (magnitude == 0u || magnitude >= 0x7f800000u) { return 0; }
  let shift = i32(max(countLeadingZeros(magnitude), 8u)) - 8;
  return max(i32(magnitude >> 23u), 1) - 126 - shift;
}
