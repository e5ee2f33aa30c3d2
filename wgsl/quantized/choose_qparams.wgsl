// From the smallest and largest of a row (and 0): the scale and zero point that
// map the row onto the integers p.low to p.high.
// One row of p.length elements per invocation.
// MODE 0, asymmetric: scale = (max - min) / (high - low),
//                     zero = clamp(low - round(min / scale)).
// MODE 1, symmetric: scale = max(-min, max) / ((high - low) / 2).
// MODE 2, symmetric, nothing clipped: scale = max(min / low, max / high).
// Supplied: get_x, put_scale, put_zero, step (rounds a result as torch rounds it in the
// type that it computes in); p.length, p.low, p.high, p.middle, p.eps (least scale);
// MODE.
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
    scale = step(step(high - low) / (p.high - p.low));
  } else if (MODE == 1) {
    scale = step(max_nan(-low, high) / ((p.high - p.low) / 2.0));
  } else {
    scale = max_nan(step(low / p.low), step(high / p.high));
  }
  scale = select(scale, p.eps, scale < p.eps);
  var zero = p.middle;
  if (MODE == 0) { zero = i32(clamp(p.low - round(step(low / scale)), p.low, p.high)); }
  put_scale(row, scale);
  put_zero(row, zero);
}
