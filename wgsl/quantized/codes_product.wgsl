// Products of integer codes, exact in i32, and the float that they become:
//   y[row, n] = finish(row, n, sum over groups g of
//               fold(g, n, sum over k of g of x[row, k] * w[k, n], sum of x[row, g]))
// One invocation: COLS times 4 neighbouring n of ROWS rows, all of K, no barrier.
// x: signed codes, four along K in a word. w: words of codes, [part][word along K][n],
// 4 or 8 bits each, groups padded to whole words. Rows of one part meet that part of w.
// Supplied: x_four(row, k, left) and w_four(word, f), four codes each, row_zero(row),
// fold(g, column of 4, dots, sum, zero), finish(row, n, value); get_w4; p.columns (N /
// 4 rounded up), p.step (columns / COLS rounded up), p.width (N), p.rows and p.blocks
// (M and tiles of it, in a part), p.part (columns of 4 in a part of w), p.groups,
// p.words (per group), p.group (its size); FOURS (in a word of w), ROWS, COLS, SUMS
// (whether fold needs the sum of x).
// Limit: a group has at most 2^16 codes.
const TILE = ROWS * COLS;

fn invocation(t: i32) {
  let block = t / p.step;
  let column = t - block * p.step;
  let part = block / p.blocks;
  let row = part * p.rows + (block - part * p.blocks) * ROWS;
  let last = part * p.rows + p.rows - 1;
  var acc = array<vec4<f32>, TILE>();
  var at = part * p.part;
  for (var g = 0; g < p.groups; g++) {
    var dots = array<vec4<i32>, TILE>();
    var sums = array<i32, ROWS>();
    var k = 0;
    for (var i = 0; i < p.words; i++) {
      var word = array<vec4<u32>, COLS>();
      for (var c = 0; c < COLS; c++) {
        let here = min(column + c * p.step, p.columns - 1);
        word[c] = bitcast<vec4<u32>>(get_w4(at + here));
      }
      at += p.columns;
      for (var f = 0; f < FOURS; f++) {
        var x = array<u32, ROWS>();
        for (var r = 0; r < ROWS; r++) {
          x[r] = x_four(min(row + r, last), g * p.group + k, p.group - k);
          if (SUMS) { sums[r] += dot4I8Packed(x[r], 0x01010101u); }
        }
        for (var c = 0; c < COLS; c++) {
          let w0 = w_four(word[c].x, f);
          let w1 = w_four(word[c].y, f);
          let w2 = w_four(word[c].z, f);
          let w3 = w_four(word[c].w, f);
          for (var r = 0; r < ROWS; r++) {
            dots[c * ROWS + r] +=
              vec4<i32>(dot4I8Packed(w0, x[r]), dot4I8Packed(w1, x[r]),
                        dot4I8Packed(w2, x[r]), dot4I8Packed(w3, x[r]));
          }
        }
        k += 4;
      }
    }
    for (var c = 0; c < COLS; c++) {
      let here = min(column + c * p.step, p.columns - 1);
      for (var r = 0; r < ROWS; r++) {
        let zero = row_zero(min(row + r, last));
        acc[c * ROWS + r] += fold(g, here, dots[c * ROWS + r], sums[r], zero);
      }
    }
  }
  for (var c = 0; c < COLS; c++) {
    for (var r = 0; r < ROWS; r++) {
      let value = acc[c * ROWS + r];
      for (var j = 0; j < 4; j++) {
        let n = (column + c * p.step) * 4 + j;
        if (n < p.width && row + r <= last) { finish(row + r, n, value[j]); }
      }
    }
  }
}
