// Merges the accumulators of the p.splits splits of row o, one row per invocation.
// Supplied: load_split, merge, emit, p.n (rows), p.splits.
fn invocation(o: i32) {
  var whole = load_split(o);
  for (var s = 1; s < p.splits; s += 1) {
    whole = merge(whole, load_split(s * p.n + o));
  }
  emit(o, 0, whole);
}
