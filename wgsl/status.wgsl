// Reports the first bad index of a call: [code, call, value, limit].
// Supplied: status, p.call.
fn report_index(value: i32, limit: i32) {
  if (atomicOr(&status[0], 1u) == 0u) {
    atomicStore(&status[1], u32(p.call));
    atomicStore(&status[2], u32(value));
    atomicStore(&status[3], u32(limit));
  }
}
// A valid index, counted from the end where negative; a bad one is reported
// and replaced by 0, so that nothing is read out of bounds.
fn checked_index(value: i32, limit: i32) -> i32 {
  let index = select(value, value + limit, value < 0);
  if (index < 0 || index >= limit) {
    report_index(value, limit);
    return 0;
  }
  return index;
}
// The same for ops that do not count from the end.
fn strict_index(value: i32, limit: i32) -> i32 {
  if (value < 0 || value >= limit) {
    report_index(value, limit);
    return 0;
  }
  return value;
}
