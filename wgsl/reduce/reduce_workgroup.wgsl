// One reduction per workgroup: of row o, or of split s of it. Neighbouring invocations
// take neighbouring elements; then their accumulators are merged.
// Supplied: partial, reduced (over the workgroup), emit, row_base, p.splits, WG (a power
// of two, at most 256: an Acc has up to 12 bytes).
fn group_invocation(group: i32, id: i32) {
  let o = group / p.splits;
  let s = group - o * p.splits;
  let whole = reduced(id, partial(row_base(o), s * WG + id, p.splits * WG));
  if (id == 0) { emit(o, s, whole); }
}
