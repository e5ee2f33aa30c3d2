// One reduction per invocation: of row o, or of split s of it, every p.splits-th
// element. With SPLIT, ADJACENT says whether neighbouring invocations share a row
// (its elements are next to each other) or take neighbouring rows.
// Supplied: partial (lane_fold, lane_moments, lane_softmax), emit, row_base, p.rows,
// p.splits, SPLIT, ADJACENT.
fn invocation(i: i32) {
  var o = i;
  var s = 0;
  if (SPLIT) {
    if (ADJACENT) {
      o = i / p.splits;
      s = i - o * p.splits;
    } else {
      s = i / p.rows;
      o = i - s * p.rows;
    }
  }
  emit(o, s, partial(row_base(o), s, p.splits));
}
