// y = exp(x - max) / sum(exp(x - max)) along a dimension, or with LOG
// y = x - max - log(sum); one row (outer, inner) per invocation, three passes.
// Supplied: get_x, put_y, p.count, p.inner (stride within a row), p.block (of so many
// elements of a row, times p.inner, is a sum of its own, for accuracy), LOG.

fn invocation(row: i32) {
  let outer = row / p.inner;
  let base = outer * p.inner * p.count + (row - outer * p.inner);
  let end = base + p.count * p.inner;
  var top = get_x(base);
  for (var i = base + p.inner; i < end; i += p.inner) {
    top = max_nan(top, get_x(i));
  }
  var sum = 0.0;
  for (var i = base; i < end; ) {
    var block = 0.0;
    let stop = min(end, i + p.block);
    for (; i < stop; i += p.inner) {
      block += exp(get_x(i) - top);
    }
    sum += block;
  }
  let log_sum = if_finite(top, log(sum));
  let scale = if_finite(top, 1.0 / sum);
  for (var i = base; i < end; i += p.inner) {
    let d = get_x(i) - top;
    put_y(i, select(exp(d) * scale, d - log_sum, LOG));
  }
}
