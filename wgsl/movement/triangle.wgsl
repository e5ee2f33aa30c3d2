// y = x on one side of a diagonal and 0 on the other, one element per invocation.
// Supplied: get_x, put_y, T, p.n, p.height, p.width, p.diagonal, UPPER, WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(gid, groups);
  if (i >= p.n) { return; }
  let row = i / p.width;
  let offset = (i - row * p.width) - row % p.height - p.diagonal;
  let kept = select(offset <= 0, offset >= 0, UPPER);
  var v = T(0);
  if (kept) { v = get_x(i); }
  put_y(i, v);
}
