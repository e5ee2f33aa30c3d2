// y[a, j, c] = x[a, linear(j), c], one element (or four) per invocation.
// Supplied: linear, transfer(to, source), p.n, p.inner, p.count (indices), p.extent,
// OUTER (more than one a), WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(gid, groups);
  if (i >= p.n) { return; }
  let row = i / p.inner;
  let c = i - row * p.inner;
  var a = 0;
  if (OUTER) { a = row / p.count; }
  let at = linear(row - a * p.count);
  transfer(i, (a * p.extent + at) * p.inner + c);
}
