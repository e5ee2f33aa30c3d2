// The scan of a block of a row, one block per invocation: y[r] = carry + x[0..r], where
// the block's own total is kept apart from the carry, beside which elements may be too
// small to count. Row o = (outer, inner); block k is its elements from k * p.block on.
// Supplied: get_x, put_y, total(s, v), start (its identity element), carry(i) (the
// total of the blocks before), running(brought, before, sum, v) (what is stored, for an
// exclusive scan without x[r]); A; p.count, p.inner, p.blocks (of a row), p.block
// (elements of a block).
fn invocation(i: i32) {
  let q = i / p.inner;
  let c = i - q * p.inner;
  let outer = q / p.blocks;
  let k = q - outer * p.blocks;
  let base = outer * p.count * p.inner + c;
  let brought = carry(i);
  var sum = start();
  let end = min(p.count, (k + 1) * p.block);
  for (var r = k * p.block; r < end; r += 1) {
    let at = base + r * p.inner;
    let before = sum;
    let v = A(get_x(at));
    sum = total(sum, v);
    put_y(at, running(brought, before, sum, v));
  }
}
