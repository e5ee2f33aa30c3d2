// Writes source(i) into a strided view of y: the index of element i is the sum of its
// coordinates times strides, plus shift(i). One element per invocation.
// Supplied: source, shift, put_y, size_at, stride_at, RANK.
fn invocation(i: i32) {
  var rest = i;
  var at = shift(i);
  for (var d = RANK - 1; d >= 0; d -= 1) {
    let next = rest / size_at(d);
    at += (rest - next * size_at(d)) * stride_at(d);
    rest = next;
  }
  put_y(at, source(i));
}
