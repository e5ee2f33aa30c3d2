// The entry point of a kernel that defines group_invocation(group, id), for workgroups
// from 0 to p.workgroups - 1 and their invocations id from 0 to WG - 1. All invocations
// of a workgroup get there or none, so that a kernel may have barriers.
// Supplied: p.workgroups, WG.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) id: u32) {
  let flat = i32(group.x + group.y * groups.x);
  if (flat < p.workgroups) { group_invocation(flat, i32(id)); }
}
