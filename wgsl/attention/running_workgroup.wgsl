// Library: how the invocations of attention_flash combine what they have of each row:
// through workgroup memory. Invocations share the rows of all keys among them, and then
// one of each row takes their results.
// Supplied: ROWS, WG; Quads, weights, most, total.
var<workgroup> reduced: array<f32, WG>;
// Of each row: what is subtracted from scores, and the factor that rescales what was
// summed before.
var<workgroup> base: array<f32, ROWS>;
var<workgroup> kept: array<f32, ROWS>;

fn begin_rows(id: i32) {
  if (id < ROWS) { most[id] = -inf(); }
}

// The maximum, or the sum, of what `weights` holds for row id % ROWS and one in WG /
// ROWS of the keys.
fn reduce_share(id: i32, is_sum: bool) -> f32 {
  let row = id % ROWS;
  var all = weights[id / ROWS][row / 4][row % 4];
  for (var t = WG / ROWS; t < WG; t += WG / ROWS) {
    let one = weights[t + id / ROWS][row / 4][row % 4];
    all = select(max(all, one), all + one, is_sum);
  }
  return all;
}

// Raises the running maximum of a row to that of the shares in `reduced`.
fn raise(row: i32) {
  let before = most[row];
  var high = before;
  for (var t = 0; t < WG; t += ROWS) { high = max(high, reduced[t + row]); }
  most[row] = high;
  base[row] = select(high, 0.0, high == -inf());
  kept[row] = exp(before - base[row]);
}

// Raises the running maxima to the scores of this invocation's key.
fn raise_rows(id: i32, s: Quads) {
  weights[id] = s;
  workgroupBarrier();
  reduced[id] = reduce_share(id, false);
  workgroupBarrier();
  if (id < ROWS) { raise(id); }
  workgroupBarrier();
}

// Adds up the weights of all keys. `most` and `total` can be read after a barrier.
fn add_up_rows(id: i32, totals: Quads) {
  workgroupBarrier();
  weights[id] = totals;
  workgroupBarrier();
  reduced[id] = reduce_share(id, true);
  workgroupBarrier();
  if (id < ROWS) {
    total[id] = 0.0;
    for (var t = 0; t < WG; t += ROWS) { total[id] += reduced[t + id]; }
  }
}
