// Library: elementary functions of f32 with errors of at most about 2 ulp.
// WGSL bounds the errors of exp, log, sin, tanh, pow and the like so loosely that
// drivers differ by thousands of ulp; these use only arithmetic, so that all drivers
// agree. Names are C's. NaN, infinities and signed zeros are as in C.
// A kernel gets only the functions that it calls.

// x with 12 significant bits: a product of two such numbers is exact.
fn high_part(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// 2^n for -126 <= n <= 127.
fn power_of_two(n: i32) -> f32 {
  return bitcast<f32>(u32(n + 127) << 23u);
}

// x * 2^n for |n| <= 252, in two products so that the result may be subnormal.
fn scale_by_power(x: f32, n: i32) -> f32 {
  let half = n >> 1u;
  return x * power_of_two(half) * power_of_two(n - half);
}

fn copy_sign(x: f32, s: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(s) & 0x80000000u));
}

// e^r - 1 - r for |r| <= ln(2) / 2.
fn exp_tail(r: f32) -> f32 {
  return r * r * (0.5 + r * (1.6666667e-1 + r * (4.1666355e-2 + r * (8.333274e-3
       + r * (1.3941022e-3 + r * 1.9913574e-4)))));
}

fn expf(x: f32) -> f32 {
  let c = clamp(x, -104.0, 89.0);
  let n = round(c * 1.442695041);
  let r = (c - n * 0.693359375) + n * 2.1219444005469057e-4;
  let y = scale_by_power(1.0 + (r + exp_tail(r)), i32(n));
  return select(y, x, is_nan(x));
}

fn exp2f(x: f32) -> f32 {
  let c = clamp(x, -151.0, 129.0);
  let n = round(c);
  let r = (c - n) * 0.6931471805599453;
  let y = scale_by_power(1.0 + (r + exp_tail(r)), i32(n));
  return select(y, x, is_nan(x));
}

fn expm1f(x: f32) -> f32 {
  let c = clamp(x, -18.0, 89.0);
  let n = round(c * 1.442695041);
  let r = (c - n * 0.693359375) + n * 2.1219444005469057e-4;
  let m = r + exp_tail(r);
  // 2^n * m + (2^n - 1); halved while it is scaled, as 2^128 is not an f32.
  let s = power_of_two(i32(n) - 1);
  let y = select((s * m + (s - 0.5)) * 2.0, m, n == 0.0);
  // x itself where e^x - 1 rounds to it: keeps -0.0 and subnormals.
  return select(y, x, is_nan(x) || abs(x) < 1e-10);
}

// log(1 + f) - f for sqrt(1/2) - 1 <= f <= sqrt(2) - 1.
fn log_tail(f: f32) -> f32 {
  let q = 3.333331e-1 + f * (-2.4999987e-1 + f * (2.0002227e-1 + f * (-1.6669251e-1
        + f * (1.4218658e-1 + f * (-1.2384348e-1 + f * (1.1872976e-1
        + f * (-1.1789808e-1 + f * 6.915368e-2)))))));
  return f * f * (f * q - 0.5);
}

// The exponent k and m - 1 of a positive, finite x = 2^k * m, sqrt(1/2) <= m < sqrt(2).
fn split_exponent(x: f32) -> vec2<f32> {
  let tiny = x < 1.17549435e-38;
  let bits = bitcast<u32>(select(x, x * 16777216.0, tiny)) - 0x3f3504f3u;
  let m = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u);
  return vec2<f32>(f32((bitcast<i32>(bits) >> 23u) - select(0, 24, tiny)), m - 1.0);
}

// y, or the logarithm of x where that is not finite.
fn log_special(x: f32, y: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) == 0u) { return -inf(); }
  if (bits >= 0x7f800000u) { return select(nan(), x, bits == 0x7f800000u); }
  return y;
}

fn logf(x: f32) -> f32 {
  let e = split_exponent(x);
  let y = e.y + (log_tail(e.y) - e.x * 2.1219444005469057e-4);
  return log_special(x, y + e.x * 0.693359375);
}

// log2(e) and log10(e) are split into a number of few bits, whose products are exact or
// nearly so, and a small rest.
fn log2f(x: f32) -> f32 {
  let e = split_exponent(x);
  let t = log_tail(e.y);
  let low = t * 0.4426950408889634 + e.y * 0.4426950408889634;
  return log_special(x, (low + t) + e.y + e.x);
}

fn log10f(x: f32) -> f32 {
  let e = split_exponent(x);
  let t = log_tail(e.y);
  let low = t * 0.4342944819032518 + e.y * 7.007319032518276e-4;
  let y = (low + e.x * 2.487456639811952e-4) + e.y * 0.43359375;
  return log_special(x, y + e.x * 0.30078125);
}

fn log1pf(x: f32) -> f32 {
  // Where 1 + x would lose the low bits of a small x, it is not formed.
  if (x > -0.29 && x < 0.41) { return x + log_tail(x); }
  return select(logf(1.0 + x), x, is_nan(x));
}

// x = n * pi/2 + r, |r| <= pi/4; gives r and n mod 4 for |x| < 3000.
fn reduce_medium(x: f32) -> vec2<f32> {
  let n = round(x * 0.6366197723675814);
  // pi/2 as a sum of numbers of 12 bits: the first two products and differences are
  // exact.
  let r = ((x - n * 1.5703125) - n * 4.837512969970703e-4) - n * 7.549533620476723e-8;
  return vec2<f32>(r - n * 2.563344151594519e-12, f32(i32(n) & 3));
}

fn multiply_high(a: u32, b: u32) -> u32 {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let bh = b >> 16u;
  let middle = ah * bl + ((al * bl) >> 16u);
  let carry = (middle & 0xffffu) + al * bh;
  return ah * bh + (middle >> 16u) + (carry >> 16u);
}

// The same for any finite |x| >= 2048: the 96 bits of 2/pi that matter for x's
// exponent times x's mantissa (Payne and Hanek).
fn reduce_large(x: f32) -> vec2<f32> {
  var digits = array<u32, 8>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                             0xdb629599u, 0x3c439041u, 0xfe5163abu);
  let bits = bitcast<u32>(x) & 0x7fffffffu;
  let m = (bits & 0x007fffffu) | 0x00800000u;
  // A non-finite x gets some valid index; its result is not used.
  let start = min((bits >> 23u) - 120u, 134u);
  let at = start >> 5u;
  let left = start & 31u;
  let right = (32u - left) & 31u;
  let keep = select(0xffffffffu, 0u, left == 0u);
  let w0 = (digits[at] << left) | ((digits[at + 1u] >> right) & keep);
  let w1 = (digits[at + 1u] << left) | ((digits[at + 2u] >> right) & keep);
  let w2 = (digits[at + 2u] << left) | ((digits[at + 3u] >> right) & keep);
  // (2 bits of n).(94 bits of fraction)
  let q2 = m * w2;
  let high2 = multiply_high(m, w2);
  let q1 = m * w1 + high2;
  var q0 = m * w0 + multiply_high(m, w1) + select(0u, 1u, q1 < high2);
  let n = (q0 + 0x20000000u) >> 30u;
  q0 = q0 - (n << 30u);
  let negative = bitcast<i32>(q0) < 0;
  let a0 = select(q0, ~q0, negative);
  let a1 = select(q1, ~q1, negative);
  let a2 = select(q2, ~q2, negative);
  let high = select(a0, a1, a0 == 0u);
  let low = select(a1, a2, a0 == 0u);
  let zeros = min(countLeadingZeros(high), 31u);
  let top = (high << zeros) | select(low >> ((32u - zeros) & 31u), 0u, zeros == 0u);
  let scale = power_of_two(-30 - i32(zeros) - select(0, 32, a0 == 0u));
  var r = f32(top) * scale * 1.5707963267948966;
  r = select(r, -r, negative != (x < 0.0));
  return vec2<f32>(r, f32(select(n, 0u - n, x < 0.0) & 3u));
}

fn reduce_angle(x: f32) -> vec2<f32> {
  if (abs(x) < 3000.0) { return reduce_medium(x); }
  return reduce_large(x);
}

fn sin_near(r: f32) -> f32 {
  let z = r * r;
  return r + r * z * (-1.6666667e-1 + z * (8.333329e-3 + z * (-1.9839327e-4
       + z * 2.7182373e-6)));
}

fn cos_near(r: f32) -> f32 {
  let z = r * r;
  return (1.0 - 0.5 * z) + z * z * (4.1666668e-2 + z * (-1.3888883e-3
       + z * (2.4799512e-5 - z * 2.7209546e-7)));
}

fn sinf(x: f32) -> f32 {
  let a = reduce_angle(x);
  let y = select(sin_near(a.x), cos_near(a.x), a.y == 1.0 || a.y == 3.0);
  let z = select(select(y, -y, a.y >= 2.0), x, abs(x) < 1e-10);
  return select(z, nan(), is_nan(x) || is_inf(x));
}

fn cosf(x: f32) -> f32 {
  let a = reduce_angle(x);
  let y = select(cos_near(a.x), sin_near(a.x), a.y == 1.0 || a.y == 3.0);
  let z = select(y, -y, a.y == 1.0 || a.y == 2.0);
  return select(z, nan(), is_nan(x) || is_inf(x));
}

fn tanf(x: f32) -> f32 {
  let a = reduce_angle(x);
  let s = sin_near(a.x);
  let c = cos_near(a.x);
  let y = select(s / c, -c / s, a.y == 1.0 || a.y == 3.0);
  return select(select(y, x, abs(x) < 1e-10), nan(), is_nan(x) || is_inf(x));
}

// asin(x) - x for |x| <= 0.5.
fn asin_tail(x: f32) -> f32 {
  let z = x * x;
  return x * z * (1.666666e-1 + z * (7.500511e-2 + z * (4.451572e-2
       + z * (3.1817608e-2 + z * (1.4402615e-2 + z * 3.7565187e-2)))));
}

fn asinf(x: f32) -> f32 {
  let a = abs(x);
  if (a <= 0.5) { return x + asin_tail(x); }
  if (!(a <= 1.0)) { return nan(); }
  let s = sqrt(0.5 * (1.0 - a));
  let y = 1.5707963705 - (2.0 * (s + asin_tail(s)) + 4.3711390e-8);
  return copy_sign(y, x);
}

fn acosf(x: f32) -> f32 {
  let a = abs(x);
  if (a <= 0.5) { return 1.5707963705 - (x + (asin_tail(x) + 4.3711390e-8)); }
  if (!(a <= 1.0)) { return nan(); }
  let s = sqrt(0.5 * (1.0 - a));
  let y = 2.0 * (s + asin_tail(s));
  return select(y, 3.1415927410 - (y + 8.7422780e-8), x < 0.0);
}

fn atanf(x: f32) -> f32 {
  let a = abs(x);
  let steep = a > 2.414213562;
  let slanted = a > 0.414213562 && !steep;
  var t = select(a, (a - 1.0) / (a + 1.0), slanted);
  t = select(t, -1.0 / a, steep);
  let base = select(select(0.0, 0.7853981634, slanted), 1.5707963705, steep);
  let low = select(select(0.0, -2.1855695e-8, slanted), -4.3711390e-8, steep);
  let z = t * t;
  let tail = t * z * (-3.3333316e-1 + z * (1.9998488e-1 + z * (-1.4243802e-1
           + z * (1.0595638e-1 - z * 6.0824864e-2))));
  return select(copy_sign(base + (t + (tail + low)), x), x, is_nan(x));
}

fn atan2f(y: f32, x: f32) -> f32 {
  if (is_nan(x) || is_nan(y)) { return nan(); }
  let a = abs(x);
  let b = abs(y);
  let small = min(a, b);
  let large = max(a, b);
  var t = select(small / large, 0.0, large == 0.0);
  t = select(t, 1.0, is_inf(small));
  var angle = atanf(t);
  angle = select(angle, 1.5707963705 - (angle + 4.3711390e-8), b > a);
  let behind = (bitcast<u32>(x) & 0x80000000u) != 0u;
  angle = select(angle, 3.1415927410 - (angle + 8.7422780e-8), behind);
  return copy_sign(angle, y);
}

fn sinhf(x: f32) -> f32 {
  let a = abs(x);
  if (a > 80.0) {
    let w = expf(0.5 * a);
    return copy_sign(0.5 * w * w, x);
  }
  let t = expm1f(a);
  return select(copy_sign(0.5 * (t + t / (t + 1.0)), x), x, is_nan(x) || a < 1e-10);
}

fn coshf(x: f32) -> f32 {
  let a = abs(x);
  if (a > 80.0) {
    let w = expf(0.5 * a);
    return 0.5 * w * w;
  }
  let e = expf(a);
  return 0.5 * e + 0.5 / e;
}

fn tanhf(x: f32) -> f32 {
  let t = expm1f(-2.0 * abs(x));
  return select(copy_sign(t / (t + 2.0), x), x, is_nan(x) || abs(x) < 1e-10);
}

fn sigmoidf(x: f32) -> f32 {
  return 1.0 / (1.0 + expf(-x));
}

fn asinhf(x: f32) -> f32 {
  let a = abs(x);
  if (a > 1e9) { return copy_sign(logf(a) + 0.6931471806, x); }
  let z = a * a;
  let y = log1pf(a + z / (1.0 + sqrt(z + 1.0)));
  return select(copy_sign(y, x), x, is_nan(x) || a < 1e-10);
}

fn acoshf(x: f32) -> f32 {
  if (!(x >= 1.0)) { return nan(); }
  if (x > 1e9) { return logf(x) + 0.6931471806; }
  let t = x - 1.0;
  return log1pf(t + sqrt(2.0 * t + t * t));
}

fn atanhf(x: f32) -> f32 {
  let a = abs(x);
  if (!(a <= 1.0)) { return nan(); }
  let y = 0.5 * log1pf(2.0 * a / (1.0 - a));
  return copy_sign(select(y, inf(), a == 1.0), x);
}

fn hypotf(x: f32, y: f32) -> f32 {
  if (is_inf(x) || is_inf(y)) { return inf(); }
  let large = max_nan(abs(x), abs(y));
  let small = min_nan(abs(x), abs(y));
  // Scaled by a power of two, so that squares neither overflow nor vanish.
  let k = clamp(i32(bitcast<u32>(large) >> 23u) - 127, -100, 100);
  let a = large * power_of_two(-k);
  let b = small * power_of_two(-k);
  return sqrt(a * a + b * b) * power_of_two(k);
}

// |x|^y for 0 < |x| < inf and finite y: log2 and its product with y are sums of
// two f32, as an error in the exponent grows with its size.
fn power_finite(x: f32, y: f32) -> f32 {
  let e = split_exponent(abs(x));
  let f = e.y;
  let g = f + 2.0;
  let gh = high_part(g);
  let s = f / g;
  let sh = high_part(s);
  let sl = ((f - sh * gh) - sh * (f - (gh - 2.0))) / g;
  let z = s * s;
  let tail = sl + s * z * (3.333333e-1 + z * (2.0000167e-1 + z * (1.4268643e-1
           + z * 1.17913015e-1)));
  let uh = high_part(sh + tail);
  let ul = (sh - uh) + tail;
  // log2 m = 2 / ln 2 * (uh + ul)
  let ch = 2.884765625 * uh;
  let cl = 6.244567779268147e-4 * uh + 2.8853900817779268 * ul;
  let vh = high_part((e.x + ch) + cl);
  let vl = cl - ((vh - e.x) - ch);
  let yh = high_part(y);
  let ph = yh * vh;
  let pl = (y - yh) * vh + y * vl;
  let total = ph + pl;
  if (total > 129.0) { return inf(); }
  if (total < -151.0) { return 0.0; }
  let n = round(total);
  let r = ((ph - n) + pl) * 0.6931471805599453;
  return scale_by_power(1.0 + (r + exp_tail(r)), i32(n));
}

fn powf(x: f32, y: f32) -> f32 {
  if (y == 0.0 || x == 1.0) { return 1.0; }
  if (is_nan(x) || is_nan(y)) { return nan(); }
  let a = abs(x);
  let whole = trunc(y) == y;
  let odd = whole && abs(y) < 16777216.0 && (i32(y) & 1) == 1;
  let sign = select(1.0, -1.0, odd && (bitcast<u32>(x) >> 31u) == 1u);
  if (a == 0.0 || is_inf(a)) {
    return sign * select(0.0, inf(), (a == 0.0) == (y < 0.0));
  }
  if (is_inf(y)) {
    return select(select(0.0, inf(), (a > 1.0) == (y > 0.0)), 1.0, a == 1.0);
  }
  if (x < 0.0 && !whole) { return nan(); }
  return sign * power_finite(x, y);
}

// e^(x^2) * erfc(x) for x >= 0.65.
fn erfc_scaled(x: f32) -> f32 {
  let t = (x - 2.0) / (x + 2.0);
  return (1.0215827 + t * (-6.871607e-1 + t * (2.794721e-1 + t * (-3.644335e-2
       + t * (-2.1510405e-2 + t * (6.494177e-3 + t * (3.0811417e-3
       + t * (-9.1345e-4 + t * (-5.9539557e-4 + t * 1.7235466e-4)))))))))
       / (x + 2.0);
}

// e^(-c * x^2) for c * x^2 up to 144, with x^2 as a sum of an exact f32 and one that is
// so small, at most 0.15, that few terms are enough.
fn exp_square(x: f32, c: f32) -> f32 {
  let h = high_part(x);
  let t = -c * (x - h) * (x + h);
  let near = 1.0 + t * (1.0 + t * (0.5 + t * (0.16666667 + t * (0.041666668
           + t * 0.008333334))));
  return expf(-c * h * h) * near;
}

fn erf_near(x: f32) -> f32 {
  let z = x * x;
  return x + x * (1.2837917e-1 + z * (-3.7612638e-1 + z * (1.1283783e-1
       + z * (-2.6865445e-2 + z * (5.221075e-3 + z * (-8.484711e-4
       + z * (1.1270545e-4 - z * 9.680137e-6)))))));
}

fn erf(x: f32) -> f32 {
  let a = abs(x);
  if (is_nan(x)) { return x; }
  // erf_near's small terms would be below the normal numbers, which may be zero.
  if (a < 1e-6) { return x * 1.1283791670955126; }
  if (a < 1.0) { return erf_near(x); }
  let c = min(a, 4.0);
  return copy_sign(1.0 - expf(-c * c) * erfc_scaled(c), x);
}

fn erfc(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let a = min(abs(x), 12.0);
  if (a < 0.65) { return 1.0 - erf_near(x); }
  let y = exp_square(a, 1.0) * erfc_scaled(a);
  return select(y, 2.0 - y, x < 0.0);
}

// The normal distribution function, accurate also where it is tiny.
fn normal_cdf(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let c = min(abs(x), 16.0);
  let z = c * 0.7071067811865476;
  if (z < 0.75) { return 0.5 + 0.5 * erf_near(x * 0.7071067811865476); }
  let y = 0.5 * exp_square(c, 0.5) * erfc_scaled(z);
  return select(y, 1.0 - y, x > 0.0);
}

fn log_add_exp(a: f32, b: f32) -> f32 {
  if (is_inf(a) && a == b) { return a; }
  return max_nan(a, b) + log1pf(expf(-abs(a - b)));
}

fn x_log_y(x: f32, y: f32) -> f32 {
  return select(select(x * logf(y), 0.0, x == 0.0), y, is_nan(y));
}

// x * tanh(log(1 + e^x)), with tanh written in e^x.
fn mishf(x: f32) -> f32 {
  let n = expf(min(x, 20.0));
  let t = n * (n + 2.0);
  return select(x * (t / (t + 2.0)), x, x > 20.0);
}

fn soft_shrink(x: f32, lambda: f32) -> f32 {
  return select(select(x * 0.0, x + lambda, x < -lambda), x - lambda, x > lambda);
}

// log(x / (1 - x)), by log1p where that is close to 0.
fn logitf(x: f32) -> f32 {
  if (x > 0.25 && x < 0.75) { return log1pf((2.0 * x - 1.0) / (1.0 - x)); }
  return logf(x / (1.0 - x));
}

// Polynomials in -log(1 - x^2) near the middle and in its root in the tails.
fn erfinvf(x: f32) -> f32 {
  if (!(abs(x) <= 1.0)) { return nan(); }
  if (abs(x) == 1.0) { return copy_sign(inf(), x); }
  let w = -(log1pf(-abs(x)) + log1pf(abs(x)));
  if (w < 5.0) {
    let t = w - 2.5;
    return x * (1.5014094 + t * (2.4664073e-1 + t * (-4.1777077e-3
         + t * (-1.2537076e-3 + t * (2.1860219e-4 + t * (-4.396781e-6
         + t * (-3.5288595e-6 + t * (3.4372707e-7 + t * 2.853479e-8))))))));
  }
  let s = sqrt(w) - 3.0;
  return x * (2.8329768 + s * (1.0016748 + s * (9.444177e-3 + s * (-7.6347073e-3
       + s * (5.696173e-3 + s * (-3.6094682e-3 + s * (1.4615948e-3
       + s * (-3.3003937e-5 + s * (-2.9101968e-4 + s * 9.8500386e-5)))))))));
}
