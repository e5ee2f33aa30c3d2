// Statistics of a row and its normalised elements, one row per workgroup.
// Names as in norm_apply and reduce_workgroup; emit stores the statistics.
// Supplied: lane, fold_of (of all lanes), emit, shift_of, scale_of, affine, get_x,
// put_y, p.rows, p.count, p.stride (1), p.per_row, p.inner, p.channels, BY_ELEMENT, WG
// (a power of two).
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let o = i32(wid.x + wid.y * groups.x);
  if (o >= p.rows) { return; }
  let base = o * p.count;
  let whole = fold_of(i32(local), lane(base, i32(local), WG));
  if (local == 0u) { emit(o, 0, whole); }
  let shift = shift_of(whole);
  let scale = scale_of(whole);
  let first = (o * p.per_row) % p.channels;
  for (var r = i32(local); r < p.count; r += WG) {
    var within = r;
    if (!BY_ELEMENT) { within = r / p.inner; }
    put_y(base + r, affine((get_x(base + r) - shift) * scale, first + within));
  }
}
