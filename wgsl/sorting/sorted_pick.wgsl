// value[r], place[r] = one element of a sorted row: a median, a mode.
// One row per invocation.
// Supplied: chosen (where it is, for row r whose first element is at an index; it may
// read get_sorted and p.keep, how many elements were kept of each row), get_sorted,
// put_value, store_place (puts where the element was, if that is wanted), p.keep.
fn invocation(i: i32) {
  let at = chosen(i, i * p.keep);
  put_value(i, get_sorted(at));
  store_place(i, at);
}
