// y[i] = how many elements of a sorted row, up to and including i, equal element i. The
// first maximum of a row is where its longest run ends. NaN equals nothing.
// One element per invocation; a binary search finds where its run begins.
// Supplied: get_sorted, is_missing, put_y, p.length (of a row).
fn invocation(i: i32) {
  let value = get_sorted(i);
  var first = i - i % p.length;
  var end = i;
  if (is_missing(value)) { first = i; }
  while (first < end) {
    let half = first + (end - first) / 2;
    if (get_sorted(half) < value) { first = half + 1; } else { end = half; }
  }
  put_y(i, i - first + 1);
}
