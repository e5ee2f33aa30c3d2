// partial: mean a, sum of squared deviations b and count c, by one invocation, of
// elements first, first + every, ... of the row that begins at `base`: two passes,
// because one pass of sums loses all digits of a variance that is small beside the mean.
// Supplied: Acc, start (the identity element), get_x, p.count, p.stride.
const BLOCK = 64;

fn partial(base: i32, first: i32, every: i32) -> Acc {
  if (first >= p.count) { return start(); }
  let length = f32((p.count - 1 - first) / every + 1);
  // Relative to the first element, so that a large mean does not swallow the sum.
  let origin = f32(get_x(base + first * p.stride));
  var sum = 0.0;
  for (var r = first; r < p.count; ) {
    var block = 0.0;
    let end = min(p.count, r + BLOCK * every);
    for (; r < end; r += every) {
      block += f32(get_x(base + r * p.stride)) - origin;
    }
    sum += block;
  }
  let shift = sum / length;
  let mean = origin + shift;
  var squares = 0.0;
  var error = 0.0;
  for (var r = first; r < p.count; ) {
    var block = 0.0;
    let end = min(p.count, r + BLOCK * every);
    for (; r < end; r += every) {
      let d = f32(get_x(base + r * p.stride)) - mean;
      block += d * d;
      error += d;
    }
    squares += block;
  }
  // Corrects the squares for the rounding error of the mean.
  return Acc(mean, max_nan(squares - error * error / length, 0.0), length);
}
