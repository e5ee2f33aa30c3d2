// Library: how a kernel reports a bad index or an overflow, and knows that an earlier one
// did. The status buffer holds [kind, call, a, b] of the first report; a kernel that
// calls one of these binds it.
// Supplied: status, p.call (the index of the op call in the graph).

// Kinds; `csrc/player/report.cpp` has a message for each. All are odd, so that the atomicOr of
// a later report changes none.
const BAD_INDEX = 1u;
const BAD_SUM = 3u;
const BAD_DIFFERENCE = 5u;
const BAD_PRODUCT = 7u;
const BAD_SHIFT = 9u;
const BAD_NUMBER = 11u;
const BAD_TOTAL = 13u;
const BAD_WHOLE = 15u;
const BAD_DIVISOR = 17u;

// Whether nothing was reported by the dispatches before this one.
fn is_clean() -> bool {
  return atomicLoad(&status[0]) == 0u;
}
fn report(kind: u32, a: i32, b: i32) {
  if (atomicOr(&status[0], 1u) == 0u) {
    atomicStore(&status[1], u32(p.call));
    atomicStore(&status[2], u32(a));
    atomicStore(&status[3], u32(b));
    atomicStore(&status[0], kind);
  }
}
fn report_index(value: i32, limit: i32) {
  report(BAD_INDEX, value, limit);
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
// The nearest valid index; a bad one is reported.
fn clamped_index(value: i32, limit: i32) -> i32 {
  if (value < 0 || value >= limit) { report_index(value, limit); }
  return clamp(value, 0, limit - 1);
}
// As checked_index, for ops that do not count from the end.
fn strict_index(value: i32, limit: i32) -> i32 {
  if (value < 0 || value >= limit) {
    report_index(value, limit);
    return 0;
  }
  return value;
}
