// The product of codes_product.wgsl for few rows on a GPU: K is split among SPLIT
// invocations of a workgroup, whose sums are then added up. With several groups an
// invocation takes whole groups, and scaled floats are added; with one group (ONE) it
// takes every SPLIT-th word, and the integers are added before they are scaled.
// One workgroup: LANES columns of 4 outputs, one row.
// Supplied: as for codes_product.wgsl, with one batch, and SPLIT, LANES with
// SPLIT * LANES = WG, ONE, p.blocks (workgroups of a row).
var<workgroup> partial: array<vec4<i32>, WG>;
var<workgroup> partial_sums: array<i32, WG>;

fn group_invocation(group: i32, id: i32) {
  let lane = id % LANES;
  let split = id / LANES;
  let row = group / p.blocks;
  let column = (group - row * p.blocks) * LANES + lane;
  let zero = row_zero(row);
  var acc = vec4<f32>();
  var total = vec4<i32>();
  var all = 0;
  if (column < p.columns) {
    for (var g = select(split, 0, ONE); g < p.groups; g += select(SPLIT, 1, ONE)) {
      total = vec4<i32>();
      all = 0;
      for (var i = select(0, split, ONE); i < p.words; i += select(1, SPLIT, ONE)) {
        let word = bitcast<vec4<u32>>(get_w4((g * p.words + i) * p.columns + column));
        for (var f = 0; f < FOURS; f++) {
          let k = (i * FOURS + f) * 4;
          let x = x_four(row, g * p.group + k, p.group - k);
          total += vec4<i32>(dot4I8Packed(w_four(word.x, f), x),
                             dot4I8Packed(w_four(word.y, f), x),
                             dot4I8Packed(w_four(word.z, f), x),
                             dot4I8Packed(w_four(word.w, f), x));
          if (SUMS) { all += dot4I8Packed(x, 0x01010101u); }
        }
      }
      if (!ONE) { acc += scale_group(g, column, total, all, zero); }
    }
  }
  partial[id] = select(bitcast<vec4<i32>>(acc), total, ONE);
  partial_sums[id] = all;
  workgroupBarrier();
  if (split == 0 && column < p.columns) {
    for (var s = 1; s < SPLIT; s++) {
      let other = partial[s * LANES + lane];
      acc += bitcast<vec4<f32>>(select(other, vec4<i32>(), ONE));
      total += other;
      all += partial_sums[s * LANES + lane];
    }
    if (ONE) { acc = scale_group(0, column, total, all, zero); }
    for (var j = 0; j < 4; j++) {
      let n = column * 4 + j;
      if (n < p.width) { finish(row, n, acc[j]); }
    }
  }
}
