// Dynamic quantization and back: every row is quantized to the integers from p.low to
// p.high, onto which the range from its smallest to its largest element, including 0,
// is mapped, and dequantized:
//   scale = (max - min) / (high - low), zero = clamp(low - round(min / scale)),
//   y = (clamp(round(x / scale) + zero) - zero) * scale.
// A row of p.length elements per ALONG invocations: one, or a workgroup.
// Supplied: get_x, put_y, row_low(id, v), row_high(id, v) (over the invocations of a
// row); p.rows, p.length, p.low, p.high, p.eps (least scale); ALONG, WG.
fn group_invocation(group: i32, local: i32) {
  let t = group * WG + local;
  let live = t / ALONG < p.rows;
  // Invocations beyond the last row take part in the barriers.
  let first = min(t / ALONG, p.rows - 1) * p.length;
  let id = t % ALONG;
  var low = 0.0;
  var high = 0.0;
  for (var k = id; k < p.length; k += ALONG) {
    let x = get_x(first + k);
    low = min_nan(low, x);
    high = max_nan(high, x);
  }
  low = row_low(id, low);
  high = row_high(id, high);
  var scale = (high - low) / (p.high - p.low);
  scale = select(scale, p.eps, scale < p.eps);
  let zero = clamp(p.low - round(low / scale), p.low, p.high);
  let inverse = 1.0 / scale;
  if (!live) { return; }
  for (var k = id; k < p.length; k += ALONG) {
    let code = clamp(round(get_x(first + k) * inverse) + zero, p.low, p.high);
    put_y(first + k, (code - zero) * scale);
  }
}
