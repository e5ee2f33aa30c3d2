// Softmax as in softmax_serial, one row per workgroup: neighbouring invocations take
// neighbouring elements; the maximum and the sum are reduced over the workgroup.
// Supplied: get_x, put_y, row_max, row_sum (over the workgroup), p.count, p.inner,
// LOG, WG (a power of two).
fn group_invocation(row: i32, id: i32) {
  let outer = row / p.inner;
  let base = outer * p.inner * p.count + (row - outer * p.inner);
  var top = -inf();
  for (var r = id; r < p.count; r += WG) {
    top = max_nan(top, get_x(base + r * p.inner));
  }
  top = row_max(id, top);
  var sum = 0.0;
  for (var r = id; r < p.count; r += WG) {
    sum += exp(get_x(base + r * p.inner) - top);
  }
  sum = row_sum(id, sum);
  let log_sum = if_finite(top, log(sum));
  let scale = if_finite(top, 1.0 / sum);
  for (var r = id; r < p.count; r += WG) {
    let d = get_x(base + r * p.inner) - top;
    put_y(base + r * p.inner, select(exp(d) * scale, d - log_sum, LOG));
  }
}
