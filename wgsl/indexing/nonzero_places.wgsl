// y[k, d] = coordinate d of the k-th element that is not 0, or p.fill if there are
// fewer.
// One coordinate per invocation: a binary search for the first element whose count
// exceeds k.
// Supplied: get_counts (for each element, how many up to it are not 0), put_y,
// shape_at, strides_at, p.length (elements), p.rank, p.fill.
fn invocation(i: i32) {
  let k = i / p.rank;
  let d = i - k * p.rank;
  var low = 0;
  var high = p.length;
  while (low < high) {
    let middle = (low + high) / 2;
    if (get_counts(middle) <= k) { low = middle + 1; } else { high = middle; }
  }
  let coordinate = low / strides_at(d) % shape_at(d);
  put_y(i, select(coordinate, p.fill, low == p.length));
}
