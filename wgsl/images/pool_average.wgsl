// y[o] = (sum of x over the window of o) / divisor, one output per invocation.
// The divisor is p.divisor if that is not 0, else the window's size, in which padding
// counts if COUNT_PADDING.
// Supplied: get_x, put_y, in_at, pad_at, p.divisor, COUNT_PADDING, window
// (pool_window), output_position (pool_position).
fn invocation(i: i32) {
  let o = output_position(i);
  var spans = array<vec2<i32>, 3>(
    window(o.x, o.y, 0), window(o.x, o.z, 1), window(o.x, o.w, 2));
  var covered = 1;
  var valid = 1;
  for (var d = 0; d < 3; d++) {
    // A window that ceil_mode lets hang over the padding counts only up to it.
    covered *= min(spans[d].y, in_at(d) + pad_at(d)) - spans[d].x;
    spans[d] = vec2<i32>(max(spans[d].x, 0), min(spans[d].y, in_at(d)));
    valid *= max(spans[d].y - spans[d].x, 0);
  }
  let plane = o.x * in_at(0) * in_at(1) * in_at(2);
  var sum = 0.0;
  for (var z = spans[0].x; z < spans[0].y; z++) {
    for (var y = spans[1].x; y < spans[1].y; y++) {
      let row = plane + (z * in_at(1) + y) * in_at(2);
      for (var x = spans[2].x; x < spans[2].y; x++) {
        sum += get_x(row + x);
      }
    }
  }
  let counted = select(valid, covered, COUNT_PADDING);
  let divisor = select(counted, p.divisor, p.divisor != 0);
  // A window without any input gives 0, whatever the divisor.
  put_y(i, select(sum / f32(divisor), 0.0, valid == 0));
}
