// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]): the loads and stores of
// tile.wgsl.
// Supplied: get_a, get_b, E (f32 or i32), put_quad (finishes and stores the sums of
// four columns); p: m, n, k, a_row, a_col, b_row, b_col (strides).
fn a_quad(base: i32, row: i32, k: i32) -> vec4<E> {
  var v = vec4<E>();
  for (var i = 0; i < 4; i++) {
    if (row + i < p.m && k < p.k) {
      v[i] = get_a(base + (row + i) * p.a_row + k * p.a_col);
    }
  }
  return v;
}
fn b_quad(base: i32, k: i32, column: i32) -> vec4<E> {
  var v = vec4<E>();
  for (var i = 0; i < 4; i++) {
    if (column + i < p.n && k < p.k) {
      v[i] = get_b(base + k * p.b_row + (column + i) * p.b_col);
    }
  }
  return v;
}
fn store_quad(batch: i32, row: i32, column: i32, v: vec4<E>) {
  if (row < p.m) { put_quad(batch, row, column, v); }
}
