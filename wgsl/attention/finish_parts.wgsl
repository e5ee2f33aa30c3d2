// Library: how a row that is summed over one split of the keys is stored, for
// attention_merge: the sums, the maximum score and the total of the weights. Four
// columns.
// Supplied: put_sums4, put_stats; p: all (rows of all heads), rows, wide (fours of a
// row).
fn finish(split: i32, head: i32, row: i32, column: i32, sums: vec4<f32>, most: f32,
          total: f32) {
  let at = split * p.all + head * p.rows + row;
  put_sums4(at * p.wide + column, sums);
  if (column == 0) {
    put_stats(at * 2, most);
    put_stats(at * 2 + 1, total);
  }
}
