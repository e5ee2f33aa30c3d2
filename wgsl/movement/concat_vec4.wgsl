// As concat, four elements per invocation, where all inputs are multiples of four.
// Supplied: pick4(a, rest), target_of(rest), put_y4, p.n, p.span and p.total in fours,
// WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(gid, groups);
  if (i >= p.n) { return; }
  let a = i / p.span;
  let rest = i - a * p.span;
  put_y4(a * p.total + target_of(rest), pick4(a, rest));
}
