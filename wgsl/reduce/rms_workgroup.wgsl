// y[r, k] = x[r, k] / sqrt(mean(x[r]^2) + eps) * weight[k], one workgroup per row.
// Supplied: get_x, scaled(k, v) (times weight[k]), put_y, row_sum (over the workgroup);
// p.depth (K), p.eps; WG.
fn group_invocation(row: i32, id: i32) {
  let base = row * p.depth;
  var sum = 0.0;
  for (var k = id; k < p.depth; k += WG) {
    let x = get_x(base + k);
    sum += x * x;
  }
  let squares = row_sum(id, sum);
  let inverse = 1.0 / sqrt(squares / f32(p.depth) + p.eps);
  for (var k = id; k < p.depth; k += WG) {
    put_y(base + k, scaled(k, get_x(base + k) * inverse));
  }
}
