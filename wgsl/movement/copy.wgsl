// y[i] = x[i], where x may be any view, one element per invocation.
// Supplied: get_x, put_y.
fn invocation(i: i32) {
  put_y(i, get_x(i));
}
