// y[o] = linear interpolation of x at the centre of o, along DIMS dimensions.
// One output per invocation, 2^DIMS reads.
// Supplied: get_x, put_y, in_at, DIMS, output_position, input_index and centre
// (resample_position), p.scale_z, p.scale_y, p.scale_x.
struct Tap { low: i32, high: i32, weight: f32 }  // of high; low has the rest

fn tap(o: i32, scale: f32, d: i32) -> Tap {
  let at = max(centre(o, scale), 0.0);
  let low = min(i32(at), in_at(d) - 1);
  return Tap(low, min(low + 1, in_at(d) - 1), clamp(at - f32(low), 0.0, 1.0));
}
fn along_x(plane: i32, z: i32, y: i32, x: Tap) -> f32 {
  let row = input_index(plane, z, y, 0);
  return get_x(row + x.low) * (1.0 - x.weight) + get_x(row + x.high) * x.weight;
}
fn along_y(plane: i32, z: i32, y: Tap, x: Tap) -> f32 {
  let low = along_x(plane, z, y.low, x);
  if (DIMS == 1) { return low; }
  return low * (1.0 - y.weight) + along_x(plane, z, y.high, x) * y.weight;
}
fn invocation(i: i32) {
  let o = output_position(i);
  let x = tap(o.w, p.scale_x, 2);
  let y = tap(o.z, p.scale_y, 1);
  let z = tap(o.y, p.scale_z, 0);
  var value = along_y(o.x, z.low, y, x);
  if (DIMS == 3) {
    value = value * (1.0 - z.weight) + along_y(o.x, z.high, y, x) * z.weight;
  }
  put_y(i, value);
}
