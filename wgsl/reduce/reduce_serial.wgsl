// One reduction per invocation: of row o, or of split s of it, every p.splits-th
// element. With SPLIT, LANES_ADJACENT says whether neighbouring invocations share a row
// (its elements are next to each other) or take neighbouring rows.
// Supplied: lane (lane_fold, lane_moments, lane_softmax), emit, row_base, p.rows,
// p.splits, SPLIT, LANES_ADJACENT.
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
