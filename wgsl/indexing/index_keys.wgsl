// y[j] = linear(j): each index, checked, as one number. One per invocation.
// Supplied: linear, put_y, p.n, WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let j = flat_index(gid, groups);
  if (j >= p.n) { return; }
  put_y(j, linear(j));
}
