// y[k, d] = coordinate d of the k-th element that is not 0, or p.fill if there are fewer.
// One coordinate per invocation: a binary search for the first element up to which more
// than k are not 0.
// Supplied: get_counts (of the elements up to each that are not 0), put_y, shape_at,
// strides_at, p.n, p.length (elements), p.rank, p.fill.
fn invocation(i: i32) {
  let k = i / p.rank;
  let d = i - k * p.rank;
  var low = 0;
  var high = p.length;
  while (low < high) {
    let middle = (low + high) / 2;
    if (get_counts(middle) <= k) { low = middle + 1; } else { high = middle; }
  }
  let place = low / strides_at(d) % shape_at(d);
  put_y(i, select(place, p.fill, low == p.length));
}
