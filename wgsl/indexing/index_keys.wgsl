// y[j] = linear(j): each index, checked, as one number. One per invocation.
// Supplied: linear, put_y.
fn invocation(j: i32) {
  put_y(j, linear(j));
}
