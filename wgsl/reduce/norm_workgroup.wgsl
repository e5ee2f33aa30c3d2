// y = (x - shift) * scale * weight + bias by a row's own statistics, one row per
// workgroup. Names as in norm_apply and reduce_workgroup; emit stores the statistics.
// Supplied: partial, reduced (over the workgroup), emit, shift_of, scale_of, affine,
// get_x, put_y, p.count, p.per_row, p.inner, p.channels, BY_ELEMENT, WG (a power of
// two).
fn group_invocation(o: i32, id: i32) {
  let base = o * p.count;
  let whole = reduced(id, partial(base, id, WG));
  if (id == 0) { emit(o, 0, whole); }
  let shift = shift_of(whole);
  let scale = scale_of(whole);
  let first = (o * p.per_row) % p.channels;
  for (var r = id; r < p.count; r += WG) {
    var within = r;
    if (!BY_ELEMENT) { within = r / p.inner; }
    put_y(base + r, affine((get_x(base + r) - shift) * scale, first + within));
  }
}
