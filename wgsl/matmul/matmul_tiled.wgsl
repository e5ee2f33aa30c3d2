// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]): the stores of tile.wgsl.
// Its loads are generated (ops/matmul/operand_loads.py).
// Supplied: put_quad (finishes and stores the sums of four columns); p: m.
fn store_quad(batch: i32, row: i32, column: i32, v: vec4<S>) {
  if (row < p.m) { put_quad(batch, row, column, v); }
}
