// y[o] = bilinear interpolation of bytes at the centre of o, in integers: along x,
// rounded to a byte, then along y. One output per invocation, 4 reads.
// A position is (o * stride + first) / unit; a weight of 1 is `one`, a power of two.
// Supplied: get_x, put_y, output_position and input_index (resample_position), for each
// of y and x p.stride_*, p.first_*, p.unit_* (below 2^16), p.one_* (at most 2^15).
struct Tap { low: i32, high: i32, low_weight: i32, high_weight: i32 }

fn weight(fraction: i32, unit: i32, one: i32) -> i32 {
  return i32((u32(fraction) * 2u * u32(one) + u32(unit)) / (2u * u32(unit)));
}
fn tap(at: i32, unit: i32, one: i32, last: i32) -> Tap {
  let low = min(max(at, 0) / unit, last);
  let fraction = select(0, max(at, 0) - low * unit, low < last);
  return Tap(low, min(low + 1, last), weight(unit - fraction, unit, one),
             weight(fraction, unit, one));
}
fn mixed(low: i32, high: i32, t: Tap, one: i32) -> i32 {
  return (low * t.low_weight + high * t.high_weight + one / 2) / one;
}
fn along_x(row: i32, t: Tap) -> i32 {
  return mixed(get_x(row + t.low), get_x(row + t.high), t, p.one_x);
}
fn invocation(i: i32) {
  let o = output_position(i);
  let x = tap(o.w * p.stride_x + p.first_x, p.unit_x, p.one_x, in_at(2) - 1);
  let y = tap(o.z * p.stride_y + p.first_y, p.unit_y, p.one_y, in_at(1) - 1);
  let low = along_x(input_index(o.x, 0, y.low, 0), x);
  let high = along_x(input_index(o.x, 0, y.high, 0), x);
  put_y(i, mixed(low, high, y, p.one_y));
}
