// value[r], place[r] = the middle of a row sorted from large to small, or its
// first element where that is NaN, which sorts as the largest.
// One row per invocation.
// Supplied: is_missing for the element type, get_sorted, get_places, put_value,
// store_place, p.keep (elements kept of each row; the last is the middle), p.n, WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(gid, groups);
  if (i >= p.n) { return; }
  let first = i * p.keep;
  let at = select(first + p.keep - 1, first, is_missing(get_sorted(first)));
  put_value(i, get_sorted(at));
  store_place(i, at);
}
