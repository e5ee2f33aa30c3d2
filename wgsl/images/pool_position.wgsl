// Library: (plane, depth, height, width) of the pooling output at row-major index i.
// Supplied: out_at, DIMS.
fn output_position(i: i32) -> vec4<i32> {
  let row = i / out_at(2);
  let w = i - row * out_at(2);
  let slice = row / out_at(1);
  let h = row - slice * out_at(1);
  if (DIMS == 2) { return vec4<i32>(slice, 0, h, w); }
  let plane = slice / out_at(0);
  return vec4<i32>(plane, slice - plane * out_at(0), h, w);
}
