// y[4i .. 4i + 3] = program4(i), four elements per invocation; buffers are padded,
// so the last four may reach beyond the tensor.
// Supplied: program4 (generated from the fused ops), put_y4, p.n (fours), WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(gid, groups);
  if (i >= p.n) { return; }
  put_y4(i, program4(i));
}
