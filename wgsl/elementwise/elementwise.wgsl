// y[i] = program(i), one element per invocation.
// Supplied: program (a generated elementwise program), put_y.
fn invocation(i: i32) {
  put_y(i, program(i));
}
