// Copies some inputs of a concatenation, one element per invocation: element `rest` of
// what these inputs have in outer row a, to its index in that row of the output.
// Supplied: pick(a, rest), target_of(rest), put_y, p.span (elements of these inputs in
// one row), p.total (of all inputs).
fn invocation(i: i32) {
  let a = i / p.span;
  let rest = i - a * p.span;
  put_y(a * p.total + target_of(rest), pick(a, rest));
}
