// y[o] = max of x over the window of o; index[o] = the index of that element in its
// plane.
// One output per invocation; a NaN in the window wins.
// Supplied: get_x, put_y, store_index, in_at, dilation_at, window (pool_window,
// pool_fractional), output_position (pool_position), lowest and above for the element
// type.
fn invocation(i: i32) {
  let o = output_position(i);
  let back = inside(window(o.x, o.y, 0), 0);
  let down = inside(window(o.x, o.z, 1), 1);
  let across = inside(window(o.x, o.w, 2), 2);
  let plane = o.x * in_at(0) * in_at(1) * in_at(2);
  var best = lowest();
  var at = (back.x * in_at(1) + down.x) * in_at(2) + across.x;
  for (var z = back.x; z < back.y; z += dilation_at(0)) {
    for (var y = down.x; y < down.y; y += dilation_at(1)) {
      let row = (z * in_at(1) + y) * in_at(2);
      for (var x = across.x; x < across.y; x += dilation_at(2)) {
        let value = get_x(plane + row + x);
        if (above(value, best)) {
          best = value;
          at = row + x;
        }
      }
    }
  }
  put_y(i, best);
  store_index(i, at);
}

// A window cut to the input, starting at the first tap that is inside.
fn inside(span: vec2<i32>, d: i32) -> vec2<i32> {
  let dilation = dilation_at(d);
  let skip = (max(-span.x, 0) + dilation - 1) / dilation * dilation;
  return vec2<i32>(span.x + skip, min(span.y, in_at(d)));
}
