// As concat, four elements per invocation, where all inputs are multiples of four.
// Supplied: pick4(a, rest), target_of(rest), put_y4, p.span and p.total in fours.
fn invocation(i: i32) {
  let a = i / p.span;
  let rest = i - a * p.span;
  put_y4(a * p.total + target_of(rest), pick4(a, rest));
}
