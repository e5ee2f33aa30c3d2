// One fold per workgroup: of row o, or of one of its p.splits parts. Lanes take
// neighbouring elements, then merge.
// Supplied: lane, fold_of (of all lanes), emit, row_base, p.rows, p.splits, WG (a power
// of two, at most 256: an Acc has up to 12 bytes).
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let group = i32(wid.x + wid.y * groups.x);
  if (group >= p.rows * p.splits) { return; }
  let o = group / p.splits;
  let s = group - o * p.splits;
  let id = i32(local);
  let whole = fold_of(id, lane(row_base(o), s * WG + id, p.splits * WG));
  if (id == 0) { emit(o, s, whole); }
}
