// Softmax as in softmax_serial, one row per workgroup: lanes take neighbouring
// elements and meet for the maximum and for the sum.
// Supplied: get_x, put_y, row_max, row_sum (of all lanes), p.rows, p.count, p.inner,
// LOG, WG (a power of two).
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let row = i32(wid.x + wid.y * groups.x);
  if (row >= p.rows) { return; }
  let outer = row / p.inner;
  let base = outer * p.inner * p.count + (row - outer * p.inner);
  var top = -inf();
  for (var r = i32(local); r < p.count; r += WG) {
    top = max_nan(top, get_x(base + r * p.inner));
  }
  top = row_max(i32(local), top);
  var sum = 0.0;
  for (var r = i32(local); r < p.count; r += WG) {
    sum += exp(get_x(base + r * p.inner) - top);
  }
  sum = row_sum(i32(local), sum);
  let log_sum = if_finite(top, log(sum));
  let scale = if_finite(top, 1.0 / sum);
  for (var r = i32(local); r < p.count; r += WG) {
    let d = get_x(base + r * p.inner) - top;
    put_y(base + r * p.inner, select(exp(d) * scale, d - log_sum, LOG));
  }
}
