// Running totals of a part of a row, one part per invocation: y[r] = carry + x[0..r],
// where the part's own total is kept apart from the carry, which would swallow it.
// Row o = (outer, inner); part k is elements k * p.part, ... of it.
// Supplied: get_x, put_y, total(s, v), start, carry(i), A, p.count, p.inner, p.parts,
// p.part, and running(brought, before, sum, v): what is stored, for an exclusive scan
// without x[r].
fn invocation(i: i32) {
  let q = i / p.inner;
  let c = i - q * p.inner;
  let outer = q / p.parts;
  let k = q - outer * p.parts;
  let base = outer * p.count * p.inner + c;
  let brought = carry(i);
  var sum = start();
  let end = min(p.count, (k + 1) * p.part);
  for (var r = k * p.part; r < end; r += 1) {
    let at = base + r * p.inner;
    let before = sum;
    let v = A(get_x(at));
    sum = total(sum, v);
    put_y(at, running(brought, before, sum, v));
  }
}
