// Library: four elements of x from index `at` on, of which the first `left` are in the
// group and the row; the others are 0.
// Supplied: get_x, of floats or of quantized values.
fn guarded_floats(at: i32, left: i32) -> vec4<f32> {
  let x = vec4<f32>(get_x(at), get_x(at + 1), get_x(at + 2), get_x(at + 3));
  return select(vec4<f32>(), x, vec4<i32>(0, 1, 2, 3) < vec4<i32>(left));
}
fn guarded_codes(at: i32, left: i32) -> vec4<i32> {
  let x = vec4<i32>(get_x(at), get_x(at + 1), get_x(at + 2), get_x(at + 3));
  return select(vec4<i32>(), x, vec4<i32>(0, 1, 2, 3) < vec4<i32>(left));
}
