// y[i] = source[before[i]] where mask[i] is set, else x[i]; before[i] is the number of
// set elements before i. One element per invocation.
// Supplied: get_x, get_mask, get_before, get_source, strict_index, put_y, p.limit.
fn invocation(i: i32) {
  var v = get_x(i);
  if (get_mask(i) != 0) {
    v = get_source(strict_index(get_before(i), p.limit));
  }
  put_y(i, v);
}
