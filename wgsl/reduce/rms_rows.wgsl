// y[r, k] = x[r, k] / sqrt(mean(x[r]^2) + eps) * weight[k], without a barrier: an
// invocation writes p.chunk columns of a row after summing the whole row itself,
// so that a few rows still keep many invocations busy.
// Supplied: squares(base) (the sum of a row's squares: sum_squares or sum_squares4),
// get_x, scaled(k, v) (times weight[k]), put_y; p.depth (K), p.chunk, p.chunks (per
// row), p.eps.
fn invocation(t: i32) {
  let row = t / p.chunks;
  let first = (t - row * p.chunks) * p.chunk;
  let base = row * p.depth;
  let total = squares(base);
  let inverse = 1.0 / sqrt(total / f32(p.depth) + p.eps);
  for (var k = first; k < min(first + p.chunk, p.depth); k++) {
    put_y(base + k, scaled(k, get_x(base + k) * inverse));
  }
}
