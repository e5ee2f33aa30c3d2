// y[n, c, o] = x[n, c] by cubic convolution (a = -0.75) at grid[n, o], (x, y).
// One output per invocation, 16 reads; each tap is padded on its own.
// Supplied: get_grid, put_y, in_at, unnormalize, padded_position, cell and sample
// (sample_coordinates), cubic_weights (cubic), p.channels, p.points.
fn invocation(i: i32) {
  let plane = i / p.points;
  let at = plane / p.channels * p.points + (i - plane * p.points);
  let x = unnormalize(get_grid(at * 2), f32(in_at(2)));
  let y = unnormalize(get_grid(at * 2 + 1), f32(in_at(1)));
  let wx = cubic_weights(x - floor(x), -0.75);
  let wy = cubic_weights(y - floor(y), -0.75);
  var sum = 0.0;
  for (var k = 0; k < 4; k++) {
    let row = cell(padded_position(floor(y) + f32(k - 1), 1));
    var line = 0.0;
    for (var m = 0; m < 4; m++) {
      let column = cell(padded_position(floor(x) + f32(m - 1), 2));
      line += wx[m] * sample(plane, 0, row, column);
    }
    sum += wy[k] * line;
  }
  put_y(i, sum);
}
