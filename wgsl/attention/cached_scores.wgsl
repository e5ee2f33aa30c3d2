// y[g, r, j] = scale * q[g, r] . k[g, j] + mask[r, j], for the live keys j only.
// g is a batch and key head; its rows r are the query heads that share the key
// head, each with all tokens: head r / S, token r % S. One invocation: one key j,
// ROWS rows. A key is live below live(token); for others nothing is written.
// Supplied: get_q4, get_k4 (fours of elements), put_y, position(s), live(s), mask_at(s,
// j); p.rows, p.seq (S), p.keys (rows of the cache), p.heads (key heads), p.sharing
// (query heads per key head), p.fours (head size / 4), p.scale, lists q_s, k_s (offset,
// batch, head, token strides in fours); ROWS.
fn invocation(t: i32) {
  let j = t % p.keys;
  let blocks = (p.rows + ROWS - 1) / ROWS;
  let rest = t / p.keys;
  let group = rest / blocks;
  let row = (rest - group * blocks) * ROWS;
  let batch = group / p.heads;
  let head = group - batch * p.heads;
  var rows_at = array<i32, ROWS>();
  var wanted = false;
  for (var r = 0; r < ROWS; r++) {
    let at = min(row + r, p.rows - 1);
    let sharing = at / p.seq;
    let token = at - sharing * p.seq;
    rows_at[r] = q_s_at(0) + batch * q_s_at(1) + (head * p.sharing + sharing) * q_s_at(2)
            + token * q_s_at(3);
    // On a line of its own: live() reports a bad position, and || may skip it.
    let own = j < live(token);
    wanted = wanted || own;
  }
  if (!wanted) { return; }
  let key = k_s_at(0) + batch * k_s_at(1) + head * k_s_at(2) + j * k_s_at(3);
  var sum = array<f32, ROWS>();
  for (var d = 0; d < p.fours; d++) {
    let k = get_k4(key + d);
    for (var r = 0; r < ROWS; r++) { sum[r] += dot(get_q4(rows_at[r] + d), k); }
  }
  for (var r = 0; r < ROWS; r++) {
    let at = row + r;
    if (at < p.rows) {
      let added = mask_at(at % p.seq, j);
      put_y((group * p.rows + at) * p.keys + j, sum[r] * p.scale + added);
    }
  }
}
