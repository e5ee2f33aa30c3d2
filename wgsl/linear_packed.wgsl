// y[m, n] = bias[n] + sum over groups g of
//           scale[g, n] * (codes[g, :, n] . x[m, g]) + offset[g, n] * sum(x[m, g])
// One invocation: 4 neighbouring outputs n of ROWS rows m, all of K, no barrier.
// w: words of codes, [word along K][n], 4 or 8 bits each (BITS), groups padded to
// whole words; neighbouring invocations read neighbouring words.
// Supplied: get_w4, get_s4 (columns of 4), offset4(i, s), x_at(row, k, left),
// bias(n), put_y; p.n, p.columns (N / 4 rounded up), p.width (N), p.rows (M),
// p.groups, p.words (per group), p.group (its size), p.depth (K); BITS, ROWS,
// SUMS (whether offsets matter), WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let t = flat_index(gid, groups);
  if (t >= p.n) { return; }
  let column = t % p.columns;
  let row = (t / p.columns) * ROWS;
  var acc: array<vec4<f32>, ROWS>;
  var at = column;
  for (var g = 0; g < p.groups; g++) {
    var dots = array<vec4<f32>, ROWS>();
    var sums = array<f32, ROWS>();
    var k = 0;
    for (var i = 0; i < p.words; i++) {
      let word = bitcast<vec4<u32>>(get_w4(at));
      at += p.columns;
      for (var part = 0; part < PARTS; part++) {
        let a = codes(word.x, part);
        let b = codes(word.y, part);
        let c = codes(word.z, part);
        let d = codes(word.w, part);
        for (var r = 0; r < ROWS; r++) {
          let x = x_at(min(row + r, p.rows - 1), g * p.group + k, p.group - k);
          dots[r] += vec4<f32>(dot(a, x), dot(b, x), dot(c, x), dot(d, x));
          if (SUMS) { sums[r] += x.x + x.y + x.z + x.w; }
        }
        k += 4;
      }
    }
    let scale = get_s4(g * p.columns + column);
    let offset = offset4(g * p.columns + column, scale);
    for (var r = 0; r < ROWS; r++) {
      acc[r] += scale * dots[r];
      if (SUMS) { acc[r] += offset * sums[r]; }
    }
  }
  for (var r = 0; r < ROWS; r++) {
    if (row + r >= p.rows) { break; }
    for (var j = 0; j < 4; j++) {
      let n = column * 4 + j;
      if (n < p.width) { put_y((row + r) * p.width + n, acc[r][j] + bias(n)); }
    }
  }
}
