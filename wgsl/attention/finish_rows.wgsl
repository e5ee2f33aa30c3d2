// Library: how attention_split and attention_merge store a row that is summed over all
// keys: y = sums / total, or unseen() where the row sees no key. Four columns.
// Supplied: put_y, unseen; p: heads (of keys), sharing (query heads per key head),
// queries; y_s (strides of batch, head and token).
fn finish(split: i32, head: i32, row: i32, column: i32, sums: vec4<f32>, most: f32,
          total: f32) {
  let of_all = (head % p.heads) * p.sharing + row / p.queries;
  let at = head / p.heads * y_s_at(0) + of_all * y_s_at(1) + row % p.queries * y_s_at(2)
           + column * 4;
  for (var i = 0; i < 4; i++) {
    put_y(at + i, select(sums[i] / total, unseen(), total == 0.0));
  }
}
