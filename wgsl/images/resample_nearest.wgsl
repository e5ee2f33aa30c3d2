// y[o] = x[floor((o + OFFSET) * scale)] along each of DIMS dimensions.
// One output per invocation. OFFSET is 0, or 0.5 for the exact variant.
// Supplied: get_x, put_y, in_at, DIMS, OFFSET, output_position and input_index
// (resample_position), p.scale_z, p.scale_y, p.scale_x.
fn source(o: i32, scale: f32, d: i32) -> i32 {
  return min(i32(floor((f32(o) + OFFSET) * scale)), in_at(d) - 1);
}
fn invocation(i: i32) {
  let o = output_position(i);
  var z = 0;
  var y = 0;
  if (DIMS > 2) { z = source(o.y, p.scale_z, 0); }
  if (DIMS > 1) { y = source(o.z, p.scale_y, 1); }
  put_y(i, get_x(input_index(o.x, z, y, source(o.w, p.scale_x, 2))));
}
