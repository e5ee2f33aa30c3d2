// y[c] = x[c - before] in RANK dimensions, one element per invocation. MODE says what
// is outside x: 0 p.fill, 1 its reflection, 2 its edge, 3 x repeated.
// Supplied: get_x, put_y, p.fill, size_at, out_at, before_at, stride_at, RANK, MODE.
fn invocation(i: i32) {
  var rest = i;
  var at = 0;
  var inside = true;
  for (var d = RANK - 1; d >= 0; d -= 1) {
    let next = rest / out_at(d);
    let size = size_at(d);
    var k = rest - next * out_at(d) - before_at(d);
    rest = next;
    if (MODE == 0) {
      inside = inside && k >= 0 && k < size;
    } else if (MODE == 1) {
      k = abs(k);
      k = select(k, 2 * (size - 1) - k, k >= size);
    } else if (MODE == 2) {
      k = clamp(k, 0, size - 1);
    } else {
      k = k % size;
      k = select(k, k + size, k < 0);
    }
    at += k * stride_at(d);
  }
  var v = p.fill;
  if (inside) { v = get_x(at); }
  put_y(i, v);
}
