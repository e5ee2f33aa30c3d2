// y[a, cache_row(a, s), c] = x[a, s, c]: writes new rows into a cache, in place.
// One element of x per invocation. Nothing is written for a position outside the cache.
// Supplied: get_x, put_y, cache_row(a, s) (a position, not checked), refuse(at) (reports
// a position, if nothing did before); p.seq (rows of x), p.inner (elements of a row),
// p.length (rows of the cache).
fn invocation(i: i32) {
  let row = i / p.inner;
  let c = i - row * p.inner;
  let a = row / p.seq;
  let at = cache_row(a, row - a * p.seq);
  if (at < 0 || at >= p.length) {
    refuse(at);
    return;
  }
  put_y((a * p.length + at) * p.inner + c, get_x(i));
}
