// Dynamic quantization: every row to the integers from p.low to p.high, onto which the
// range from its smallest to its largest element, including 0, is mapped:
//   scale = (max - min) / (high - low), zero = clamp(low - round(min / scale)),
//   q = clamp(round(x / scale) + zero).
// Stored for each row: its codes, four in a word, then the scale's bits, then zero.
// A row of p.words times four elements per ALONG invocations: one, or a workgroup.
// Supplied: get_x4, put_y, row_low(id, v), row_high(id, v) (over the invocations of a
// row); p.rows, p.words, p.low, p.high, p.eps (least scale); ALONG, WG.
fn group_invocation(group: i32, local: i32) {
  let t = group * WG + local;
  let live = t / ALONG < p.rows;
  // Invocations beyond the last row take part in the barriers.
  let row = min(t / ALONG, p.rows - 1);
  let id = t % ALONG;
  var low = 0.0;
  var high = 0.0;
  for (var k = id; k < p.words; k += ALONG) {
    let x = get_x4(row * p.words + k);
    low = min_nan(min_nan(low, min_nan(x.x, x.y)), min_nan(x.z, x.w));
    high = max_nan(max_nan(high, max_nan(x.x, x.y)), max_nan(x.z, x.w));
  }
  low = row_low(id, low);
  high = row_high(id, high);
  var scale = (high - low) / (p.high - p.low);
  scale = select(scale, p.eps, scale < p.eps);
  let zero = clamp(p.low - round(low / scale), p.low, p.high);
  let inverse = 1.0 / scale;
  if (!live) { return; }
  let first = row * (p.words + 2);
  for (var k = id; k < p.words; k += ALONG) {
    let x = round(get_x4(row * p.words + k) * inverse) + zero;
    let codes = vec4<i32>(clamp(x, vec4<f32>(p.low), vec4<f32>(p.high)));
    put_y(first + k, bitcast<i32>(pack4xI8(codes)));
  }
  if (id == 0) {
    // Dequantized, 0 times an infinite scale is NaN: so is the scale itself.
    put_y(first + p.words, bitcast<i32>(if_finite(scale, scale)));
    put_y(first + p.words + 1, i32(zero));
  }
}
