// Attention by online softmax. For each query row: the sum over keys j of exp(s[j] - m)
// * v[j], with s = q k^T * scale + mask and m the running maximum of s; the sum so far
// is rescaled where m grows, so that no score is stored.
// A workgroup takes ROWS rows of one key head and one split of the keys, WG keys in
// each iteration: an invocation first scores one key for all rows, then adds four
// columns of v to the sums of MINE rows, with the keys' weights in workgroup memory.
// Supplied: get_q4, get_k4, get_v4; ROWS, WG, COLUMNS (invocations side by side in a
// row of v), MINE; reach (keys that query i sees), masked (a score with the mask
// applied), finish (finish_rows, finish_parts); p: splits, split_keys (keys of a
// split), blocks (of rows in a head), heads (of keys), rows, queries, sharing (query
// heads per key head), fours (of q), wide (fours of v), scale; q_s, k_s, v_s: offset
// and strides of batch, head and token, in fours.
var<workgroup> weights: array<f32, ROWS * WG>;
var<workgroup> kept: array<f32, ROWS>;
var<workgroup> most: array<f32, ROWS>;
var<workgroup> total: array<f32, ROWS>;

fn q_row(b: i32, h: i32, row: i32) -> i32 {
  let head = h * p.sharing + row / p.queries;
  return q_s_at(0) + b * q_s_at(1) + head * q_s_at(2) + (row % p.queries) * q_s_at(3);
}

// Turns the scores of this iteration's keys into weights, for one row, and updates the
// row's running maximum and total.
fn weigh(row: i32) {
  let before = most[row];
  var high = before;
  for (var t = 0; t < WG; t++) { high = max(high, weights[row * WG + t]); }
  let base = select(high, 0.0, high == -inf());
  var sum = 0.0;
  for (var t = 0; t < WG; t++) {
    let e = exp(weights[row * WG + t] - base);
    weights[row * WG + t] = e;
    sum += e;
  }
  kept[row] = exp(before - base);
  most[row] = high;
  total[row] = total[row] * kept[row] + sum;
}

fn group_invocation(group: i32, id: i32) {
  let split = group % p.splits;
  let tile = group / p.splits;
  let head = tile / p.blocks;
  let first = (tile % p.blocks) * ROWS;
  let b = head / p.heads;
  let h = head % p.heads;
  var end = 0;
  var q_at = array<i32, ROWS>();
  for (var r = 0; r < ROWS; r++) {
    let row = min(first + r, p.rows - 1);
    end = max(end, reach(row % p.queries));
    q_at[r] = q_row(b, h, row);
  }
  let begin = split * p.split_keys;
  end = min(end, begin + p.split_keys);
  let k_base = k_s_at(0) + b * k_s_at(1) + h * k_s_at(2);
  let v_base = v_s_at(0) + b * v_s_at(1) + h * v_s_at(2);
  let column = id % COLUMNS;
  let mine = id / COLUMNS * MINE;
  var sums = array<vec4<f32>, MINE>();
  if (id < ROWS) {
    most[id] = -inf();
    total[id] = 0.0;
  }
  for (var start = begin; start < end; start += WG) {
    let j = start + id;
    var s = array<f32, ROWS>();
    let k_at = k_base + min(j, end - 1) * k_s_at(3);
    for (var e = 0; e < p.fours; e++) {
      let k = get_k4(k_at + e);
      for (var r = 0; r < ROWS; r++) { s[r] += dot(get_q4(q_at[r] + e), k); }
    }
    workgroupBarrier();
    for (var r = 0; r < ROWS; r++) {
      let row = min(first + r, p.rows - 1);
      let i = row % p.queries;
      let seen = j < min(end, reach(i));
      let head_of_all = h * p.sharing + row / p.queries;
      let score = masked(s[r] * p.scale, b, head_of_all, i, min(j, end - 1));
      weights[r * WG + id] = select(-inf(), score, seen);
    }
    workgroupBarrier();
    if (id < ROWS) { weigh(id); }
    workgroupBarrier();
    if (column < p.wide) {
      for (var m = 0; m < MINE; m++) { sums[m] *= kept[mine + m]; }
      for (var t = 0; t < min(WG, end - start); t++) {
        let v = get_v4(v_base + (start + t) * v_s_at(3) + column);
        for (var m = 0; m < MINE; m++) { sums[m] += weights[(mine + m) * WG + t] * v; }
      }
    }
  }
  workgroupBarrier();
  for (var m = 0; m < MINE; m++) {
    let row = first + mine + m;
    if (column < p.wide && row < p.rows) {
      finish(split, head, row, column, sums[m], most[mine + m], total[mine + m]);
    }
  }
}
