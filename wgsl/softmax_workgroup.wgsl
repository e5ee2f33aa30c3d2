// Softmax as in softmax_serial, one row per workgroup: lanes take neighbouring
// elements and meet in workgroup memory for the maximum and for the sum.
// Supplied: get_x, put_y, p.rows, p.count, p.inner, LOG, WG (a power of two).
var<workgroup> lanes: array<f32, WG>;

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
  lanes[local] = top;
  for (var width = u32(WG) / 2u; width > 0u; width = width / 2u) {
    workgroupBarrier();
    if (local < width) {
      lanes[local] = max_nan(lanes[local], lanes[local + width]);
    }
  }
  workgroupBarrier();
  top = lanes[0];
  workgroupBarrier();
  var sum = 0.0;
  for (var r = i32(local); r < p.count; r += WG) {
    sum += exp(get_x(base + r * p.inner) - top);
  }
  lanes[local] = sum;
  for (var width = u32(WG) / 2u; width > 0u; width = width / 2u) {
    workgroupBarrier();
    if (local < width) {
      lanes[local] += lanes[local + width];
    }
  }
  workgroupBarrier();
  let log_sum = if_finite(top, log(lanes[0]));
  let scale = if_finite(top, 1.0 / lanes[0]);
  for (var r = i32(local); r < p.count; r += WG) {
    let d = get_x(base + r * p.inner) - top;
    put_y(base + r * p.inner, select(exp(d) * scale, d - log_sum, LOG));
  }
}
