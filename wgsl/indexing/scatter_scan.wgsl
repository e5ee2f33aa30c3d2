// y[a, d, c] = x[a, d, c] combined with src[a, m, c] for each m whose key is d, in
// order of m: one element per invocation, which looks at every key of its row.
// Supplied: get_x, get_src, get_key, key_at(a, m, c) (the index of a key), more(value,
// v) (combines), finish(value, hits), put_y, p.extent, p.count, p.inner, INCLUDE_SELF.
fn invocation(i: i32) {
  let row = i / p.inner;
  let c = i - row * p.inner;
  let a = row / p.extent;
  let d = row - a * p.extent;
  let own = get_x(i);
  var value = own;
  var hits = select(0, 1, INCLUDE_SELF);
  for (var m = 0; m < p.count; m += 1) {
    if (get_key(key_at(a, m, c)) == d) {
      let v = get_src((a * p.count + m) * p.inner + c);
      if (hits == 0) { value = v; } else { value = more(value, v); }
      hits += 1;
    }
  }
  if (hits > 0) { value = finish(value, hits); }
  put_y(i, value);
}
