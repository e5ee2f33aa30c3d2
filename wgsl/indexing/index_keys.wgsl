// y[j] = linear(j): index j, checked, as one number over the indexed dimensions. One
// index per invocation.
// Supplied: linear, put_y.
fn invocation(j: i32) {
  put_y(j, linear(j));
}
