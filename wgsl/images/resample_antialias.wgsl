// y[o] = weighted mean of x over the support of a filter, which is stretched by the
// scale where the image shrinks, so that every input element has a weight.
// One output per invocation, which computes the separable weights itself.
// Supplied: get_x, put_y, in_at, cubic_inner and cubic_outer (cubic), output_position
// and input_index (resample_position), CUBIC (a = -0.5; else linear), p.scale_y,
// p.scale_x.
fn filter_weight(distance: f32) -> f32 {
  let x = abs(distance);
  if (!CUBIC) { return max(1.0 - x, 0.0); }
  if (x < 1.0) { return cubic_inner(x, -0.5); }
  return select(0.0, cubic_outer(x, -0.5), x < 2.0);
}
struct Span { first: i32, end: i32, middle: f32, narrow: f32 }

fn span(o: i32, scale: f32, d: i32) -> Span {
  let stretch = max(scale, 1.0);
  let reach = select(1.0, 2.0, CUBIC) * stretch;
  let middle = scale * (f32(o) + 0.5);
  let first = max(i32(middle - reach + 0.5), 0);
  let end = min(i32(middle + reach + 0.5), in_at(d));
  return Span(first, end, middle, 1.0 / stretch);
}
fn invocation(i: i32) {
  let o = output_position(i);
  let down = span(o.z, p.scale_y, 1);
  let across = span(o.w, p.scale_x, 2);
  var sum = 0.0;
  var total_y = 0.0;
  var total_x = 0.0;
  for (var y = down.first; y < down.end; y++) {
    let wy = filter_weight((f32(y) - down.middle + 0.5) * down.narrow);
    let row = input_index(o.x, 0, y, 0);
    var line = 0.0;
    total_x = 0.0;
    for (var x = across.first; x < across.end; x++) {
      let wx = filter_weight((f32(x) - across.middle + 0.5) * across.narrow);
      line += wx * get_x(row + x);
      total_x += wx;
    }
    sum += wy * line;
    total_y += wy;
  }
  put_y(i, sum / (total_x * total_y));
}
