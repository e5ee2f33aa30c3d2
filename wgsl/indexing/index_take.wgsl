// y[a, j, c] = x[a, linear(j), c], one element (or four) per invocation.
// Supplied: linear, transfer(to, source), p.inner, p.count (indices), p.extent, OUTER
// (more than one a).
fn invocation(i: i32) {
  let row = i / p.inner;
  let c = i - row * p.inner;
  var a = 0;
  if (OUTER) { a = row / p.count; }
  let at = linear(row - a * p.count);
  transfer(i, (a * p.extent + at) * p.inner + c);
}
