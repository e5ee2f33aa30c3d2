// y[i] = how many elements of a sorted row, up to i, equal element i. The first of the
// largest of them is the end of the longest run. NaN, which equals nothing, is alone.
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
