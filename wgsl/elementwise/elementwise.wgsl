// y[i] = program(i), one element per invocation.
// Supplied: program (generated from the fused ops), put_y.
fn invocation(i: i32) {
  put_y(i, program(i));
}
