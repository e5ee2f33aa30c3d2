// y[i] = x[i], where x may be any view, one element per invocation.
// Supplied: get_x, put_y, p.n, WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(gid, groups);
  if (i >= p.n) { return; }
  put_y(i, get_x(i));
}
