// y[a, s, c] = x[a, position(s), c]: rows from a position on that is data.
// One element of y per invocation; a position outside x is reported.
// Supplied: get_x, put_y, position(s); p.seq (rows of y), p.inner, p.length (rows of
// x).
fn invocation(i: i32) {
  let row = i / p.inner;
  let a = row / p.seq;
  let at = a * p.length + position(row - a * p.seq);
  put_y(i, get_x(at * p.inner + i - row * p.inner));
}
