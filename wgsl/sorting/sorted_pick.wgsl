// value[r], index[r] = one element of a sorted row, such as its median or mode, and
// where it was before sorting.
// One row per invocation.
// Supplied: chosen(r, first) (the index in `sorted` of the element for row r, which
// starts at `first`), get_sorted, put_value, store_index(r, at) (stores where element
// `at` was, if that is wanted), p.keep (elements that were kept of each row).
fn invocation(i: i32) {
  let at = chosen(i, i * p.keep);
  put_value(i, get_sorted(at));
  store_index(i, at);
}
