// y[o] = p-norm of a[row] - b[row'], for the pair of rows that o stands for.
// One output per invocation; differences are scaled by the largest, so that
// their powers neither overflow nor vanish.
// Supplied: get_a, get_b, put_y, PAIRS (all rows of one operand with each other, o
// counting the pairs with row < row'; else a batch of all rows of a with all of b),
// KIND (0 count, 1 sum, 2 Euclid, 3 maximum, 4 any power), p.rows_a, p.rows_b,
// p.columns, p.power.
fn invocation(i: i32) {
  let rows = pair_of(i);
  let a = rows.x * p.columns;
  let b = rows.y * p.columns;
  var largest = 0.0;
  var sum = 0.0;
  for (var c = 0; c < p.columns; c++) {
    let gap = abs(get_a(a + c) - get_b(b + c));
    largest = max_nan(largest, gap);
    if (KIND == 0) { sum += select(0.0, 1.0, gap != 0.0); }
    if (KIND == 1) { sum += gap; }
  }
  if (KIND == 3) { sum = largest; }
  if (KIND == 2 || KIND == 4) { sum = scaled_norm(a, b, largest); }
  put_y(i, sum);
}

fn scaled_norm(a: i32, b: i32, largest: f32) -> f32 {
  if (largest == 0.0 || is_inf(largest) || is_nan(largest)) { return largest; }
  var sum = 0.0;
  for (var c = 0; c < p.columns; c++) {
    let ratio = abs(get_a(a + c) - get_b(b + c)) / largest;
    if (KIND == 2) {
      sum += ratio * ratio;
    } else if (ratio > 0.0) {
      sum += pow(ratio, p.power);
    }
  }
  if (KIND == 2) { return largest * sqrt(sum); }
  return largest * pow(sum, 1.0 / p.power);
}

fn pair_of(i: i32) -> vec2<i32> {
  if (PAIRS) {
    var row = 0;
    var left = i;
    for (; row < p.rows_a && left >= p.rows_a - 1 - row; row++) {
      left -= p.rows_a - 1 - row;
    }
    return vec2<i32>(row, row + 1 + left);
  }
  let row = i / p.rows_b;
  let batch = row / p.rows_a;
  return vec2<i32>(row, batch * p.rows_b + (i - row * p.rows_b));
}
