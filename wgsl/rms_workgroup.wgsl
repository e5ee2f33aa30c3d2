// y[r, k] = x[r, k] / sqrt(mean(x[r]^2) + eps) * weight[k], one workgroup per row.
// Supplied: get_x, scaled(k, v), put_y; p.rows, p.depth (K), p.fold (rows along
// x), p.eps; WG.
var<workgroup> partial: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let row = i32(group.x) + i32(group.y) * p.fold;
  let inside = row < p.rows;
  let base = select(0, row, inside) * p.depth;
  var sum = 0.0;
  for (var k = i32(local); k < p.depth; k += WG) {
    let x = get_x(base + k);
    sum += x * x;
  }
  partial[local] = sum;
  workgroupBarrier();
  for (var step = u32(WG) / 2u; step > 0u; step = step / 2u) {
    if (local < step) { partial[local] += partial[local + step]; }
    workgroupBarrier();
  }
  let inverse = 1.0 / sqrt(partial[0] / f32(p.depth) + p.eps);
  for (var k = i32(local); k < p.depth; k += WG) {
    if (inside) { put_y(base + k, scaled(k, get_x(base + k) * inverse)); }
  }
}
