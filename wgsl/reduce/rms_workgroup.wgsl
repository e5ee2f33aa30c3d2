// y[r, k] = x[r, k] / sqrt(mean(x[r]^2) + eps) * weight[k], one workgroup per row.
// Supplied: get_x, scaled(k, v), put_y, row_sum (of all lanes); p.rows, p.depth (K),
// p.fold (rows along x), p.eps; WG.
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
  let squares = row_sum(i32(local), sum);
  let inverse = 1.0 / sqrt(squares / f32(p.depth) + p.eps);
  for (var k = i32(local); k < p.depth; k += WG) {
    if (inside) { put_y(base + k, scaled(k, get_x(base + k) * inverse)); }
  }
}
