// y[a, s, c] = x[a, cache_row(a, s), c]: the rows of a cache that cache_put would replace.
// One element of y per invocation; nothing is written for a position outside the cache.
// Supplied: get_x, put_y, cache_row(a, s) (a position, not checked); p.seq (rows of y),
// p.inner (elements of a row), p.length (rows of the cache).
fn invocation(i: i32) {
  let row = i / p.inner;
  let c = i - row * p.inner;
  let a = row / p.seq;
  let at = cache_row(a, row - a * p.seq);
  if (at < 0 || at >= p.length) { return; }
  put_y(i, get_x((a * p.length + at) * p.inner + c));
}
