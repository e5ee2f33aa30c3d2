// y[i] = how many elements of a sorted row are less than v[i] (or not greater, with
// RIGHT): a binary search per invocation. NaN is larger than any number.
// Supplied: row_at, unordered (whether it is NaN), get_v, put_y, K, p.length (of a
// row), p.per_row (searches in one row), RIGHT.
fn less(a: K, b: K) -> bool { return (a < b) || (unordered(b) && !unordered(a)); }

fn invocation(i: i32) {
  let base = (i / p.per_row) * p.length;
  let v = K(get_v(i));
  var low = 0;
  var high = p.length;
  while (low < high) {
    let middle = (low + high) / 2;
    let w = K(row_at(base, middle));
    let ahead = select(less(w, v), !less(v, w), RIGHT);
    if (ahead) { low = middle + 1; } else { high = middle; }
  }
  put_y(i, low);
}
