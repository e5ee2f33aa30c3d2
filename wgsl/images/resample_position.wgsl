// Library: coordinates of a resampling, in planes of depth, height and width.
// Supplied: in_at, out_at (three extents each), DIMS, ALIGN_CORNERS.
fn output_position(i: i32) -> vec4<i32> {
  let row = i / out_at(2);
  let w = i - row * out_at(2);
  if (DIMS == 1) { return vec4<i32>(row, 0, 0, w); }
  let slice = row / out_at(1);
  let h = row - slice * out_at(1);
  if (DIMS == 2) { return vec4<i32>(slice, 0, h, w); }
  let plane = slice / out_at(0);
  return vec4<i32>(plane, slice - plane * out_at(0), h, w);
}
fn input_index(plane: i32, z: i32, y: i32, x: i32) -> i32 {
  return ((plane * in_at(0) + z) * in_at(1) + y) * in_at(2) + x;
}
// The centre of output o in the input's coordinates.
fn centre(o: i32, scale: f32) -> f32 {
  if (ALIGN_CORNERS) { return f32(o) * scale; }
  return (f32(o) + 0.5) * scale - 0.5;
}
