// Library: how a row that is summed over all keys is stored: y = sums / total, or
// unseen() where the row sees no key. Four columns.
// Supplied: put_y4, unseen; p: heads (of keys), sharing (query heads per key head),
// queries; y_s (strides of batch, head and token, in fours).
fn finish(split: i32, head: i32, row: i32, column: i32, sums: vec4<f32>, most: f32,
          total: f32) {
  let of_all = (head % p.heads) * p.sharing + row / p.queries;
  let at = head / p.heads * y_s_at(0) + of_all * y_s_at(1) + row % p.queries * y_s_at(2);
  put_y4(at + column, select(sums / total, vec4<f32>(unseen()), total == 0.0));
}
