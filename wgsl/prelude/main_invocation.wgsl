// The entry point of a kernel that defines invocation(i), for i from 0 to p.n - 1.
// Supplied: p.n, WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let i = i32(gid.x + gid.y * groups.x * u32(WG));
  if (i < p.n) { invocation(i); }
}
