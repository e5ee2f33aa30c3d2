// Matrix products of quantized values, in exact i32 sums that are then scaled to
// floats:
//   y[row, n] = finish(row, n, sum over groups g of scale_group(g, n,
//               sum over k in g of x[row, k] * w[k, n], sum over k in g of x[row, k]))
// One invocation: COLS times 4 neighbouring n of ROWS rows, all of K, no barrier.
// x: signed codes, four along K in a word. w: words of codes, [batch][word along K][n],
// 4 or 8 bits each, groups padded to whole words. Each batch is a product of its own.
// Supplied: x_four(row, k, left) and w_four(word, f), four codes each, row_zero(row),
// scale_group(g, column of 4, dots, sum, zero), finish(row, n, value); get_w4;
// p.columns (N / 4 rounded up), p.column_stride (columns / COLS rounded up), p.width
// (N), p.rows and p.blocks (M and tiles of it, in a batch), p.batch (columns of 4 in a
// batch of w), p.groups, p.words (per group), p.group (its size); FOURS (in a word of
// w), ROWS, COLS, SUMS (whether scale_group needs the sum of x).
// Limit: a group has at most 2^16 elements.
const TILE = ROWS * COLS;

fn invocation(t: i32) {
  let block = t / p.column_stride;
  let column = t - block * p.column_stride;
  let batch = block / p.blocks;
  let row = batch * p.rows + (block - batch * p.blocks) * ROWS;
  let last = batch * p.rows + p.rows - 1;
  var acc = array<vec4<f32>, TILE>();
  var at = batch * p.batch;
  for (var g = 0; g < p.groups; g++) {
    var dots = array<vec4<i32>, TILE>();
    var sums = array<i32, ROWS>();
    var k = 0;
    for (var i = 0; i < p.words; i++) {
      var word = array<vec4<u32>, COLS>();
      for (var c = 0; c < COLS; c++) {
        let here = min(column + c * p.column_stride, p.columns - 1);
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
      let here = min(column + c * p.column_stride, p.columns - 1);
      for (var r = 0; r < ROWS; r++) {
        let zero = row_zero(min(row + r, last));
        acc[c * ROWS + r] += scale_group(g, here, dots[c * ROWS + r], sums[r], zero);
      }
    }
  }
  for (var c = 0; c < COLS; c++) {
    for (var r = 0; r < ROWS; r++) {
      let value = acc[c * ROWS + r];
      for (var j = 0; j < 4; j++) {
        let n = (column + c * p.column_stride) * 4 + j;
        if (n < p.width && row + r <= last) { finish(row + r, n, value[j]); }
      }
    }
  }
}
