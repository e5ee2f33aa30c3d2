// y = (x - mean) / sqrt(mean of squares + eps) * weight + bias, one row per workgroup,
// which reads it once: an invocation keeps its share of a row in registers, as every
// WG-th vec4. With IS_RMS, nothing is subtracted.
// Supplied: Share, load_share, sum_of, centered, squares_of and store_share, which are
// unrolled because registers have no index; row_sum, row_squares (over the workgroup);
// p: count (of a row's elements, a multiple of 4), eps; IS_RMS, WG.
fn group_invocation(row: i32, id: i32) {
  let quads = p.count / 4;
  var share = load_share(row * quads, id, quads);
  if (!IS_RMS) {
    let mean = row_sum(id, sum_of(&share)) / f32(p.count);
    share = centered(&share, mean, id, quads);
  }
  let square = row_squares(id, squares_of(&share)) / f32(p.count);
  store_share(&share, 1.0 / sqrt(square + p.eps), row * quads, id, quads);
}
