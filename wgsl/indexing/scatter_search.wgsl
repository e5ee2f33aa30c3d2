// As scatter_scan, with the keys of each row sorted (stably): a binary search finds the
// first that is d. index has where in its row a key was before sorting.
// Supplied: as for scatter_scan, and get_index.
fn invocation(i: i32) {
  let row = i / p.inner;
  let c = i - row * p.inner;
  let a = row / p.extent;
  let d = row - a * p.extent;
  var low = 0;
  var high = p.count;
  while (low < high) {
    let middle = (low + high) / 2;
    if (get_key(key_at(a, middle, c)) < d) { low = middle + 1; } else { high = middle; }
  }
  let own = get_x(i);
  var value = own;
  var hits = select(0, 1, INCLUDE_SELF);
  for (var k = low; k < p.count; k += 1) {
    if (get_key(key_at(a, k, c)) != d) { break; }
    let m = get_index(key_at(a, k, c));
    let v = get_src((a * p.count + m) * p.inner + c);
    if (hits == 0) { value = v; } else { value = more(value, v); }
    hits += 1;
  }
  if (hits > 0) { value = finish(value, hits); }
  put_y(i, value);
}
