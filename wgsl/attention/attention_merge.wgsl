// The parts of attention_split as one: y = sum of sums * exp(m - M) over the sum of
// totals * exp(m - M), M the largest maximum m of the parts.
// One invocation makes four columns of a row.
// Supplied: get_stats (maximum and total of a part's row), get_sums4, finish
// (finish_rows); p: all (rows of all heads), rows, parts, wide (fours of a row).
fn invocation(i: i32) {
  let row = i / p.wide;
  let column = i % p.wide;
  var high = -inf();
  for (var part = 0; part < p.parts; part++) {
    high = max(high, get_stats((part * p.all + row) * 2));
  }
  let base = select(high, 0.0, high == -inf());
  var sums = vec4<f32>();
  var total = 0.0;
  for (var part = 0; part < p.parts; part++) {
    let at = part * p.all + row;
    let factor = exp(get_stats(at * 2) - base);
    sums += factor * get_sums4(at * p.wide + column);
    total += factor * get_stats(at * 2 + 1);
  }
  finish(0, row / p.rows, row % p.rows, column, sums, high, total);
}
