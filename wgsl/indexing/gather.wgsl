// y[a, m, c] = x[a, index[a, m, c], c], one element per invocation.
// Supplied: get_x, get_index, strict_index, put_y, p.inner, p.count, p.extent.
fn invocation(i: i32) {
  let row = i / p.inner;
  let c = i - row * p.inner;
  let a = row / p.count;
  let at = strict_index(get_index(i), p.extent);
  put_y(i, get_x((a * p.extent + at) * p.inner + c));
}
