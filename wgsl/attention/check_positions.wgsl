// Reports a position outside the cache, before any row is written.
// One position per invocation.
// Supplied: position(s), which reports.
fn invocation(s: i32) {
  _ = position(s);
}
