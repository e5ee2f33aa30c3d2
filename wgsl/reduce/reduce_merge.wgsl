// Merges the p.splits partial folds of row o, one row per invocation.
// Supplied: load_part, merge, emit, p.n (rows), p.splits, WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let o = flat_index(gid, groups);
  if (o >= p.n) { return; }
  var whole = load_part(o);
  for (var s = 1; s < p.splits; s += 1) {
    whole = merge(whole, load_part(s * p.n + o));
  }
  emit(o, 0, whole);
}
