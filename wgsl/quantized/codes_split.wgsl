// The product of codes_product.wgsl for GPUs: K is split among SPLIT invocations of a
// workgroup, whose sums are then added up. With several groups an invocation takes whole
// groups, and scaled floats are added; with one group (ONE) it takes runs of AHEAD words,
// and the integers are added before they are scaled.
// One workgroup: LANES columns of 4 outputs, ROWS rows. AHEAD words are loaded before any
// of them is multiplied, so that as many loads are on their way at once.
// Supplied: as for codes_product.wgsl, with one batch, and SPLIT, LANES with
// SPLIT * LANES = WG, AHEAD, ONE, p.blocks (workgroups of a row).
// Limit: 20 * WG + 16 * ROWS * LANES bytes of workgroup memory.
var<workgroup> partial: array<vec4<i32>, WG>;
var<workgroup> partial_sums: array<i32, WG>;
var<workgroup> results: array<vec4<f32>, ROWS * LANES>;

fn group_invocation(group: i32, id: i32) {
  let lane = id % LANES;
  let split = id / LANES;
  let block = group / p.blocks;
  let column = (group - block * p.blocks) * LANES + lane;
  let here = min(column, p.columns - 1);
  var rows = array<i32, ROWS>();
  for (var r = 0; r < ROWS; r++) { rows[r] = min(block * ROWS + r, p.rows - 1); }
  var acc = array<vec4<f32>, ROWS>();
  var dots = array<vec4<i32>, ROWS>();
  var sums = array<i32, ROWS>();
  let runs = select(p.groups, (p.words + AHEAD - 1) / AHEAD, ONE);
  for (var run = split; run < runs; run += SPLIT) {
    let g = select(run, 0, ONE);
    let first = select(0, run * AHEAD, ONE);
    let end = select(p.words, min(first + AHEAD, p.words), ONE);
    for (var i = first; i < end; i += AHEAD) {
      var words = array<vec4<u32>, AHEAD>();
      for (var a = 0; a < AHEAD; a++) {
        let word = g * p.words + min(i + a, end - 1);
        words[a] = bitcast<vec4<u32>>(get_w4(word * p.columns + here));
      }
      var codes = array<u32, AHEAD * FOURS * ROWS>();
      for (var a = 0; a < AHEAD * FOURS; a++) {
        // Behind the end comes the last word again, times zeros.
        let k = (min(i + a / FOURS, end - 1) * FOURS + a % FOURS) * 4;
        for (var r = 0; r < ROWS; r++) {
          codes[a * ROWS + r] = x_four(rows[r], g * p.group + k, p.group - k);
        }
      }
      for (var a = 0; a < AHEAD; a++) {
        for (var f = 0; f < FOURS; f++) {
          let w0 = w_four(words[a].x, f);
          let w1 = w_four(words[a].y, f);
          let w2 = w_four(words[a].z, f);
          let w3 = w_four(words[a].w, f);
          for (var r = 0; r < ROWS; r++) {
            let x = select(0u, codes[(a * FOURS + f) * ROWS + r], i + a < end);
            if (SUMS) { sums[r] += dot4I8Packed(x, 0x01010101u); }
            dots[r] += vec4<i32>(dot4I8Packed(w0, x), dot4I8Packed(w1, x),
                                 dot4I8Packed(w2, x), dot4I8Packed(w3, x));
          }
        }
      }
    }
    if (!ONE) {
      for (var r = 0; r < ROWS; r++) {
        acc[r] += scale_group(g, here, dots[r], sums[r], row_zero(rows[r]));
        dots[r] = vec4<i32>();
        sums[r] = 0;
      }
    }
  }
  for (var r = 0; r < ROWS && SPLIT > 1; r++) {
    workgroupBarrier();
    partial[id] = select(bitcast<vec4<i32>>(acc[r]), dots[r], ONE);
    partial_sums[id] = sums[r];
    workgroupBarrier();
    if (split == 0) {
      for (var s = 1; s < SPLIT; s++) {
        let other = partial[s * LANES + lane];
        acc[r] += bitcast<vec4<f32>>(select(other, vec4<i32>(), ONE));
        dots[r] += other;
        sums[r] += partial_sums[s * LANES + lane];
      }
    }
  }
  if (split == 0) {
    for (var r = 0; r < ROWS; r++) {
      if (ONE) { acc[r] = scale_group(0, here, dots[r], sums[r], row_zero(rows[r])); }
      results[r * LANES + lane] = acc[r];
    }
  }
  workgroupBarrier();
  // By all invocations: those of several rows at once, or of one, which is then known to
  // be the same for all of them.
  const AT_ONCE = max(1, WG / (LANES * 4));
  for (var r = 0; r < ROWS; r += AT_ONCE) {
    for (var i = id; i < AT_ONCE * LANES * 4; i += WG) {
      let own = r + select(i / (LANES * 4), 0, AT_ONCE == 1);
      let row = block * ROWS + own;
      let at = own * LANES * 4 + i % (LANES * 4);
      let n = (group - block * p.blocks) * LANES * 4 + i % (LANES * 4);
      if (own < ROWS && row < p.rows && n < p.width) {
        finish(row, n, results[at >> 2u][at & 3]);
      }
    }
  }
}
