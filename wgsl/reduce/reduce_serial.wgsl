// One fold per invocation: all elements of row o, or every p.splits-th of them.
// With SPLIT, LANES_ADJACENT says whether neighbouring invocations share a row (its
// elements are next to each other) or take neighbouring rows.
// Supplied: lane, emit, row_base, p.n, p.rows, p.splits, SPLIT, LANES_ADJACENT, WG.
fn invocation(i: i32) {
  var o = i;
  var s = 0;
  if (SPLIT) {
    if (LANES_ADJACENT) {
      o = i / p.splits;
      s = i - o * p.splits;
    } else {
      s = i / p.rows;
      o = i - s * p.rows;
    }
  }
  emit(o, s, lane(row_base(o), s, p.splits));
}
