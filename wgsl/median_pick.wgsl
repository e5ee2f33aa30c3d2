// value[r], place[r] = the middle of a sorted row, or its NaN.
// One row per invocation.
// Supplied: middle (where it is, in a row that starts at an index; it reads get_sorted
// and p.keep, how many elements were kept of each row), get_sorted, get_places,
// put_value, store_place, p.n, WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(gid, groups);
  if (i >= p.n) { return; }
  let at = middle(i * p.keep);
  put_value(i, get_sorted(at));
  store_place(i, at);
}
