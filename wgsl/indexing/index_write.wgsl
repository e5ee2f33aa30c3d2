// y[a, linear(j), c] = src[a, j, c], one element of src per invocation. Of several
// equal indices, any one wins.
// Supplied: linear, get_src, put_y, p.inner, p.count, p.extent.
fn invocation(i: i32) {
  let row = i / p.inner;
  let c = i - row * p.inner;
  let a = row / p.count;
  let at = linear(row - a * p.count);
  put_y((a * p.extent + at) * p.inner + c, get_src(i));
}
