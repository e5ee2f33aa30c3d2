// The sum of linear_packed.wgsl for few rows on a GPU: the groups along K are split
// among SPLIT invocations of a workgroup, whose sums are then added up.
// One workgroup: LANES columns of 4 outputs, one row.
// Supplied: as for linear_packed.wgsl, and SPLIT, LANES with SPLIT * LANES = WG,
// p.blocks (workgroups of a row).
var<workgroup> partial: array<vec4<f32>, WG>;

fn group_invocation(group: i32, id: i32) {
  let lane = id % LANES;
  let split = id / LANES;
  let row = group / p.blocks;
  let column = (group - row * p.blocks) * LANES + lane;
  var acc = vec4<f32>();
  if (column < p.columns) {
    for (var g = split; g < p.groups; g += SPLIT) {
      var dots = vec4<f32>();
      var sum = 0.0;
      var k = 0;
      for (var i = 0; i < p.words; i++) {
        let word = bitcast<vec4<u32>>(get_w4((g * p.words + i) * p.columns + column));
        for (var f = 0; f < FOURS; f++) {
          let x = x_at(row, g * p.group + k, p.group - k);
          dots += vec4<f32>(dot(codes(word.x, f), x), dot(codes(word.y, f), x),
                            dot(codes(word.z, f), x), dot(codes(word.w, f), x));
          if (SUMS) { sum += x.x + x.y + x.z + x.w; }
          k += 4;
        }
      }
      let scale = get_s4(g * p.columns + column);
      acc += scale * dots;
      if (SUMS) { acc += offset4(g * p.columns + column, scale) * sum; }
    }
  }
  partial[id] = acc;
  workgroupBarrier();
  if (split == 0) {
    for (var s = 1; s < SPLIT; s++) { acc += partial[s * LANES + lane]; }
    put_quad(0, row, column * 4, acc);
  }
}
