// y[o] = cubic convolution (a = -0.75) of x at the centre of o, in a plane.
// One output per invocation, 16 reads; taps outside repeat the border.
// Supplied: get_x, put_y, output_position, input_index and centre (resample_position),
// cubic_weights (cubic), p.scale_y, p.scale_x.
fn invocation(i: i32) {
  let o = output_position(i);
  let x = centre(o.w, p.scale_x);
  let y = centre(o.z, p.scale_y);
  let wx = cubic_weights(x - floor(x), -0.75);
  let wy = cubic_weights(y - floor(y), -0.75);
  var columns: array<i32, 4>;
  for (var k = 0; k < 4; k++) {
    columns[k] = clamp(i32(floor(x)) + k - 1, 0, in_at(2) - 1);
  }
  var sum = 0.0;
  for (var k = 0; k < 4; k++) {
    let row = input_index(o.x, 0, clamp(i32(floor(y)) + k - 1, 0, in_at(1) - 1), 0);
    let taps = vec4<f32>(
      get_x(row + columns[0]), get_x(row + columns[1]),
      get_x(row + columns[2]), get_x(row + columns[3]));
    sum += wy[k] * dot(taps, wx);
  }
  put_y(i, sum);
}
