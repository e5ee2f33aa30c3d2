// Merges what was stored for each split of the keys: y = (sum over splits of sums *
// exp(m - M)) / (sum over splits of total * exp(m - M)), where m is a split's maximum
// score and M the largest of them; what is summed so far is rescaled where M grows.
// One invocation: four columns of a row. AHEAD splits are loaded at a time.
// Supplied: get_stats (maximum and total of a row of a split), get_sums4, finish
// (finish_rows); AHEAD; p: all (rows of all heads), rows, splits, wide (fours of a row).
fn invocation(i: i32) {
  let row = i / p.wide;
  let column = i % p.wide;
  var high = -inf();
  var sums = vec4<f32>();
  var total = 0.0;
  for (var first = 0; first < p.splits; first += AHEAD) {
    var most = array<f32, AHEAD>();
    var totals = array<f32, AHEAD>();
    var parts = array<vec4<f32>, AHEAD>();
    let before = high;
    for (var n = 0; n < AHEAD; n++) {
      let at = min(first + n, p.splits - 1) * p.all + row;
      most[n] = select(-inf(), get_stats(at * 2), first + n < p.splits);
      totals[n] = get_stats(at * 2 + 1);
      parts[n] = get_sums4(at * p.wide + column);
      high = max(high, most[n]);
    }
    let base = select(high, 0.0, high == -inf());
    let kept = exp(before - base);
    sums *= kept;
    total *= kept;
    for (var n = 0; n < AHEAD; n++) {
      let factor = exp(most[n] - base);
      sums += factor * parts[n];
      total += factor * totals[n];
    }
  }
  finish(0, row / p.rows, row % p.rows, column, sums, high, total);
}
