// y[n, c, o] = x[n, c] interpolated at grid[n, o], which holds (x, y[, z]).
// One output per invocation. NEAREST rounds half to even; else linear.
// Supplied: get_grid, put_y, in_at, unnormalize, padded_position, cell and sample
// (sample_coordinates), p.channels, p.points (of one grid), DIMS (2, 3), NEAREST.
fn position(at: i32, d: i32) -> f32 {
  let raw = unnormalize(get_grid(at * DIMS + 2 - d), f32(in_at(d)));
  return padded_position(raw, d);
}
fn plane_value(plane: i32, z: i32, y: f32, x: f32) -> f32 {
  let y0 = cell(y);
  let x0 = cell(x);
  let fy = y - floor(y);
  let fx = x - floor(x);
  let top = sample(plane, z, y0, x0) * (1.0 - fx) + sample(plane, z, y0, x0 + 1) * fx;
  let low = sample(plane, z, y0 + 1, x0) * (1.0 - fx)
          + sample(plane, z, y0 + 1, x0 + 1) * fx;
  return top * (1.0 - fy) + low * fy;
}
fn invocation(i: i32) {
  let plane = i / p.points;
  let at = plane / p.channels * p.points + (i - plane * p.points);
  let x = position(at, 2);
  let y = position(at, 1);
  var z = 0.0;
  if (DIMS == 3) { z = position(at, 0); }
  if (NEAREST) {
    put_y(i, sample(plane, cell(round(z)), cell(round(y)), cell(round(x))));
    return;
  }
  let z0 = cell(z);
  var value = plane_value(plane, z0, y, x);
  if (DIMS == 3) {
    let fz = z - floor(z);
    value = value * (1.0 - fz) + plane_value(plane, z0 + 1, y, x) * fz;
  }
  put_y(i, value);
}
