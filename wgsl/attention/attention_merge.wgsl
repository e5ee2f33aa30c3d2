// Merges what attention_split stored for each split of the keys: y = (sum over splits
// of sums * exp(m - M)) / (sum over splits of total * exp(m - M)), where m is a split's
// maximum score and M the largest of them.
// One invocation: four columns of a row.
// Supplied: get_stats (maximum and total of a row of a split), get_sums4, finish
// (finish_rows); p: all (rows of all heads), rows, splits, wide (fours of a row).
fn invocation(i: i32) {
  let row = i / p.wide;
  let column = i % p.wide;
  var high = -inf();
  for (var split = 0; split < p.splits; split++) {
    high = max(high, get_stats((split * p.all + row) * 2));
  }
  let base = select(high, 0.0, high == -inf());
  var sums = vec4<f32>();
  var total = 0.0;
  for (var split = 0; split < p.splits; split++) {
    let at = split * p.all + row;
    let factor = exp(get_stats(at * 2) - base);
    sums += factor * get_sums4(at * p.wide + column);
    total += factor * get_stats(at * 2 + 1);
  }
  finish(0, row / p.rows, row % p.rows, column, sums, high, total);
}
