// The reduction, by one invocation, of elements first, first + step, ... of the row that
// begins at `base`. Blocks are reduced first, so that a long float sum stays accurate.
// Supplied: Acc, start (the identity element), element, merge, get_x, p.count,
// p.stride.
const BLOCK = 64;

fn lane(base: i32, first: i32, step: i32) -> Acc {
  var whole = start();
  var r = first;
  while (r < p.count) {
    var block = start();
    let end = min(p.count, r + BLOCK * step);
    for (; r < end; r += step) {
      block = merge(block, element(get_x(base + r * p.stride), r));
    }
    whole = merge(whole, block);
  }
  return whole;
}
