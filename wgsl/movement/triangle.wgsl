// y = x on one side of a diagonal and 0 on the other, one element per invocation.
// Supplied: get_x, put_y, T, p.height, p.width, p.diagonal, UPPER.
fn invocation(i: i32) {
  let row = i / p.width;
  let offset = (i - row * p.width) - row % p.height - p.diagonal;
  let kept = select(offset <= 0, offset >= 0, UPPER);
  var v = T(0);
  if (kept) { v = get_x(i); }
  put_y(i, v);
}
