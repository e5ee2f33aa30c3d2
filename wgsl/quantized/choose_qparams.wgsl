// The scale and zero point that map the range of a row, from its smallest to its
// largest element and including 0, onto the integers p.low to p.high.
// One row of p.length elements per invocation.
// MODE 0, asymmetric: scale = (max - min) / (high - low),
//                     zero = clamp(low - round(min / scale)).
// MODE 1, symmetric: scale = max(-min, max) / ((high - low) / 2).
// MODE 2, symmetric, nothing clipped: scale = max(min / low, max / high).
// Supplied: get_x, put_scale, put_zero, rounded (to the type that torch computes in);
// p.length, p.low, p.high, p.middle (the zero point of the symmetric modes), p.eps (the
// least scale); MODE.
fn invocation(row: i32) {
  var low = 0.0;
  var high = 0.0;
  for (var k = 0; k < p.length; k++) {
    let x = get_x(row * p.length + k);
    low = min_nan(low, x);
    high = max_nan(high, x);
  }
  var scale = 0.0;
  if (MODE == 0) {
    scale = rounded(rounded(high - low) / (p.high - p.low));
  } else if (MODE == 1) {
    scale = rounded(max_nan(-low, high) / ((p.high - p.low) / 2.0));
  } else {
    scale = max_nan(rounded(low / p.low), rounded(high / p.high));
  }
  scale = select(scale, p.eps, scale < p.eps);
  var zero = p.middle;
  if (MODE == 0) {
    zero = i32(clamp(p.low - round(rounded(low / scale)), p.low, p.high));
  }
  put_scale(row, scale);
  put_zero(row, zero);
}
