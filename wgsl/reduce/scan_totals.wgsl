// The total of each block of a row, one block per invocation; names as in scan_rows.
// Supplied: get_x, put_y, total, start, A, p.count, p.inner, p.blocks, p.block.
fn invocation(i: i32) {
  let q = i / p.inner;
  let c = i - q * p.inner;
  let outer = q / p.blocks;
  let k = q - outer * p.blocks;
  let base = outer * p.count * p.inner + c;
  var sum = start();
  let end = min(p.count, (k + 1) * p.block);
  for (var r = k * p.block; r < end; r += 1) {
    sum = total(sum, A(get_x(base + r * p.inner)));
  }
  put_y(i, sum);
}
