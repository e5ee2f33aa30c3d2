// y[g, r] = sum over live j of softmax(x[g, r])[j] * v[g, j], with the scores x and
// rows r of cached_scores.wgsl; NaN where a mask hides all keys, as in ExecuTorch. One
// invocation: four columns of ROWS rows, in two passes over the scores, for their
// maximum and for the sums.
// Supplied: get_x, get_v4, put_y, live(s); p.rows, p.seq, p.keys, p.heads, p.sharing,
// p.fours, lists v_s (offset, batch, head, token strides in fours), y_s (batch, head,
// token strides of the result); ROWS.
fn invocation(t: i32) {
  let d = t % p.fours;
  let blocks = (p.rows + ROWS - 1) / ROWS;
  let rest = t / p.fours;
  let group = rest / blocks;
  let row = (rest - group * blocks) * ROWS;
  let batch = group / p.heads;
  let head = group - batch * p.heads;
  var rows_at = array<i32, ROWS>();
  var count = array<i32, ROWS>();
  var top = array<f32, ROWS>();
  var most = 0;
  for (var r = 0; r < ROWS; r++) {
    let at = min(row + r, p.rows - 1);
    rows_at[r] = (group * p.rows + at) * p.keys;
    count[r] = live(at % p.seq);
    top[r] = -F32_MAX;
    most = max(most, count[r]);
  }
  for (var j = 0; j < most; j++) {
    for (var r = 0; r < ROWS; r++) {
      if (j < count[r]) { top[r] = max(top[r], get_x(rows_at[r] + j)); }
    }
  }
  var sum = array<vec4<f32>, ROWS>();
  var total = array<f32, ROWS>();
  var value = v_s_at(0) + batch * v_s_at(1) + head * v_s_at(2) + d;
  for (var j = 0; j < most; j++) {
    let v = get_v4(value);
    value += v_s_at(3);
    for (var r = 0; r < ROWS; r++) {
      if (j < count[r]) {
        let weight = exp(get_x(rows_at[r] + j) - top[r]);
        total[r] += weight;
        sum[r] += weight * v;
      }
    }
  }
  for (var r = 0; r < ROWS; r++) {
    let at = row + r;
    if (at < p.rows) {
      let sharing = at / p.seq;
      let token = at - sharing * p.seq;
      let y = batch * y_s_at(0) + (head * p.sharing + sharing) * y_s_at(1)
            + token * y_s_at(2) + d * 4;
      for (var c = 0; c < 4; c++) {
        put_y(y + c, select(sum[r][c] / total[r], nan(), total[r] == 0.0));
      }
    }
  }
}
