// y[m, n] = bias[n] + sum over groups g of
//           scale[g, n] * (code[g, :, n] . x[m, g]) + offset[g, n] * sum(x[m, g])
// One invocation: COLS times 4 neighbouring outputs n of ROWS rows m, all of K, no
// barrier. w: words of codes, [word along K][n], 4 or 8 bits each, groups padded to
// whole words; neighbouring invocations read neighbouring words.
// Supplied: codes(word, f) (four codes of a word as floats), get_w4, get_s4 (columns of
// 4), offset4(i, s) (of the groups whose scales are s), x_at(row, k, left), put_quad(0,
// row, n, sums) (adds the bias and stores four outputs); p.columns (N / 4 rounded up),
// p.column_stride (columns / COLS rounded up), p.rows (M), p.groups, p.words (per
// group), p.group (its size); FOURS (in a word), ROWS, COLS, SUMS (whether there are
// offsets).
const TILE = ROWS * COLS;

fn invocation(t: i32) {
  let block = t / p.column_stride;
  let column = t - block * p.column_stride;
  let row = block * ROWS;
  var acc = array<vec4<f32>, TILE>();
  var at = 0;
  for (var g = 0; g < p.groups; g++) {
    var dots = array<vec4<f32>, TILE>();
    var sums = array<f32, ROWS>();
    var k = 0;
    for (var i = 0; i < p.words; i++) {
      var word = array<vec4<u32>, COLS>();
      for (var c = 0; c < COLS; c++) {
        let here = min(column + c * p.column_stride, p.columns - 1);
        word[c] = bitcast<vec4<u32>>(get_w4(at + here));
      }
      at += p.columns;
      for (var f = 0; f < FOURS; f++) {
        var x = array<vec4<f32>, ROWS>();
        for (var r = 0; r < ROWS; r++) {
          x[r] = x_at(min(row + r, p.rows - 1), g * p.group + k, p.group - k);
          if (SUMS) { sums[r] += x[r].x + x[r].y + x[r].z + x[r].w; }
        }
        for (var c = 0; c < COLS; c++) {
          let a = codes(word[c].x, f);
          let b = codes(word[c].y, f);
          let d = codes(word[c].z, f);
          let e = codes(word[c].w, f);
          for (var r = 0; r < ROWS; r++) {
            dots[c * ROWS + r] +=
              vec4<f32>(dot(a, x[r]), dot(b, x[r]), dot(d, x[r]), dot(e, x[r]));
          }
        }
        k += 4;
      }
    }
    for (var c = 0; c < COLS; c++) {
      let here = g * p.columns + min(column + c * p.column_stride, p.columns - 1);
      let scale = get_s4(here);
      let offset = offset4(here, scale);
      for (var r = 0; r < ROWS; r++) {
        acc[c * ROWS + r] += scale * dots[c * ROWS + r];
        if (SUMS) { acc[c * ROWS + r] += offset * sums[r]; }
      }
    }
  }
  for (var c = 0; c < COLS; c++) {
    for (var r = 0; r < ROWS; r++) {
      if (row + r < p.rows) {
        put_quad(0, row + r, (column + c * p.column_stride) * 4, acc[c * ROWS + r]);
      }
    }
  }
}
