// y = x, with src in place of the slices start, start + step, ... of one dimension, one
// element per invocation.
// Supplied: get_x, get_src, put_y, p.inner, p.extent, p.start, p.step, p.count.
fn invocation(i: i32) {
  let row = i / p.inner;
  let c = i - row * p.inner;
  let a = row / p.extent;
  let from_start = row - a * p.extent - p.start;
  let k = from_start / p.step;
  if (from_start >= 0 && k < p.count && k * p.step == from_start) {
    put_y(i, get_src((a * p.count + k) * p.inner + c));
  } else {
    put_y(i, get_x(i));
  }
}
