// y[row, j] = exp(s[row, j] - max over j of s[row, j]), z[row] = 1 / sum over j of
// y[row, j], where s is x with the mask applied, and -inf from key reach(i) on; z is
// unseen() if all s are -inf. ALONG invocations share a row and read it four keys at a
// time.
// Supplied: put_z; ALONG, WG; load_keys, store_keys (four keys), mask_keys (applies the
// mask to four scores), reach (how many keys query i sees), row_max and row_sum (over a
// row's invocations), unseen; p: rows, keys, queries (rows of a head).
fn scores(row: i32, i: i32, j: i32) -> vec4<f32> {
  let live = reach(i);
  let at = vec4<i32>(j) + vec4<i32>(0, 1, 2, 3);
  let s = mask_keys(load_keys(row * p.keys + j), row, j);
  return select(vec4<f32>(-inf()), s, at < vec4<i32>(live));
}

fn group_invocation(group: i32, id: i32) {
  let wanted = group * (WG / ALONG) + id / ALONG;
  let row = min(wanted, p.rows - 1);
  let i = row % p.queries;
  let first = (id % ALONG) * 4;
  var most = vec4<f32>(-inf());
  for (var j = first; j < p.keys; j += ALONG * 4) {
    most = max(most, scores(row, i, j));
  }
  let high = row_max(id, max(max(most.x, most.y), max(most.z, most.w)));
  let base = select(high, 0.0, high == -inf());
  var total = vec4<f32>();
  for (var j = first; j < p.keys; j += ALONG * 4) {
    let e = exp(scores(row, i, j) - base);
    total += e;
    if (wanted < p.rows) { store_keys(row * p.keys, j, e); }
  }
  let sum = row_sum(id, total.x + total.y + total.z + total.w);
  if (wanted < p.rows && id % ALONG == 0) {
    put_z(row, select(1.0 / sum, unseen(), sum == 0.0));
  }
}
