// One fold per workgroup: of row o, or of one of its p.splits parts. Lanes take
// neighbouring elements, then merge in workgroup memory, halving each time.
// Supplied: Acc, lane, merge, emit, row_base, p.rows, p.splits, WG (a power of two,
// at most 256: an Acc has up to 12 bytes).
var<workgroup> folds: array<Acc, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let group = i32(wid.x + wid.y * groups.x);
  if (group >= p.rows * p.splits) { return; }
  let o = group / p.splits;
  let s = group - o * p.splits;
  folds[local] = lane(row_base(o), s * WG + i32(local), p.splits * WG);
  for (var width = u32(WG) / 2u; width > 0u; width = width / 2u) {
    workgroupBarrier();
    if (local < width) {
      folds[local] = merge(folds[local], folds[local + width]);
    }
  }
  if (local == 0u) {
    emit(o, s, folds[0]);
  }
}
