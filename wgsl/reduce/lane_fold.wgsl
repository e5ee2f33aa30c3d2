// partial: the reduction, by one invocation, of elements first, first + every, ... of
// the row that begins at `base`. Blocks are reduced first, so that a long float sum
// stays accurate.
// Supplied: Acc, start (the identity element), element, merge, get_x, p.count,
// p.stride.
const BLOCK = 64;

fn partial(base: i32, first: i32, every: i32) -> Acc {
  var whole = start();
  var r = first;
  while (r < p.count) {
    var block = start();
    let end = min(p.count, r + BLOCK * every);
    for (; r < end; r += every) {
      block = merge(block, element(get_x(base + r * p.stride), r));
    }
    whole = merge(whole, block);
  }
  return whole;
}
