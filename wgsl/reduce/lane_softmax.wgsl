// partial: maximum a and b = sum exp(x - a), by one invocation, of elements first,
// first + every, ... of the row that begins at `base`.
// Supplied: Acc, get_x, p.count, p.stride.
const BLOCK = 64;

fn partial(base: i32, first: i32, every: i32) -> Acc {
  var top = -inf();
  for (var r = first; r < p.count; r += every) {
    top = max_nan(top, get_x(base + r * p.stride));
  }
  var sum = 0.0;
  for (var r = first; r < p.count; ) {
    var block = 0.0;
    let end = min(p.count, r + BLOCK * every);
    for (; r < end; r += every) {
      block += exp_below(get_x(base + r * p.stride), top);
    }
    sum += block;
  }
  return Acc(top, sum);
}
