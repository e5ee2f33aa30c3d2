// Sorts each block of p.block elements of a row, keeping its first p.keep: an element's
// rank is the number of elements of its block that come before it.
// One element per invocation.
// Supplied: before(a, b), get_x, put_value, put_index, p.length (of a row), p.block,
// p.keep, p.slot (room for a block in the result), p.row (for a row).
fn invocation(i: i32) {
  let row = i / p.length;
  let m = i - row * p.length;
  let block = m / p.block;
  let first = block * p.block;
  let end = min(first + p.block, p.length);
  let base = row * p.length;
  let v = get_x(i);
  var rank = 0;
  for (var k = first; k < m; k += 1) {
    // Equal elements keep their order: an earlier one comes before this.
    rank += select(1, 0, before(v, get_x(base + k)));
  }
  for (var k = m + 1; k < end; k += 1) {
    rank += select(0, 1, before(get_x(base + k), v));
  }
  if (rank < p.keep) {
    let at = row * p.row + block * p.slot + rank;
    put_value(at, v);
    put_index(at, m);
  }
}
